"""The backends for the source and sink contracts. The servers are real and start once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from packtrain.errors import TransferError
from packtrain.plan import Location
from packtrain.transfer.backends.file import FileBackend
from packtrain.transfer.backends.http import HttpBackend
from packtrain.transfer.backends.pelican.backend import PelicanBackend
from packtrain.transfer.backends.s3.backend import S3Backend
from packtrain.transfer.urls import join_url
from testbed.http_server import HttpServer
from tests.support.memory_object_store import MemoryBackend


@dataclass
class BackendCase:
    """A backend, and a function that makes locations under a prefix of the test's own."""

    name: str
    store: Any
    make_location: Callable[[str], Location]
    can_list: bool = True
    immutable: bool = False  # objects never change, so they need no ETag

    def put(self, name: str, data: bytes, folder: Path) -> Location:
        path = folder / "to-put"
        path.write_bytes(data)
        self.store.put(self.make_location(name), path)
        return self.make_location(name)

    def list(self, prefix: str) -> list[Any] | None:
        """Return the objects under a prefix; None if the backend says, as it must, that it cannot list."""
        if self.can_list:
            return list(self.store.list(self.make_location(prefix)))
        with pytest.raises(TransferError, match="list") as caught:
            list(self.store.list(self.make_location(prefix)))
        assert caught.value.kind == "unsupported"
        return None


def resolve_plain(value: Any) -> str:
    assert isinstance(value, str)
    return value


def memory_case(request: pytest.FixtureRequest, prefix: str) -> BackendCase:
    return BackendCase("memory", MemoryBackend(), lambda name: Location(join_url(f"memory://{prefix}", name)))


def file_case(request: pytest.FixtureRequest, prefix: str) -> BackendCase:
    folder = request.getfixturevalue("tmp_path") / prefix
    return BackendCase("file", FileBackend(), lambda name: Location((folder / name).as_uri()))


def http_case(request: pytest.FixtureRequest, prefix: str) -> BackendCase:
    origin = request.getfixturevalue("http_origin")
    return BackendCase(
        "http",
        HttpBackend(resolve_plain),
        lambda name: Location(join_url(f"{origin.url}/{prefix}", name), token="t0ken"),
        can_list=False,
    )


def s3_case(request: pytest.FixtureRequest, prefix: str) -> BackendCase:
    server = request.getfixturevalue("s3_server")
    return BackendCase("s3", S3Backend(resolve_plain), lambda name: server.location(f"{prefix}/{name}"))


def pelican_case(request: pytest.FixtureRequest, prefix: str) -> BackendCase:
    federation = request.getfixturevalue("real_federation")
    request.getfixturevalue("monkeypatch").setenv("SSL_CERT_FILE", str(federation.ca))
    url = federation.url(prefix)
    return BackendCase(
        "pelican", PelicanBackend(resolve_plain), lambda name: Location(join_url(url, name)), immutable=True
    )


# These servers take seconds to start, so all their tests run in one process.
_SLOW_CASES = [
    pytest.param(case, marks=[pytest.mark.slow, pytest.mark.xdist_group(case.__name__)])
    for case in (s3_case, pelican_case)
]


@pytest.fixture(params=[memory_case, file_case, http_case, *_SLOW_CASES], ids=lambda make: make.__name__)
def backend(request: pytest.FixtureRequest) -> BackendCase:
    case: BackendCase = request.param(request, uuid.uuid4().hex)
    return case


@pytest.fixture(scope="session")
def http_origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with HttpServer(tmp_path_factory.mktemp("origin"), token="t0ken", writable=True) as origin:
        yield origin


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from testbed.federation import Federation

    with Federation(tmp_path_factory.mktemp("federation"), token="t0ken") as case:
        yield case


@pytest.fixture(scope="session")
def real_federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """XRootD servers behind the testbed's director."""
    from testbed.federation import XRootDFederation

    with XRootDFederation(tmp_path_factory.mktemp("real-federation")) as case:
        yield case
