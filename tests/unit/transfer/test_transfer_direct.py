"""Blocks that go straight from the connection into the file: nobody computes a digest, nothing else changes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Digest, Item, Ref
from packtrain.transfer import direct, disk, partial
from packtrain.transfer.connect import route_to
from packtrain.transfer.exchange import Answer
from packtrain.transfer.fetch import Fetched, fetch
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
    assert done.sha256 == ""
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
    assert bool(moved) == POSSIBLE and done.wasted_bytes < len(DATA) // 2


def test_a_block_begun_in_the_file_is_ended_in_memory(folder, target, moved):
    """The second answer breaks off in the middle of a block; what follows is chunked, so it passes through memory.

    On a busy machine another connection may take the block over, which is as good, but not what is meant here."""
    begins = [begin for _ in range(5) for begin in begins_after_a_break(folder, target, moved)]
    assert any(begin % MIB == MIB // 2 for begin in begins), "what was here of the block was fetched again"


def begins_after_a_break(folder, target, moved) -> list[int]:
    moved.clear()
    target.unlink(missing_ok=True)
    broken = Fault(close_after=MIB + MIB // 2)
    with Origin(folder, faults=[GOOD, broken, *[Fault(chunked=True)] * 99]) as origin:
        run(target, origin)
    assert bool(moved) == POSSIBLE and sum(moved) < 6 * MIB
    return [int(seen.headers["range"].partition("=")[2].partition("-")[0]) for seen in origin.seen]


def test_a_new_process_goes_on(folder, target, moved):
    class Leave(BaseException): ...

    def leave(done: int, total: int | None) -> None:
        if done > 8 * MIB:
            raise Leave

    with Origin(folder, bytes_per_s=20e6) as origin:
        with pytest.raises(Leave):
            run(target, origin, progress=leave)
        done = run(target, origin)
    assert sum(done.by_source.values()) <= len(DATA) - 6 * MIB  # a slow machine fetches a block or two twice


def test_a_full_disk_is_told(folder, target, moved, monkeypatch):
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(partial, "into_file", full)
    monkeypatch.setattr(os, "pwrite", full)
    with Origin(folder) as origin, pytest.raises(FailedError) as caught:
        run(target, origin)
    assert caught.value.kind == "disk_full"


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


def test_a_pipe_smaller_than_what_came_with_the_header_is_no_trap():
    """A user with very many pipes gets such small ones."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near, far = socket.create_connection(server.getsockname()), server.accept()[0]
    pipe, body, came = direct.Pipe(), os.urandom(40_000), b""
    fcntl.fcntl(pipe.entry, direct._SET_SIZE, 8192)
    with near, far, contextlib.closing(pipe):
        far.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        while int.from_bytes(fcntl.ioctl(near, termios.FIONREAD, bytes(4)), sys.byteorder) <= len(body):
            os.sched_yield()
        wire = Wire(near)
        wire.head()
        while len(came) < len(body):
            [count] = ended(wire.move, pipe.entry, len(body) - len(came))
            came += os.read(pipe.exit, count)
    assert came == body


def ended(call: Callable[..., int], *arguments: int) -> list[int]:
    """What it gives, or nothing if it hangs."""
    given: list[int] = []
    thread = threading.Thread(target=lambda: given.append(call(*arguments)), daemon=True)
    thread.start()
    thread.join(30)
    return given


# The system call answers with an errno: always, or only into a file (which has a position), as on some file systems.
REFUSING = """
import ctypes, os, struct, sys
number = {"x86_64": 275, "aarch64": 76}[os.uname().machine]
always, code = sys.argv[1] == "always", int(sys.argv[2])
lines = [
    (0x20, 0, 0, 0), (0x15, 0, 4, number),  # another call
    (0x20, 0, 0, 16 + 8 * 3), (0x15, 0, 1, 0), (0x05, 0, 0, 0 if always else 1),  # without a position
    (0x06, 0, 0, 0x00050000 | code), (0x06, 0, 0, 0x7FFF0000),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
program = ctypes.create_string_buffer(struct.pack("HP", len(lines), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0, os.strerror(ctypes.get_errno())
from pathlib import Path
from packtrain.plan import Item, Ref
from packtrain.transfer import direct, disk
from packtrain.transfer.fetch import fetch
disk._ALWAYS_HASHED = 0
fetch(Item("data.bin", (Ref(sys.argv[3]),)), Path(sys.argv[4]), str, patience_s=20, stop=lambda: None,
      progress=lambda done, total: None)
print(direct.possible())
"""


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EPERM])
@pytest.mark.parametrize("where", ["always", "file"])
def test_a_kernel_or_a_file_system_that_refuses_is_done_without(folder, target, where, code):
    with Origin(folder) as origin:
        words = [sys.executable, "-c", REFUSING, where, str(code), f"{origin.url}/data.bin", str(target)]
        told = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert told.stdout == "False\n", told.stderr
    assert target.read_bytes() == DATA
