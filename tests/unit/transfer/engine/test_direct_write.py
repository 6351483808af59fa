"""Blocks that go into the file piece by piece, as they come: nobody computes a digest, nothing else changes."""

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
def moved(monkeypatch) -> list[int]:
    """How many bytes went into the file piece by piece; small files are not hashed here, so that they may."""
    counts: list[int] = []
    move = FileSink.write_chunk

    def counted(self: FileSink, index: int, got: int, piece: memoryview) -> None:
        move(self, index, got, piece)
        counts.append(len(piece))

    monkeypatch.setattr(FileSink, "write_chunk", counted)
    monkeypatch.setattr(file_sink, "_MAX_ALWAYS_HASHED_BYTES", 0)
    return counts


def run(target: Path, *origins: HttpServer, digest=None, progress=lambda d, t: None) -> FetchResult:
    item = RemoteFile("data.bin", tuple(Location(f"{origin.url}/data.bin") for origin in origins), digest=digest)
    done = fetch(item, target, str, retry_timeout_s=20.0, check_cancelled=lambda: None, on_progress=progress)
    assert target.read_bytes() == DATA
    return done


def test_all_but_the_first_block_goes_into_the_file_in_pieces(folder, target, moved):
    """The first is looked at as a whole; on a busy machine a few others come a second time, as a whole, too."""
    with HttpServer(folder) as origin:
        done = run(target, origin)
    assert done.sha256 == ""
    assert len(DATA) // 2 < sum(moved) <= len(DATA) - MIB


def test_with_a_digest_every_byte_is_seen(folder, target, moved):
    with HttpServer(folder) as origin:
        run(target, origin, digest=Digest("sha256", hashlib.sha256(DATA).hexdigest()))
    assert not moved


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
def test_one_bad_answer_among_many(folder, target, moved, fault):
    with HttpServer(folder, faults=[GOOD, fault, fault]) as origin:
        done = run(target, origin)
    assert moved and done.wasted_bytes < len(DATA) // 2


def test_a_block_begun_in_the_file_is_gone_on_with(folder, target, moved):
    """The second answer breaks off in the middle of a block.

    On a busy machine another connection may take the block over, which is as good, but not what is meant here."""
    begins = [begin for _ in range(5) for begin in begins_after_a_break(folder, target, moved)]
    assert any(begin % MIB == MIB // 2 for begin in begins), "what was here of the block was fetched again"


def test_a_block_begun_in_the_file_is_read_back_when_a_digest_is_wanted_after_all(folder, target, moved, monkeypatch):
    """As when a server states one while the file arrives: here once the second answer's second block was begun."""
    read_back, seen = FileSink.read_back, []
    monkeypatch.setattr(FileSink, "direct_writer", property(lambda self: self if sum(moved) <= 4 * MIB else None))
    monkeypatch.setattr(FileSink, "read_back", lambda *given: (seen.append(len(given[2])), read_back(*given)))
    for _ in range(5):
        begins_after_a_break(folder, target, moved)
    assert MIB // 2 in seen


def begins_after_a_break(folder, target, moved) -> list[int]:
    moved.clear()
    target.unlink(missing_ok=True)
    with HttpServer(folder, faults=[GOOD, ResponseFault(close_after_bytes=MIB + MIB // 2)]) as origin:
        run(target, origin)
    assert moved
    return [int(seen.headers["range"].partition("=")[2].partition("-")[0]) for seen in origin.requests]


def test_a_new_process_goes_on(folder, target, moved):
    class Leave(BaseException): ...

    def leave(done: int, total: int | None) -> None:
        if done > 8 * MIB:
            raise Leave

    with HttpServer(folder, bytes_per_s=20e6) as origin:
        with pytest.raises(Leave):
            run(target, origin, progress=leave)
        done = run(target, origin)
    assert sum(done.bytes_by_source.values()) <= len(DATA) - 6 * MIB  # a slow machine fetches a block or two twice


def test_a_full_disk_is_told(folder, target, moved, monkeypatch):
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with HttpServer(folder) as origin, pytest.raises(FailedError) as caught:
        run(target, origin)
    assert caught.value.kind == "disk_full"
