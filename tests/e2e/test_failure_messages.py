"""Each failure has its own exit code, a clear message in `why`, and leaves no sandbox."""

from __future__ import annotations

import io
import tarfile

import pytest

from packtrain.events import FAILURE_KINDS
from testbed.http_server import HttpServer
from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow

TOKEN = "demo-token-5b1c9e77"
ARCHIVE = "cifar-10-python.tar.gz"
WORKFLOW = """
name: failing
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}}
limits: {{maxAttempts: 1, grace: 2s{limits}}}
inputs:
  data: {{http: {{url: "{url}"{token}}}}}
expect: [model.pt]
steps:
  - name: train
    run: {{command: "{command}"}}
"""
GOOD = "cat $PACKTRAIN_INPUT_DATA/* > $PACKTRAIN_OUTPUT/model.pt"


def tar_of(name: str, data: bytes = b"x" * 100_000) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def run(tmp_path, content, kind, *, command=GOOD, token=True, url="", limits="", faults=()):
    served = tmp_path / "served"
    served.mkdir()
    (served / ARCHIVE).write_bytes(content)
    with HttpServer(served, token=TOKEN) as origin:
        workspace = Workspace(tmp_path, DEMO_TOKEN=TOKEN)
        token_line = ", token: '${env:DEMO_TOKEN}'" if token else ""
        address = url or f"{origin.url}/{ARCHIVE}"
        workspace.write_file(WORKFLOW.format(url=address, token=token_line, command=command, limits=limits))
        workspace.run("run", "workflow.yaml", "--offline", exit_code=FAILURE_KINDS[kind].exit_code)
    (explanation,) = workspace.run_json("why")["jobs"]
    assert kind in explanation["summary"]
    assert FAILURE_KINDS[kind].remedy == explanation["remedy"]
    assert explanation["exit_code"] == FAILURE_KINDS[kind].exit_code
    assert not list(workspace.run_folder().glob("jobs/*/attempts/*/sandbox"))
    assert not (workspace.run_folder() / "secrets").exists()
    assert not (workspace.run_folder() / "jobs/0/output/model.pt").exists()
    return explanation["summary"], workspace


def test_html_page_instead_of_archive(tmp_path):
    page = b"<!DOCTYPE html><html><head><title>Login required</title></head></html>"
    summary, _ = run(tmp_path, page, "unexpected_content")
    assert "Login required" in summary
    assert ARCHIVE in summary


def test_truncated_archive(tmp_path):
    import os

    complete = tar_of("data.bin", os.urandom(200_000))
    summary, _ = run(tmp_path, complete[: len(complete) // 2], "truncated")
    assert ARCHIVE in summary


def test_member_outside_of_folder(tmp_path):
    summary, _ = run(tmp_path, tar_of("../../x"), "archive_unsafe")
    assert "../../x" in summary
    assert not (tmp_path / "x").exists()


def test_archive_larger_than_disk_limit(tmp_path):
    summary, _ = run(tmp_path, tar_of("zeros", bytes(50_000_000)), "archive_too_large", limits=", disk: 10MB")
    assert "10" in summary


def test_missing_token(tmp_path):
    summary, _ = run(tmp_path, tar_of("data.bin"), "access_denied", token=False)
    assert "401" in summary
    assert "no token" in summary


def test_unknown_host(tmp_path):
    summary, _ = run(tmp_path, tar_of("data.bin"), "host_unknown", url=f"http://nohost.invalid/{ARCHIVE}", token=False)
    assert "nohost.invalid" in summary


def test_failed_step(tmp_path):
    summary, workspace = run(
        tmp_path, tar_of("data.bin"), "step_failed", command="echo no module named scipy >&2; exit 3"
    )
    assert "train" in summary
    assert "3" in summary
    assert "no module named scipy" in workspace.run("why")


def test_expected_file_missing(tmp_path):
    summary, _ = run(tmp_path, tar_of("data.bin"), "output_missing", command="touch $PACKTRAIN_OUTPUT/other")
    assert "model.pt" in summary
    assert "other" in summary


def test_script_that_hides_failure(tmp_path):
    """As in two of the published jobs: the download of weights failed, and `rm` set the exit code."""
    command = "echo 'OSError: [Errno 101] Network is unreachable' >&2; rm -rf data"
    summary, _ = run(tmp_path, tar_of("data.bin"), "network_unreachable", command=command)
    assert "model.pt" in summary and "Network is unreachable" in summary


def test_expected_file_empty(tmp_path):
    summary, _ = run(tmp_path, tar_of("data.bin"), "output_empty", command="touch $PACKTRAIN_OUTPUT/model.pt")
    assert "model.pt" in summary
