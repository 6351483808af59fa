"""A real XRootD server that stops in mid-transfer, its connections open: the transfer goes on from another one."""

from __future__ import annotations

import filecmp
import os
import time
from pathlib import Path

import pytest

from packtrain.plan import Location, RemoteFile
from packtrain.transfer.backends.pelican.backend import PelicanBackend
from packtrain.transfer.fetch import FetchResult, fetch
from testbed.federation import XRootDFederation
from testbed.xrootd import XRootDServer

pytestmark = pytest.mark.slow
SIZE = 160 << 20
GOES_ON_WITHIN_S = 60.0  # 3 s where nothing else runs; XRootD itself would be silent for more than 75 s


@pytest.fixture
def federation(tmp_path, monkeypatch):
    with XRootDFederation(tmp_path / "federation") as made:
        monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
        block = os.urandom(1 << 20)
        with open(made.origin.object_dir / "x.bin", "wb") as file:
            for number in range(SIZE >> 20):
                file.write(number.to_bytes(8, "big") + block[8:])
        yield made


class Watch:
    """Stops servers once a fifth has arrived, and measures the longest silence after that."""

    def __init__(self, *servers: XRootDServer) -> None:
        self._servers, self._last, self._done = servers, 0.0, 0
        self.longest = 0.0

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if not self._last and done > SIZE // 5:
            for server in self._servers:
                server.pause()
            self._last = time.monotonic()
        elif self._last and done > self._done:
            self.longest = max(self.longest, now - self._last)
            self._last = now
        self._done = max(self._done, done)


def get(federation: XRootDFederation, target: Path, watch: Watch) -> FetchResult:
    item = RemoteFile("x.bin", (Location(federation.url("x.bin")),))
    fetched = fetch(item, target, str, retry_timeout_s=60, check_cancelled=lambda: None, on_progress=watch)
    assert filecmp.cmp(target, federation.origin.object_dir / "x.bin", shallow=False)
    assert watch._last, "the servers were not stopped"
    assert watch.longest < GOES_ON_WITHIN_S
    return fetched


def host(server: XRootDServer) -> str:
    return server.url.partition("://")[2]


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_cache_that_stops(federation, tmp_path, stopped):
    fetched = get(federation, tmp_path / "x.bin", Watch(federation.caches[stopped]))
    assert fetched.bytes_by_source[host(federation.caches[1 - stopped])] > 0


def test_both_caches_stop_and_the_origin_is_the_last_resort(federation, tmp_path):
    fetched = get(federation, tmp_path / "x.bin", Watch(*federation.caches))
    assert fetched.bytes_by_source[host(federation.origin)] > 0


def test_the_origin_stops_and_a_cache_that_has_it_all_goes_on(federation, tmp_path):
    (_, second, _) = PelicanBackend(str).find_replicas(Location(federation.url("x.bin")))
    stream = second.source.open(second.location)
    while stream.read(1 << 20):
        pass
    stream.close()
    fetched = get(federation, tmp_path / "x.bin", Watch(federation.origin))
    assert fetched.bytes_by_source[host(federation.caches[1])] > 0
