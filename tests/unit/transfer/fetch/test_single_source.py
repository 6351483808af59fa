"""One process at a time writes a target: another one is told so, and nobody's half file gets the name."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.transfer.engine.part_file import PartFile
from packtrain.transfer.engine.resume_log import DEFAULT_BLOCK_BYTES, ObjectIdentity
from testbed.http_server import HttpServer, ResponseFault
from tests.support.fetches import DATA, FILENAME, fetch_error, fetch_file, make_remote_file

FETCH = """
import sys
from pathlib import Path
from packtrain.plan import Location, RemoteFile
from packtrain.transfer.fetch import fetch
fetch(RemoteFile("data.bin", (Location(sys.argv[1]),)), Path(sys.argv[2]), str, retry_timeout_s=60,
      check_cancelled=lambda: None, on_progress=lambda done, total: None)
"""


def wait_for_part(target: Path) -> None:
    """Until somebody holds it: there is a moment between its making and the lock."""
    part, deadline = target.with_name(f"{FILENAME}.part"), time.monotonic() + 60
    while not (part.exists() and f":{part.stat().st_ino} " in Path("/proc/locks").read_text()):
        assert time.monotonic() < deadline, "nothing was begun"
        time.sleep(0.01)


@pytest.mark.parametrize("unsized", [False, True])
def test_the_second_is_told_and_the_first_goes_on(folder, target, unsized):
    stall = ResponseFault(stall_after_bytes=400_000, ignore_range=unsized, chunked=unsized)
    with HttpServer(folder, faults=[stall] * 99) as origin, ThreadPoolExecutor(1) as other:
        first = other.submit(fetch_file, make_remote_file(f"{origin.url}/{FILENAME}"), target)
        wait_for_part(target)
        error = fetch_error(make_remote_file((folder / FILENAME).as_uri()), target)
        assert (error.kind, str(target) in error.detail) == ("target_busy", True)
        origin.release_stalls()
        assert first.result(60).bytes == len(DATA)
    assert target.read_bytes() == DATA
    assert os.listdir(target.parent) == [FILENAME]


def test_who_comes_after_a_killed_process_goes_on(folder, target):
    with HttpServer(folder, faults=[ResponseFault(stall_after_bytes=650_000)] * 99) as origin:
        killed = subprocess.Popen([sys.executable, "-c", FETCH, f"{origin.url}/{FILENAME}", str(target)])
        wait_for_part(target)
        assert fetch_error(make_remote_file(f"{origin.url}/{FILENAME}"), target).kind == "target_busy"
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        origin.release_stalls()
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA


def begun(target: Path, data: bytes = DATA) -> PartFile:
    part = PartFile(target)
    part.begin(ObjectIdentity(len(data), "etag", None))
    part.write_block(0, memoryview(data))
    return part


def test_a_process_that_was_started_meanwhile_holds_nothing(target):
    part = begun(target)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, close_fds=False
    ):
        part.close()
        assert PartFile(target).resume(DEFAULT_BLOCK_BYTES, None) == {0}


def test_what_stands_there_by_now_is_not_taken_for_ours(target):
    """On a file system without locks."""
    part = begun(target)
    part.path.unlink()
    part.path.write_bytes(DATA[:1000])
    with pytest.raises(FailedError, match="another process") as caught:
        part.finish()
    assert caught.value.kind == "target_busy"
    assert not target.exists() and part.path.read_bytes() == DATA[:1000]


def test_a_file_system_without_locks_is_written_nevertheless(folder, target, monkeypatch):
    def refused(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with HttpServer(folder) as origin:
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA


def test_a_part_that_cannot_be_written_is_told(folder, target):
    begun(target).close()
    part = target.with_name(f"{FILENAME}.part")
    part.unlink()
    part.mkdir()
    assert str(part) in fetch_error(make_remote_file((folder / FILENAME).as_uri()), target).detail
