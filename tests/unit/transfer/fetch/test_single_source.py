"""Only one process at a time downloads to a target; a second one fails."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.transfer.engine.part_file import PartFile
from packtrain.transfer.engine.resume_log import DEFAULT_BLOCK_BYTES, ObjectIdentity
from testbed.http_server import HttpServer, ResponseFault
from tests.support.fetches import DATA, FILENAME, fetch_error, fetch_file, make_remote_file
from tests.support.waiting import wait_until

FETCH_PROGRAM = """
import sys
from pathlib import Path
from packtrain.plan import Location, RemoteFile
from packtrain.transfer.fetch import fetch
fetch(RemoteFile("data.bin", (Location(sys.argv[1]),)), Path(sys.argv[2]), str, retry_timeout_s=60,
      check_cancelled=lambda: None, on_progress=lambda done, total: None)
"""


def wait_for_part(target: Path) -> None:
    """Wait until the partial file is locked, which happens shortly after its creation."""
    part = target.with_name(f"{FILENAME}.part")
    wait_until(lambda: part.exists() and f":{part.stat().st_ino} " in Path("/proc/locks").read_text())


@pytest.mark.parametrize("unsized", [False, True])
def test_second_download_fails(folder, target, unsized):
    stall = ResponseFault(stall_after_bytes=400_000, ignore_range=unsized, chunked=unsized)
    with HttpServer(folder, faults=[stall] * 99) as server, ThreadPoolExecutor(1) as executor:
        first = executor.submit(fetch_file, make_remote_file(f"{server.url}/{FILENAME}"), target)
        wait_for_part(target)
        error = fetch_error(make_remote_file((folder / FILENAME).as_uri()), target)
        assert (error.kind, str(target) in error.detail) == ("target_busy", True)
        server.release_stalls()
        assert first.result(60).bytes == len(DATA)
    assert target.read_bytes() == DATA
    assert os.listdir(target.parent) == [FILENAME]


def test_download_after_killed_process(folder, target):
    with HttpServer(folder, faults=[ResponseFault(stall_after_bytes=650_000)] * 99) as server:
        process = subprocess.Popen([sys.executable, "-c", FETCH_PROGRAM, f"{server.url}/{FILENAME}", str(target)])
        wait_for_part(target)
        assert fetch_error(make_remote_file(f"{server.url}/{FILENAME}"), target).kind == "target_busy"
        process.send_signal(signal.SIGKILL)
        process.wait()
        server.release_stalls()
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA


def start_part(target: Path, data: bytes = DATA) -> PartFile:
    part = PartFile(target)
    part.begin(ObjectIdentity(len(data), "etag", None))
    part.write_block(0, memoryview(data))
    return part


def test_child_process_does_not_hold_lock(target):
    part = start_part(target)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, close_fds=False
    ):
        part.close()
        assert PartFile(target).resume(DEFAULT_BLOCK_BYTES, None) == {0}


def test_replaced_part_is_detected(target):
    """On a file system without locks, another process may have replaced the partial file."""
    part = start_part(target)
    part.path.unlink()
    part.path.write_bytes(DATA[:1000])
    with pytest.raises(FailedError, match="another process") as caught:
        part.finish()
    assert caught.value.kind == "target_busy"
    assert not target.exists() and part.path.read_bytes() == DATA[:1000]


def test_file_system_without_locks(folder, target, monkeypatch):
    def fail_with_enolck(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail_with_enolck)
    with HttpServer(folder) as server:
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA


def test_part_cannot_be_written(folder, target):
    start_part(target).close()
    part = target.with_name(f"{FILENAME}.part")
    part.unlink()
    part.mkdir()
    assert str(part) in fetch_error(make_remote_file((folder / FILENAME).as_uri()), target).detail
