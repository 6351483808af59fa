"""Digests in a workflow: the agent checks them, and slow ones are refused."""

from __future__ import annotations

import google_crc32c
import pytest

from packtrain.transfer.integrity.crc32c import MAX_PURE_PYTHON_BYTES
from testbed.http_server import HttpServer
from tests.support.cli_runs import Workspace

DATA = bytes(i * 7919 % 251 for i in range(2_500_000))
WORKFLOW = """
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}}
limits: {{maxAttempts: 1}}
input:
  http:
    url: {url}/data.bin
    crc32c: {crc32c}
steps: [{{run: {{command: test -s $STORAGE_PATH/input/data.bin}}}}]
"""


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return Workspace(folder)


@pytest.fixture
def http_server(tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "data.bin").write_bytes(DATA)
    with HttpServer(tmp_path / "served") as server:
        yield server


def write_workflow(workspace, http_server, crc32c="00000000"):
    return workspace.write_file(WORKFLOW.format(url=http_server.url, crc32c=crc32c))


def grow(http_server):
    """Make the file too large for a crc32c in pure Python."""
    with open(http_server.folder / "data.bin", "r+b") as file:
        file.truncate(MAX_PURE_PYTHON_BYTES + 1)


@pytest.mark.slow
def test_agent_checks_digest(workspace, http_server):
    workspace.run("run", write_workflow(workspace, http_server, f"{google_crc32c.value(DATA):08x}"))
    workspace.run("run", write_workflow(workspace, http_server), exit_code=33)


@pytest.mark.parametrize("command", [["plan"], ["run"], ["run", "--json"]])
def test_large_file_is_refused_before_submission(workspace, http_server, command):
    grow(http_server)
    workspace.run(*command, write_workflow(workspace, http_server), exit_code=2)
    message = "workflow.yaml:7:13: data.bin has 1.1 GB, but a job can compute the crc32c of at most 1 GiB"
    assert f"{message}; give its sha256 or md5 instead" in " ".join(workspace.stderr.split())
    assert not (workspace.folder / ".packtrain").exists()


@pytest.mark.parametrize("exists", [False, True])
def test_get_refuses_it_without_module(workspace, http_server, tmp_path, exists):
    grow(http_server)
    for name in ("google_crc32c", "crc32c", "awscrt"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not here')")
    workspace.environment["PYTHONPATH"] = str(tmp_path)
    if exists:
        (workspace.folder / "data.bin").symlink_to(http_server.folder / "data.bin")
    workspace.run("get", f"{http_server.url}/data.bin", "--crc32c", "00000000", exit_code=18)
    assert "takes too long without a module such as google-crc32c; state its sha256 or md5" in workspace.stderr
    assert [path.name for path in workspace.folder.iterdir()] == (["data.bin"] if exists else [])


@pytest.mark.slow
def test_agent_refuses_large_file(workspace, http_server):
    grow(http_server)
    workspace.run("run", "--offline", write_workflow(workspace, http_server), exit_code=18)
    assert http_server.sent_bytes < MAX_PURE_PYTHON_BYTES // 10


REPAIRED = """
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}}
limits: {{maxAttempts: 1}}
input:
  http:
    urls: ['{corrupt}/data.bin', '{url}/data.bin']
    checksums: {url}/data.bin.checksums.json
output: {{file: {{path: results}}}}
steps: [{{run: {{command: cp $STORAGE_PATH/input/data.bin $DEEPSQUARE_OUTPUT}}}}]
"""


@pytest.mark.slow
def test_bad_block_is_repaired_from_mirror(workspace, http_server, tmp_path):
    (tmp_path / "corrupt").mkdir()
    (tmp_path / "corrupt" / "data.bin").write_bytes(DATA[:1_500_000] + b"?" + DATA[1_500_001:])
    workspace.run("checksums", http_server.folder / "data.bin")
    with HttpServer(tmp_path / "corrupt") as corrupt:
        workspace.run("run", workspace.write_file(REPAIRED.format(url=http_server.url, corrupt=corrupt.url)))
    assert (workspace.folder / "results" / "data.bin").read_bytes() == DATA
