"""Blocks that are written to the file in chunks, because no digest needs complete blocks."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer.engine import file_sink
from packtrain.transfer.engine.file_sink import FileSink
from packtrain.transfer.fetch import FetchResult, fetch
from testbed.http_server import HttpServer, ResponseFault

MIB = 1 << 20
DATA = os.urandom(24 * MIB + 77)
GOOD = None


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    served = tmp_path_factory.mktemp("served")
    (served / "data.bin").write_bytes(DATA)
    return served


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data.bin"


@pytest.fixture
def chunk_sizes(monkeypatch) -> list[int]:
    """The sizes of the chunks written directly; small files are not hashed in these tests."""
    sizes: list[int] = []
    write_chunk = FileSink.write_chunk

    def counting_write_chunk(self: FileSink, index: int, offset: int, chunk: memoryview) -> None:
        write_chunk(self, index, offset, chunk)
        sizes.append(len(chunk))

    monkeypatch.setattr(FileSink, "write_chunk", counting_write_chunk)
    monkeypatch.setattr(file_sink, "_MAX_ALWAYS_HASHED_BYTES", 0)
    return sizes


def download(target: Path, *servers: HttpServer, digest=None, on_progress=lambda d, t: None) -> FetchResult:
    locations = tuple(Location(f"{server.url}/data.bin") for server in servers)
    remote_file = RemoteFile("data.bin", locations, digest=digest)
    result = fetch(
        remote_file, target, str, retry_timeout_s=20.0, check_cancelled=lambda: None, on_progress=on_progress
    )
    assert target.read_bytes() == DATA
    return result


def test_all_but_first_block_are_written_directly(folder, target, chunk_sizes):
    """Only the first block and, on a busy machine, a few hedged blocks are received completely."""
    with HttpServer(folder) as server:
        result = download(target, server)
    assert result.sha256 == ""
    assert len(DATA) // 2 < sum(chunk_sizes) <= len(DATA) - MIB


def test_digest_prevents_direct_writes(folder, target, chunk_sizes):
    with HttpServer(folder) as server:
        download(target, server, digest=Digest("sha256", hashlib.sha256(DATA).hexdigest()))
    assert not chunk_sizes


FAULTS = [
    ResponseFault(close_after_bytes=MIB + 5),
    ResponseFault(close_after_bytes=0),
    ResponseFault(stall_after_bytes=MIB + 5),
    ResponseFault(truncate_to_bytes=100_000),
    ResponseFault(status=503),
    ResponseFault(ignore_range=True),
    ResponseFault(chunked=True),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_responses(folder, target, chunk_sizes, fault):
    with HttpServer(folder, faults=[GOOD, fault, fault]) as server:
        result = download(target, server)
    assert chunk_sizes and result.wasted_bytes < len(DATA) // 2


def test_incomplete_block_is_continued(folder, target, chunk_sizes):
    """The second response breaks off in the middle of a block.

    On a busy machine another connection may take over the block, so the test tries several times.
    """
    starts = [start for _ in range(5) for start in request_starts_after_break(folder, target, chunk_sizes)]
    assert any(start % MIB == MIB // 2 for start in starts), "the received part of the block was requested again"


def test_incomplete_block_is_read_back_for_late_digest(folder, target, chunk_sizes, monkeypatch):
    """A server may report a digest during the download: here after the second block of the second response started."""
    read_back, sizes = FileSink.read_back, []
    monkeypatch.setattr(FileSink, "direct_writer", property(lambda self: self if sum(chunk_sizes) <= 4 * MIB else None))
    monkeypatch.setattr(FileSink, "read_back", lambda *args: (sizes.append(len(args[2])), read_back(*args)))
    for _ in range(5):
        request_starts_after_break(folder, target, chunk_sizes)
    assert MIB // 2 in sizes


def request_starts_after_break(folder, target, chunk_sizes) -> list[int]:
    """The first byte of each request of a download whose second response breaks off."""
    chunk_sizes.clear()
    target.unlink(missing_ok=True)
    with HttpServer(folder, faults=[GOOD, ResponseFault(close_after_bytes=MIB + MIB // 2)]) as server:
        download(target, server)
    assert chunk_sizes
    return [int(request.headers["range"].partition("=")[2].partition("-")[0]) for request in server.requests]


def test_resume(folder, target, chunk_sizes):
    class Cancelled(BaseException): ...

    def cancel(done: int, total: int | None) -> None:
        if done > 8 * MIB:
            raise Cancelled

    with HttpServer(folder, bytes_per_s=20e6) as server:
        with pytest.raises(Cancelled):
            download(target, server, on_progress=cancel)
        result = download(target, server)
    assert sum(result.bytes_by_source.values()) <= len(DATA) - 6 * MIB  # a slow machine downloads a block or two twice


def test_full_disk(folder, target, chunk_sizes, monkeypatch):
    def fail_with_enospc(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", fail_with_enospc)
    with HttpServer(folder) as server, pytest.raises(FailedError) as caught:
        download(target, server)
    assert caught.value.kind == "disk_full"
