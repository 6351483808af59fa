"""Each way to fail ends with its own exit code, one clear sentence in `why`, and a cleaned sandbox."""

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
        desk = Workspace(tmp_path, DEMO_TOKEN=TOKEN)
        said = ", token: '${env:DEMO_TOKEN}'" if token else ""
        address = url or f"{origin.url}/{ARCHIVE}"
        desk.write_file(WORKFLOW.format(url=address, token=said, command=command, limits=limits))
        desk.run("run", "workflow.yaml", "--offline", exit_code=FAILURE_KINDS[kind].exit_code)
    (told,) = desk.run_json("why")["jobs"]
    assert kind in told["summary"]
    assert FAILURE_KINDS[kind].remedy == told["remedy"]
    assert told["exit_code"] == FAILURE_KINDS[kind].exit_code
    assert not list(desk.run_folder().glob("jobs/*/attempts/*/sandbox"))
    assert not (desk.run_folder() / "secrets").exists()
    assert not (desk.run_folder() / "jobs/0/output/model.pt").exists()
    return told["summary"], desk


def test_html_page_instead_of_the_archive(tmp_path):
    page = b"<!DOCTYPE html><html><head><title>Login required</title></head></html>"
    what, _ = run(tmp_path, page, "unexpected_content")
    assert "Login required" in what
    assert ARCHIVE in what


def test_truncated_archive(tmp_path):
    import os

    whole = tar_of("data.bin", os.urandom(200_000))
    what, _ = run(tmp_path, whole[: len(whole) // 2], "truncated")
    assert ARCHIVE in what


def test_member_that_leaves_the_folder(tmp_path):
    what, _ = run(tmp_path, tar_of("../../x"), "archive_unsafe")
    assert "../../x" in what
    assert not (tmp_path / "x").exists()


def test_more_than_the_promised_disk(tmp_path):
    what, _ = run(tmp_path, tar_of("zeros", bytes(50_000_000)), "archive_too_large", limits=", disk: 10MB")
    assert "10" in what


def test_missing_token(tmp_path):
    what, _ = run(tmp_path, tar_of("data.bin"), "access_denied", token=False)
    assert "401" in what
    assert "no token" in what


def test_unknown_host(tmp_path):
    what, _ = run(tmp_path, tar_of("data.bin"), "host_unknown", url=f"http://nohost.invalid/{ARCHIVE}", token=False)
    assert "nohost.invalid" in what


def test_step_that_fails(tmp_path):
    what, desk = run(tmp_path, tar_of("data.bin"), "step_failed", command="echo no module named scipy >&2; exit 3")
    assert "train" in what
    assert "3" in what
    assert "no module named scipy" in desk.run("why")


def test_expected_file_missing(tmp_path):
    what, _ = run(tmp_path, tar_of("data.bin"), "output_missing", command="touch $PACKTRAIN_OUTPUT/other")
    assert "model.pt" in what
    assert "other" in what


def test_a_script_that_hides_why_its_program_failed(tmp_path):
    """Two of the published jobs: no network for the weights, and an exit code of `rm`."""
    command = "echo 'OSError: [Errno 101] Network is unreachable' >&2; rm -rf data"
    what, _ = run(tmp_path, tar_of("data.bin"), "network_unreachable", command=command)
    assert "model.pt" in what and "Network is unreachable" in what


def test_expected_file_empty(tmp_path):
    what, _ = run(tmp_path, tar_of("data.bin"), "output_empty", command="touch $PACKTRAIN_OUTPUT/model.pt")
    assert "model.pt" in what
