"""`packtrain get` that is killed, interrupted or looked at."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pty
import signal
import sys

import pytest

from testbed.http_server import HttpServer
from tests.support.transfer_commands import list_names, serve_large_file

BLOCK, CONNECTIONS = 1 << 20, 16  # what a kill may cost: a block of each connection


def start_and_await_bytes(desk, origin, count, *arguments):
    process = desk.start(*arguments)
    desk.wait_for(lambda: origin.sent_bytes > count or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return process


def test_goes_on_after_a_kill(desk, served):
    data = serve_large_file(served, 30_000_000)
    with HttpServer(served, bytes_per_s=2e6) as origin:
        arguments = ("get", f"{origin.url}/large.bin", "--sha256", hashlib.sha256(data).hexdigest())
        process = start_and_await_bytes(desk, origin, 15_000_000, *arguments)
        process.kill()
        process.communicate()
        assert not (desk.folder / "large.bin").exists()
        origin.bytes_per_s = None
        desk.run(*arguments)
        assert (desk.folder / "large.bin").read_bytes() == data
        assert list_names(desk.folder) == ["large.bin"]
        assert origin.sent_bytes <= len(data) + CONNECTIONS * BLOCK


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_goes_on_after_an_interruption(desk, served, number):
    data = serve_large_file(served)
    with HttpServer(served, bytes_per_s=1e6) as origin:
        process = start_and_await_bytes(desk, origin, 1_000_000, "get", f"{origin.url}/large.bin")
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 130
        assert "run the same command again to resume" in err
        origin.bytes_per_s = None
        desk.run("get", f"{origin.url}/large.bin")
        assert (desk.folder / "large.bin").read_bytes() == data


# On a terminal


def test_a_live_bar_on_a_terminal(desk, served):
    data = serve_large_file(served, 2_000_000)
    with HttpServer(served, bytes_per_s=1e6) as origin:
        shown = on_terminal(desk, "get", f"{origin.url}/large.bin")
        assert (desk.folder / "large.bin").read_bytes() == data
    assert "of 2.0 MB" in shown
    assert "B/s" in shown
    assert "left" in shown
    assert "not verified" in shown


def on_terminal(desk, *arguments):
    """What a person would see, escapes and all."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(desk.folder)
        command = [sys.executable, "-m", "packtrain", *arguments]
        os.execve(sys.executable, command, {**desk.environment, "TERM": "xterm", "COLUMNS": "120"})
    shown = b""
    with contextlib.suppress(OSError):  # how Linux tells that the other side has closed
        while part := os.read(terminal, 65536):
            shown += part
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, shown
    return shown.decode()
