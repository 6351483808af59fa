"""`packtrain get` that is killed or interrupted, and its progress bar on a terminal."""

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

BLOCK, CONNECTIONS = 1 << 20, 16  # a kill may cost one block per connection


def start_and_wait_for_bytes(workspace, server, n_bytes, *arguments):
    process = workspace.start(*arguments)
    workspace.wait_for(lambda: server.sent_bytes > n_bytes or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return process


def test_resume_after_kill(workspace, served):
    data = serve_large_file(served, 30_000_000)
    with HttpServer(served, bytes_per_s=2e6) as server:
        arguments = ("get", f"{server.url}/large.bin", "--sha256", hashlib.sha256(data).hexdigest())
        process = start_and_wait_for_bytes(workspace, server, 15_000_000, *arguments)
        process.kill()
        process.communicate()
        assert not (workspace.folder / "large.bin").exists()
        server.bytes_per_s = None
        workspace.run(*arguments)
        assert (workspace.folder / "large.bin").read_bytes() == data
        assert list_names(workspace.folder) == ["large.bin"]
        assert server.sent_bytes <= len(data) + CONNECTIONS * BLOCK


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_resume_after_signal(workspace, served, signal_number):
    data = serve_large_file(served)
    with HttpServer(served, bytes_per_s=1e6) as server:
        process = start_and_wait_for_bytes(workspace, server, 1_000_000, "get", f"{server.url}/large.bin")
        process.send_signal(signal_number)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 130
        assert "run the same command again to resume" in err
        server.bytes_per_s = None
        workspace.run("get", f"{server.url}/large.bin")
        assert (workspace.folder / "large.bin").read_bytes() == data


# On a terminal


def test_progress_bar(workspace, served):
    data = serve_large_file(served, 2_000_000)
    with HttpServer(served, bytes_per_s=1e6) as server:
        output = run_on_terminal(workspace, "get", f"{server.url}/large.bin")
        assert (workspace.folder / "large.bin").read_bytes() == data
    assert "of 2 MB" in output
    assert "B/s" in output
    assert "left" in output
    assert "not verified" in output


def run_on_terminal(workspace, *arguments):
    """The output of a command on a terminal, with escape sequences."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(workspace.folder)
        command = [sys.executable, "-m", "packtrain", *arguments]
        os.execve(sys.executable, command, {**workspace.environment, "TERM": "xterm", "COLUMNS": "120"})
    output = b""
    with contextlib.suppress(OSError):  # Linux reports that the other side has closed
        while part := os.read(terminal, 65536):
            output += part
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, output
    return output.decode()
