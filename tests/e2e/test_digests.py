"""Digests in a workflow: the agent checks them, and those that no job can compute are refused."""

from __future__ import annotations

import hashlib

import pytest

from testbed.http_server import HttpServer
from tests.support.cli_runs import Workspace

DATA = bytes(i * 7919 % 251 for i in range(2_500_000))
WORKFLOW = """
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}}
limits: {{maxAttempts: 1}}
input:
  http:
    url: {url}/data.bin
    {digest}
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


def write_workflow(workspace, http_server, digest="crc32c: '00000000'"):
    return workspace.write_file(WORKFLOW.format(url=http_server.url, digest=digest))


@pytest.mark.slow
def test_agent_checks_digest(workspace, http_server):
    workspace.run("run", write_workflow(workspace, http_server, f"md5: {hashlib.md5(DATA).hexdigest()}"))
    workspace.run("run", write_workflow(workspace, http_server, f"md5: {'0' * 32}"), exit_code=33)


@pytest.mark.parametrize("command", [["check"], ["plan"], ["run"], ["run", "--json"]])
def test_crc32c_is_refused_before_submission(workspace, http_server, command):
    out = workspace.run(*command, write_workflow(workspace, http_server), exit_code=2)
    message = "workflow.yaml:7:13: a job cannot check the crc32c of data.bin, because Python has no crc32c"
    assert f"{message}; give its sha256 or md5 instead" in " ".join((out + workspace.stderr).split())
    assert not http_server.requests
    assert not (workspace.folder / ".packtrain").exists()


@pytest.mark.parametrize("exists", [False, True])
def test_get_refuses_crc32c_without_module(workspace, http_server, tmp_path, exists):
    for name in ("google_crc32c", "crc32c", "awscrt"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not here')")
    workspace.environment["PYTHONPATH"] = str(tmp_path)
    if exists:
        (workspace.folder / "data.bin").symlink_to(http_server.folder / "data.bin")
    workspace.run("get", f"{http_server.url}/data.bin", "--crc32c", "00000000", exit_code=18)
    assert "no module such as google-crc32c is installed; state its sha256 or md5 instead" in workspace.stderr
    assert [path.name for path in workspace.folder.iterdir()] == (["data.bin"] if exists else [])


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
