"""Runs whose outputs are uploaded to a URL, as DeepSquare's published workflows do."""

from __future__ import annotations

import pytest

from testbed.http_server import HttpServer, ResponseFault
from tests.support.cli_runs import Workspace

WORKFLOW = """
resources: {{tasks: 1, gpus: 0, cpusPerTask: 1, memPerCpu: 64}}
output: {{http: {{url: '{url}/'}}, retryTimeout: 1s}}
continuousOutputSync: true
steps:
  - run: {{command: 'echo x >> "{count}"; echo result > $DEEPSQUARE_OUTPUT/result.txt'}}
"""


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


def test_link_is_shown(workspace, tmp_path):
    served = tmp_path / "served"
    with HttpServer(served, writable=True) as server:
        server.upload_answer = f"{server.url}/elsewhere/result.txt\n"
        workspace.write_file(WORKFLOW.format(url=server.url, count=tmp_path / "count"))
        workspace.run("run", "workflow.yaml")
        assert (served / "result.txt").read_text() == "result\n"
        (output,) = workspace.run_json("outputs")
        assert output == {"job": "0", "name": "result.txt", "bytes": 7, "url": f"{server.url}/elsewhere/result.txt"}
        (served / "elsewhere").mkdir()
        (served / "result.txt").rename(served / "elsewhere/result.txt")
        workspace.run("outputs", "--copy", "copies")
    assert (tmp_path / "copies/result.txt").read_text() == "result\n"


def test_answer_is_shown(workspace, tmp_path):
    """An answer that is no link may name the upload, for example by an id."""
    with HttpServer(tmp_path / "served", writable=True) as server:
        server.upload_answer = "stored as a1b2c3\n"
        workspace.write_file(WORKFLOW.format(url=server.url, count=tmp_path / "count"))
        workspace.run("run", "workflow.yaml")
        assert f"{server.url}/result.txt" in (out := workspace.run("outputs"))
    assert "the server answered: stored as a1b2c3" in out


def test_refused_upload_does_not_repeat_the_steps(workspace, tmp_path):
    with HttpServer(tmp_path / "served", writable=True, faults=[ResponseFault(status=404)] * 999) as server:
        workspace.write_file(WORKFLOW.format(url=server.url, count=tmp_path / "count"))
        workspace.run("run", "workflow.yaml", exit_code=41)
    assert (tmp_path / "count").read_text() == "x\n"
    workspace.run("outputs", exit_code=None)
    assert "has no outputs, because it did not succeed; `packtrain why " in workspace.stderr


def test_suggested_commands_repeat_the_options(workspace):
    workspace.write_file(WORKFLOW.format(url="https://transfer.example", count="count"))
    options = "--no-container --no-gpu --expect 'a b'"
    out = workspace.run("check", "workflow.yaml", "--no-gpu", "--no-container", "--expect", "a b")
    assert f"packtrain plan workflow.yaml {options} " in out
    assert f"packtrain run workflow.yaml {options} " in out
    out = workspace.run("plan", "workflow.yaml", "--no-gpu")
    assert "packtrain run workflow.yaml --no-gpu " in out
