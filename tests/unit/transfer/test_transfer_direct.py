"""Blocks that go straight from the connection into the file: nobody computes a digest, nothing else changes."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Digest, Item, Ref
from packtrain.transfer import direct, disk, partial
from packtrain.transfer.fetch import Fetched, fetch
from packtrain.transfer.ledger import seal_in, seal_of
from testbed.origin import Fault, Origin

MIB = 1 << 20
DATA = os.urandom(24 * MIB + 77)
GOOD = None

POSSIBLE = hasattr(os, "splice")  # else (Python 3.9) all goes through memory, and is as right


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
    """How many bytes went straight into the file; small files are not hashed here, so that they may."""
    counts: list[int] = []

    def counted(pipe: int, file: int, position: int, count: int) -> None:
        direct.into_file(pipe, file, position, count)
        counts.append(count)

    monkeypatch.setattr(partial, "into_file", counted)
    monkeypatch.setattr(disk, "_ALWAYS_HASHED", 0)
    return counts


def run(target: Path, *origins: Origin, digest=None, progress=lambda d, t: None) -> Fetched:
    item = Item("data.bin", tuple(Ref(f"{origin.url}/data.bin") for origin in origins), digest=digest)
    done = fetch(item, target, str, patience_s=20.0, stop=lambda: None, progress=progress)
    assert target.read_bytes() == DATA
    return done


def test_most_goes_straight_into_the_file(folder, target, moved):
    with Origin(folder) as origin:
        done = run(target, origin)
    assert (done.retries, done.sha256) == (0, "")
    assert (sum(moved) > len(DATA) // 2) == POSSIBLE


def test_with_a_digest_every_byte_is_seen(folder, target, moved):
    with Origin(folder) as origin:
        run(target, origin, digest=Digest("sha256", hashlib.sha256(DATA).hexdigest()))
    assert not moved


FAULTS = [
    Fault(close_after=MIB + 5),
    Fault(close_after=0),
    Fault(stall_after=MIB + 5),
    Fault(truncate=100_000),
    Fault(status=503),
    Fault(no_range=True),
    Fault(chunked=True),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_one_bad_answer_among_many(folder, target, moved, fault):
    with Origin(folder, faults=[GOOD, fault, fault]) as origin:
        done = run(target, origin)
    assert bool(moved) == POSSIBLE and done.wasted_bytes <= 3 * MIB


def test_a_block_begun_in_the_file_is_ended_in_memory(folder, target, moved):
    """The second answer breaks off in the middle of a block; what follows is chunked, so it passes through memory."""
    broken = Fault(close_after=MIB + MIB // 2)
    with Origin(folder, faults=[GOOD, broken, *[Fault(chunked=True)] * 99]) as origin:
        done = run(target, origin)
    assert (0 < sum(moved) < 6 * MIB) == POSSIBLE
    assert done.wasted_bytes < MIB // 2


def test_a_new_process_goes_on(folder, target, moved):
    class Leave(BaseException): ...

    def leave(done: int, total: int | None) -> None:
        if done > 8 * MIB:
            raise Leave

    with Origin(folder, bytes_per_s=20e6) as origin:
        with pytest.raises(Leave):
            run(target, origin, progress=leave)
        done = run(target, origin)
    assert sum(done.by_source.values()) <= len(DATA) - 8 * MIB


def test_a_full_disk_is_told(folder, target, moved, monkeypatch):
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(partial, "into_file", full)
    monkeypatch.setattr(os, "pwrite", full)
    with Origin(folder) as origin, pytest.raises(FailedError) as caught:
        run(target, origin)
    assert caught.value.kind == "disk_full"


@pytest.mark.parametrize("length", [0, 1, 4096, 4097, 1 << 18, (1 << 18) + 1, MIB - 1, MIB])
def test_the_seal_is_the_same_in_memory_and_in_the_file(tmp_path, length):
    (tmp_path / "file").write_bytes(b"before" + DATA[:length] + b"behind")
    with open(tmp_path / "file", "rb") as file:
        assert seal_in(file.fileno(), 6, length) == seal_of(memoryview(DATA)[:length])
