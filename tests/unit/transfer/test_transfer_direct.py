"""Blocks that go straight from the connection into the file: nobody computes a digest, nothing else changes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import socket
import sys
import termios
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Digest, Item, Ref
from packtrain.transfer import direct, disk, partial
from packtrain.transfer.connect import route_to
from packtrain.transfer.exchange import Answer
from packtrain.transfer.fetch import Fetched, fetch
from packtrain.transfer.ledger import seal_in, seal_of
from packtrain.transfer.wire import Wire
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


def test_blocks_go_straight_into_the_file(folder, target, moved):
    """How many depends on the machine: what comes in crumbs passes through memory."""
    with Origin(folder) as origin:
        done = run(target, origin)
    assert (done.retries, done.sha256) == (0, "")
    assert bool(moved) == POSSIBLE


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
    assert bool(moved) == POSSIBLE and sum(moved) < 6 * MIB
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


def send_crumbs(near: socket.socket, far: socket.socket, body: bytes) -> None:
    """The next when the one before was read."""
    for begin in range(0, len(body), 1000):
        while int.from_bytes(fcntl.ioctl(near, termios.FIONREAD, bytes(4)), sys.byteorder):
            os.sched_yield()
        far.sendall(body[begin : begin + 1000])


def test_a_block_that_begins_to_come_in_crumbs_is_moved_to_its_end():
    """From the next block on it passes through memory, which is cheaper then."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near, far = socket.create_connection(server.getsockname()), server.accept()[0]
    pipe, body, came = direct.Pipe(), os.urandom(40_000), b""
    with ThreadPoolExecutor(1) as other, near, far, contextlib.closing(pipe):
        far.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        wire = Wire(near)
        answer = Answer(wire, wire.head(), route_to("http://there/data.bin"), "GET", trusted=False)
        move = answer.direct
        assert bool(move) == POSSIBLE
        other.submit(send_crumbs, near, far, body)
        while len(came) < len(body):
            most = min(20_000, len(body) - len(came))
            came += os.read(pipe.exit, move(pipe.entry, most)) if move else answer.read(most)
        assert answer.direct is None
    assert came == body


def test_what_tls_has_passed_on_goes_through_memory():
    near, far = socket.socketpair()
    with near, far:
        assert not Wire(near).direct
