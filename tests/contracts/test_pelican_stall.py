"""A real XRootD server stalls during a transfer with its connections open; the transfer continues from another one."""

from __future__ import annotations

import filecmp
import os
from pathlib import Path

import pytest

from packtrain.plan import Location, RemoteFile
from packtrain.transfer.backends.pelican.backend import PelicanBackend
from packtrain.transfer.fetch import FetchResult, fetch
from testbed.federation import XRootDFederation
from testbed.xrootd import XRootDServer

pytestmark = pytest.mark.slow
SIZE = 160 << 20


@pytest.fixture
def federation(tmp_path, monkeypatch):
    with XRootDFederation(tmp_path / "federation") as federation:
        monkeypatch.setenv("SSL_CERT_FILE", str(federation.ca))
        block = os.urandom(1 << 20)
        with open(federation.origin.object_dir / "x.bin", "wb") as file:
            for number in range(SIZE >> 20):
                file.write(number.to_bytes(8, "big") + block[8:])
        yield federation


class ServerPauser:
    """Pauses servers for good once a fifth has arrived."""

    def __init__(self, *servers: XRootDServer) -> None:
        self._servers, self.has_paused = servers, False

    def __call__(self, done: int, total: int | None) -> None:
        if not self.has_paused and done > SIZE // 5:
            self.has_paused = True
            for server in self._servers:
                server.pause()


def fetch_object(federation: XRootDFederation, target: Path, pauser: ServerPauser) -> FetchResult:
    remote_file = RemoteFile("x.bin", (Location(federation.url("x.bin")),))
    result = fetch(remote_file, target, str, retry_timeout_s=60, check_cancelled=lambda: None, on_progress=pauser)
    assert filecmp.cmp(target, federation.origin.object_dir / "x.bin", shallow=False)
    assert pauser.has_paused
    return result


def netloc(server: XRootDServer) -> str:
    return server.url.partition("://")[2]


@pytest.mark.parametrize("paused", [0, 1])
def test_cache_stalls(federation, tmp_path, paused):
    result = fetch_object(federation, tmp_path / "x.bin", ServerPauser(federation.caches[paused]))
    assert result.bytes_by_source[netloc(federation.caches[1 - paused])] > 0


def test_both_caches_stall(federation, tmp_path):
    result = fetch_object(federation, tmp_path / "x.bin", ServerPauser(*federation.caches))
    assert result.bytes_by_source[netloc(federation.origin)] > 0


def test_origin_stalls(federation, tmp_path):
    (_, second, _) = PelicanBackend(str).find_replicas(Location(federation.url("x.bin")))
    stream = second.source.open(second.location)
    while stream.read(1 << 20):
        pass
    stream.close()
    result = fetch_object(federation, tmp_path / "x.bin", ServerPauser(federation.origin))
    assert result.bytes_by_source[netloc(federation.caches[1])] > 0
