"""A person's folder, and servers to get from."""

from __future__ import annotations

import socket

import pytest

from testbed.http_server import HttpServer
from tests.support.cli_runs import Workspace
from tests.support.transfer_commands import DATA


@pytest.fixture
def desk(tmp_path):
    folder = tmp_path / "desk"
    folder.mkdir()
    return Workspace(folder)


@pytest.fixture
def served(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "data.bin").write_bytes(DATA)
    return folder


@pytest.fixture
def origin(served):
    with HttpServer(served) as made:
        yield made


@pytest.fixture
def dead():
    """The address of a port where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/data.bin"
