"""OrderedDownload delivers the bytes in order, whatever the connections do."""

from __future__ import annotations

import hashlib
import os
import resource
import time
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer.integrity import crc32c
from packtrain.transfer.ordered_download import OrderedDownload, StaleDownloadError
from testbed.http_server import HttpServer, ResponseFault
from tests.support.waiting import wait_until

DATA = os.urandom(21_000_003)
SHA256 = Digest("sha256", hashlib.sha256(DATA).hexdigest())


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    served = tmp_path_factory.mktemp("served")
    (served / "data.bin").write_bytes(DATA)
    return served


def make_download(
    *urls: str, check_cancelled=lambda: None, on_progress=lambda d, t: None, retry_timeout_s=5.0, **options
) -> OrderedDownload:
    remote_file = RemoteFile("data.bin", tuple(Location(url) for url in urls), **options)
    return OrderedDownload(
        remote_file,
        str,
        retry_timeout_s=retry_timeout_s,
        check_cancelled=check_cancelled,
        on_progress=on_progress,
    )


def read_all(stream: OrderedDownload, step: int) -> bytes:
    return b"".join(iter(lambda: stream.read(step), b""))


def consume(download: OrderedDownload) -> None:
    with download as stream:
        read_all(stream, 1 << 20)


@pytest.mark.parametrize("step", [777_777, 1 << 20, 5 << 20])
def test_bytes_are_in_order(folder, step):
    reports = []
    with (
        HttpServer(folder) as server,
        make_download(
            f"{server.url}/data.bin", digest=SHA256, on_progress=lambda d, t: reports.append((d, t))
        ) as stream,
    ):
        assert read_all(stream, step) == DATA
        assert stream.size == len(DATA)
        assert stream.read(1) == b""
    assert reports[-1] == (len(DATA), len(DATA))


def test_views_stay_valid(folder):
    with HttpServer(folder) as server, make_download(f"{server.url}/data.bin") as stream:
        views = []
        while True:
            more = stream.read_views(300_000)
            if not more:
                break
            views += more
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
def test_faults_are_invisible(folder, faults):
    with HttpServer(folder, faults=faults) as server, make_download(f"{server.url}/data.bin", digest=SHA256) as stream:
        assert read_all(stream, 1 << 20) == DATA


def test_wrong_digest(folder):
    with HttpServer(folder, faults=[ResponseFault(corrupt_offset=5)]) as server, pytest.raises(FailedError) as caught:
        consume(make_download(f"{server.url}/data.bin", digest=SHA256))
    assert caught.value.kind == "digest_mismatch"


@pytest.mark.parametrize("second_fault", [None, ResponseFault(chunked=True, ignore_range=True)])
def test_broken_body_of_unknown_length_is_stale(folder, second_fault):
    faults = [
        ResponseFault(chunked=True, ignore_range=True, stall_after_bytes=300_000, close_after_bytes=300_000),
        second_fault,
    ]
    with (
        HttpServer(folder, faults=faults) as server,
        pytest.raises(StaleDownloadError, match="after part of it was used"),
        make_download(f"{server.url}/data.bin", retry_timeout_s=600) as stream,
    ):
        stream.read(1)
        server.release_stalls()
        read_all(stream, 1 << 20)
    assert len(server.requests) == 2, "it is not retried until the retry timeout"


def test_wrong_crc32c(folder):
    with (
        HttpServer(folder) as server,
        pytest.raises(FailedError, match=r"has the crc32c \w+, but should have 00000000"),
    ):
        consume(make_download(f"{server.url}/data.bin", digest=Digest("crc32c", "00000000")))


def test_crc32c_is_rejected_without_module(folder, monkeypatch):
    monkeypatch.setattr(crc32c, "find_extend", lambda: None)
    with HttpServer(folder) as server, pytest.raises(FailedError, match="state its sha256 or md5") as caught:
        consume(make_download(f"{server.url}/data.bin", digest=Digest("crc32c", "00000000")))
    assert caught.value.kind == "unsupported"
    assert not server.requests


def test_missing_object(folder):
    with HttpServer(folder) as server, pytest.raises(FailedError) as caught:
        consume(make_download(f"{server.url}/none", retry_timeout_s=0.1))
    assert caught.value.kind == "object_missing"


class Cancelled(Exception):
    pass


def test_cancellation_while_server_is_silent(folder):
    def check_cancelled() -> None:
        if server.stall_started.is_set():
            raise Cancelled

    with HttpServer(folder, faults=[ResponseFault(stall_after_bytes=0)]) as server, pytest.raises(Cancelled):
        consume(make_download(f"{server.url}/data.bin", check_cancelled=check_cancelled))
    assert len(server.requests) == 1


def test_slow_reader_limits_memory(tmp_path):
    size = 200 << 20
    with open(tmp_path / "data.bin", "wb") as file:
        file.truncate(size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with HttpServer(tmp_path) as server, make_download(f"{server.url}/data.bin") as stream:
        assert stream.read(10) == bytes(10)
        wait_until(lambda: last_requested_byte(server) >= 40 << 20)
        time.sleep(0.2)  # long enough to request more, if it did
        assert last_requested_byte(server) == 40 << 20
        while stream.read_views(1 << 20):
            pass
        assert last_requested_byte(server) == size
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def last_requested_byte(server: HttpServer) -> int:
    ranges = [request.headers["range"] for request in list(server.requests)]
    return max((int(byte_range.rpartition("-")[2]) + 1 for byte_range in ranges), default=0)
