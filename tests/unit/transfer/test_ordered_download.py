"""Ordered: the bytes of an item in their order, whatever the connections do."""

from __future__ import annotations

import hashlib
import os
import resource
import time
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer import crc32c
from packtrain.transfer.ordered_download import OrderedDownload, StaleDownloadError
from testbed.http_server import HttpServer, ResponseFault

DATA = os.urandom(21_000_003)
SHA256 = Digest("sha256", hashlib.sha256(DATA).hexdigest())


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    served = tmp_path_factory.mktemp("served")
    (served / "data.bin").write_bytes(DATA)
    return served


def ordered(*urls: str, stop=lambda: None, progress=lambda d, t: None, patience_s=5.0, **more) -> OrderedDownload:
    item = RemoteFile("data.bin", tuple(Location(url) for url in urls), **more)
    return OrderedDownload(item, str, retry_timeout_s=patience_s, check_cancelled=stop, on_progress=progress)


def everything(stream: OrderedDownload, step: int) -> bytes:
    return b"".join(iter(lambda: stream.read(step), b""))


def with_a_reader(made: OrderedDownload) -> None:
    with made as stream:
        everything(stream, 1 << 20)


@pytest.mark.parametrize("step", [777_777, 1 << 20, 5 << 20])
def test_all_bytes_come_in_their_order(folder, step):
    told = []
    with (
        HttpServer(folder) as origin,
        ordered(f"{origin.url}/data.bin", digest=SHA256, progress=lambda d, t: told.append((d, t))) as stream,
    ):
        assert everything(stream, step) == DATA
        assert stream.size == len(DATA)
        assert stream.read(1) == b""
    assert told[-1] == (len(DATA), len(DATA))


def test_take_gives_views_that_stay_as_they_are(folder):
    with HttpServer(folder) as origin, ordered(f"{origin.url}/data.bin") as stream:
        views = []
        while True:
            some = stream.read_views(300_000)
            if not some:
                break
            views += some
        assert b"".join(views) == DATA


@pytest.mark.parametrize(
    "faults",
    [
        [
            ResponseFault(close_after_bytes=100_000),
            ResponseFault(close_after_bytes=1_500_000),
            ResponseFault(status=503),
        ],
        [ResponseFault(chunked=True)],
        [ResponseFault(omit_length=True)],
        [ResponseFault(ignore_range=True)] * 9,
    ],
)
def test_faults_do_not_show(folder, faults):
    with HttpServer(folder, faults=faults) as origin, ordered(f"{origin.url}/data.bin", digest=SHA256) as stream:
        assert everything(stream, 1 << 20) == DATA


def test_a_wrong_digest_is_told_at_the_end(folder):
    with HttpServer(folder, faults=[ResponseFault(corrupt_offset=5)]) as origin, pytest.raises(FailedError) as caught:
        with_a_reader(ordered(f"{origin.url}/data.bin", digest=SHA256))
    assert caught.value.kind == "digest_mismatch"


@pytest.mark.parametrize("then", [None, ResponseFault(chunked=True, ignore_range=True)])
def test_a_body_of_unknown_length_that_breaks_off_is_not_gone_on_with(folder, then):
    faults = [
        ResponseFault(chunked=True, ignore_range=True, stall_after_bytes=300_000, close_after_bytes=300_000),
        then,
    ]
    with (
        HttpServer(folder, faults=faults) as origin,
        pytest.raises(StaleDownloadError, match="after part of it was used"),
        ordered(f"{origin.url}/data.bin", patience_s=600) as stream,
    ):
        stream.read(1)
        origin.release_stalls()
        everything(stream, 1 << 20)
    assert len(origin.requests) == 2, "nobody could mend it: the patience is not spent on it"


def test_a_crc32c_is_compared(folder):
    with (
        HttpServer(folder) as origin,
        pytest.raises(FailedError, match=r"has the crc32c \w+, but should have 00000000"),
    ):
        with_a_reader(ordered(f"{origin.url}/data.bin", digest=Digest("crc32c", "00000000")))


def test_a_crc32c_of_too_much_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(crc32c, "_find_native_extend", lambda: None)
    with open(tmp_path / "data.bin", "wb") as file:
        file.truncate(crc32c.MAX_PURE_PYTHON_BYTES + 1)
    with HttpServer(tmp_path) as origin, pytest.raises(FailedError, match="state its sha256 or md5") as caught:
        with_a_reader(ordered(f"{origin.url}/data.bin", digest=Digest("crc32c", "00000000")))
    assert caught.value.kind == "unsupported"
    assert len(origin.requests) == 1


def test_a_missing_object_is_told(folder):
    with HttpServer(folder) as origin, pytest.raises(FailedError) as caught:
        with_a_reader(ordered(f"{origin.url}/none", patience_s=0.1))
    assert caught.value.kind == "object_missing"


class Leave(Exception):
    pass


def test_stop_is_heard_while_nothing_comes(folder):
    def stop() -> None:
        if origin.stall_started.is_set():
            raise Leave

    began = time.monotonic()
    with HttpServer(folder, faults=[ResponseFault(stall_after_bytes=0)]) as origin, pytest.raises(Leave):
        with_a_reader(ordered(f"{origin.url}/data.bin", stop=stop))
    assert time.monotonic() - began < 5


def test_a_slow_reader_is_waited_for(tmp_path):
    size = 200 << 20
    with open(tmp_path / "data.bin", "wb") as file:
        file.truncate(size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with HttpServer(tmp_path) as origin, ordered(f"{origin.url}/data.bin") as stream:
        assert stream.read(10) == bytes(10)
        deadline = time.monotonic() + 20
        while furthest(origin) < 40 << 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        assert furthest(origin) == 40 << 20
        while stream.read_views(1 << 20):
            pass
        assert furthest(origin) == size
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def furthest(origin: HttpServer) -> int:
    return max((int(seen.headers["range"].rpartition("-")[2]) + 1 for seen in list(origin.requests)), default=0)
