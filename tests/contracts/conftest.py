"""The backends that both transfer contracts are run over. Real servers, started once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from packtrain.plan import Ref
from packtrain.transfer.backends.file import FileStore
from packtrain.transfer.backends.http import HttpStore
from packtrain.transfer.backends.pelican.backend import PelicanStore
from packtrain.transfer.backends.s3.backend import S3Store
from packtrain.transfer.urls import joined
from testbed.http_server import Origin
from tests.support.memory_object_store import MemoryStore


@dataclass
class Backend:
    """A store, and how a test makes addresses in a place of its own."""

    name: str
    store: Any
    ref: Callable[[str], Ref]
    lists: bool = True
    immutable: bool = False  # objects are never changed, and so need no ETag

    def put(self, name: str, data: bytes, folder: Path) -> Ref:
        path = folder / "to-put"
        path.write_bytes(data)
        self.store.put(self.ref(name), path)
        return self.ref(name)


def plain(value: Any) -> str:
    assert isinstance(value, str)
    return value


def memory(request: pytest.FixtureRequest, place: str) -> Backend:
    return Backend("memory", MemoryStore(), lambda name: Ref(joined(f"memory://{place}", name)))


def file(request: pytest.FixtureRequest, place: str) -> Backend:
    folder = request.getfixturevalue("tmp_path") / place
    return Backend("file", FileStore(), lambda name: Ref((folder / name).as_uri()))


def http(request: pytest.FixtureRequest, place: str) -> Backend:
    origin = request.getfixturevalue("http_origin")
    return Backend(
        "http", HttpStore(plain), lambda name: Ref(joined(f"{origin.url}/{place}", name), token="t0ken"), lists=False
    )


def s3(request: pytest.FixtureRequest, place: str) -> Backend:
    server = request.getfixturevalue("s3_server")
    return Backend("s3", S3Store(plain), lambda name: server.ref(f"{place}/{name}"))


def pelican(request: pytest.FixtureRequest, place: str) -> Backend:
    federation = request.getfixturevalue("real_federation")
    request.getfixturevalue("monkeypatch").setenv("SSL_CERT_FILE", str(federation.ca))
    url = federation.url(place)
    return Backend("pelican", PelicanStore(plain), lambda name: Ref(joined(url, name)), immutable=True)


# What needs servers that take seconds to start runs in one process, which starts them once.
_SLOW = [pytest.param(s, marks=[pytest.mark.slow, pytest.mark.xdist_group(s.__name__)]) for s in (s3, pelican)]


@pytest.fixture(params=[memory, file, http, *_SLOW], ids=lambda make: make.__name__)
def backend(request: pytest.FixtureRequest) -> Backend:
    made: Backend = request.param(request, uuid.uuid4().hex)
    return made


@pytest.fixture(scope="session")
def http_origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Origin]:
    with Origin(tmp_path_factory.mktemp("origin"), token="t0ken", writable=True) as origin:
        yield origin


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from testbed.federation import Federation

    with Federation(tmp_path_factory.mktemp("federation"), token="t0ken") as made:
        yield made


@pytest.fixture(scope="session")
def real_federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """XRootD behind our director."""
    from testbed.federation import RealFederation

    with RealFederation(tmp_path_factory.mktemp("real-federation")) as made:
        yield made
