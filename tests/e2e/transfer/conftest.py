"""A folder in which commands run, and servers to download from."""

from __future__ import annotations

import socket

import pytest

from testbed.http_server import HttpServer
from tests.support.cli_runs import Workspace
from tests.support.transfer_commands import DATA


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return Workspace(folder)


@pytest.fixture
def served(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "data.bin").write_bytes(DATA)
    return folder


@pytest.fixture
def server(served):
    with HttpServer(served) as server:
        yield server


@pytest.fixture
def dead_url():
    """A URL with a port that no server listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/data.bin"
