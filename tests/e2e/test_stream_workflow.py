"""Workflows with `mode: stream` on the local engine: the index is built first, and failures have the right kind."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from collections import Counter

import pytest

from packtrain.events import kinds
from testbed import apptainer, pytorch_image
from testbed.http_server import HttpServer
from testbed.s3 import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server
from tests.support.cli_runs import Workspace
from tests.support.nested_archives import CLASS_NAMES, add_member, write_nested_tar
from tests.support.programs import stream_training, streaming_program

pytestmark = pytest.mark.slow

WORKFLOW = """
name: reading
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}}
limits: {{maxAttempts: 1, {limits}}}
inputs:
  data: {{{source}, mode: stream}}
{more}
expect: [seen.json]
steps: [{{name: read, run: {{command: "{python} {program} {options}"}}}}]
"""

S3_SOURCE = (
    f"s3: {{{{bucketUrl: s3://{BUCKET}, region: {REGION}, endpointUrl: {{endpoint}}, path: {{path}}, "
    "accessKeyId: '${{env:MY_KEY}}', secretAccessKey: '${{env:MY_SECRET}}'}}"
)


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "home").mkdir()
    return Workspace(tmp_path / "home", XDG_CACHE_HOME=str(tmp_path / "cache"))


@pytest.fixture
def origin(tmp_path, workspace):
    with HttpServer(tmp_path / "served") as origin:
        yield origin


def write_workflow(workspace, source, options="", more="", limits="disk: 3GB"):
    program = {"python": sys.executable, "program": streaming_program.__file__}
    return workspace.write_file(WORKFLOW.format(source=source, options=options, more=more, limits=limits, **program))


def read_report(workspace):
    return json.loads((workspace.run_folder() / "jobs/0/output/seen.json").read_text())


def read_failure(workspace):
    (ended,) = workspace.read_events(kinds.AGENT_ENDED)
    return ended.data["failure"]


def test_nested_tar(workspace, tmp_path):
    with HttpServer(tmp_path / "served", token="s3same-open") as origin:
        expected = write_nested_tar(origin.folder / "train.tar")
        workspace.environment["MY_TOKEN"] = origin.token
        write_workflow(workspace, f"http: {{url: {origin.url}/train.tar, token: '${{env:MY_TOKEN}}'}}", "--epochs 2")
        out = workspace.run("run", "workflow.yaml")
    assert "data: 36 samples of 3 classes to stream, indexed in" in out
    assert "○ stage   71.7 kB before the first batch; 71.7 kB of disk" in out
    assert "● stream  the index and 71.7 kB before the first batch; 71.7 kB an epoch, cached on disk" in out
    report = read_report(workspace)
    assert report["samples"] == expected * 2
    assert report["class_names"] == list(CLASS_NAMES)
    assert report["bytes_read"][0] > 0 and report["bytes_read"][1] == 0, "the second epoch comes from the cache"
    assert not list(workspace.run_folder().glob("jobs/*/attempts/*/sandbox")), "the cache is deleted with the sandbox"
    full_requests = [
        request for request in origin.requests if request.method == "GET" and "range" not in request.headers
    ]
    assert not full_requests, "the archive is never fetched as a whole"
    files = [path for path in workspace.run_folder().rglob("*") if path.is_file()]
    assert origin.token not in out + workspace.stderr
    assert not [path for path in files if origin.token.encode() in path.read_bytes()]


def test_download_cache_is_shared_between_runs(workspace, origin, tmp_path):
    expected = write_nested_tar(origin.folder / "train.tar")
    workspace.environment["PACKTRAIN_CACHE"] = str(tmp_path / "download-cache")
    write_workflow(workspace, f"http: {{url: {origin.url}/train.tar}}")
    workspace.run("run", "workflow.yaml")
    first = read_report(workspace)
    (entry,) = [entry for entry in workspace.run_json("cache")["objects"] if entry["name"] == "train.tar (streamed)"]
    assert entry["bytes"] == (origin.folder / "train.tar").stat().st_size
    assert entry["source"] == f"{origin.url}/train.tar"
    again = Workspace(tmp_path / "again", **workspace.environment)
    again.folder.mkdir()
    write_workflow(again, f"http: {{url: {origin.url}/train.tar}}")
    again.run("run", "workflow.yaml")
    second = read_report(again)
    assert first["samples"] == second["samples"] == expected
    assert first["bytes_read"][0] > 0 and second["bytes_read"] == [0]
    assert workspace.run_json("cache", "rm", entry["key"])["bytes"] == entry["bytes"]
    assert not (tmp_path / "download-cache" / entry["key"][:2] / entry["key"]).exists()


TRAINING = """
name: training
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 500, gpus: 0}}
limits: {{maxAttempts: 2, disk: 3GB}}
recovery: {{retryDelay: 1s}}
inputs:
  data: {{http: {{url: {url}}}, mode: stream}}
checkpoint: {{path: checkpoint.pt}}
expect: [seen.json]
steps: [{{name: train, run: {{command: "exec {python} {program} --wait-at 5 --gate {gate}"}}}}]
"""


@pytest.mark.xdist_group("torch")
def test_resume_mid_epoch_after_a_kill(workspace, origin):
    samples = write_nested_tar(origin.folder / "train.tar")
    gate = workspace.folder / "gate"
    program = {"python": sys.executable, "program": stream_training.__file__, "gate": gate}
    workspace.write_file(TRAINING.format(url=f"{origin.url}/train.tar", **program))
    process = workspace.start("run", "workflow.yaml")
    workspace.wait_for((workspace.folder / "waits").exists, 120)  # torch is imported first
    workspace.wait_for(lambda: workspace.read_events(kinds.CHECKPOINT_SAVED))
    workspace.kill_agent()
    gate.touch()
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    (restored,) = workspace.read_events(kinds.CHECKPOINT_RESTORED)
    assert 0 < restored.data["step"] <= 5
    seen = read_report(workspace)
    for epoch in (0, 1):
        crcs = Counter(crc for number, batch in seen if number == epoch for crc in batch)
        assert crcs == Counter(crc for crc, _ in samples), f"epoch {epoch}"


# Failures


def start_and_wait_at_gate(workspace, source, timeout_s):
    """Start a run whose program waits after its first samples. Return it, and the gate that lets it continue."""
    gate = workspace.folder / "gate"
    write_workflow(workspace, source, f"--batch-size 1 --gate {gate} --timeout {timeout_s}", limits="")
    process = workspace.start("run", "workflow.yaml")
    workspace.wait_for((workspace.folder / "waits").exists)
    return process, gate


def test_changed_archive(workspace, origin):
    write_nested_tar(origin.folder / "train.tar")
    process, gate = start_and_wait_at_gate(workspace, f"http: {{url: {origin.url}/train.tar}}", 60)
    write_nested_tar(origin.folder / "new.tar", samples_per_class=13)
    os.replace(origin.folder / "new.tar", origin.folder / "train.tar")
    gate.touch()
    out, err = process.communicate()
    assert process.returncode == 31, out + err
    failure = read_failure(workspace)
    assert (failure["kind"], failure["blame"]) == ("unexpected_content", "data")
    assert f"{origin.url}/train.tar is not the archive that was indexed: it had" in failure["detail"]


def test_network_outage(workspace, tmp_path):
    with HttpServer(tmp_path / "served") as origin:
        write_nested_tar(origin.folder / "train.tar")
        process, gate = start_and_wait_at_gate(workspace, f"http: {{url: {origin.url}/train.tar}}", 0.3)
    gate.touch()
    out, err = process.communicate()
    failure = read_failure(workspace)
    assert failure["blame"] in ("data", "site"), out + err
    assert failure["kind"] in ("service_unavailable", "network_unreachable")
    assert "samples cannot be read" in failure["detail"]


def test_compressed_tar_is_rejected(workspace, origin):
    with tarfile.open(origin.folder / "train.tar", "w:gz") as tar:  # despite its name
        add_member(tar, "cat/1.bin", b"meow")
    write_workflow(workspace, f"http: {{url: {origin.url}/train.tar}}")
    workspace.run("run", "workflow.yaml", exit_code=None)
    assert workspace.exit_code != 0
    assert "train.tar is compressed" in workspace.stderr and "mode: stage" in workspace.stderr
    assert not (workspace.folder / ".packtrain").exists()


def put_tar(server, tar):
    server.client.put_object(Bucket=BUCKET, Key="data/train.tar", Body=tar.read_bytes())
    return "/data/train.tar"


def put_samples(server, tar):
    """Upload each sample as an object under its class."""
    with tarfile.open(tar) as outer:
        for member in outer:
            with tarfile.open(fileobj=outer.extractfile(member)) as inner:
                for sample in inner:
                    key = f"samples/{member.name.removesuffix('.tar')}/{sample.name}"
                    server.client.put_object(Bucket=BUCKET, Key=key, Body=inner.extractfile(sample).read())
    return "/samples"


@pytest.mark.parametrize("put", [put_tar, put_samples])
def test_from_s3(workspace, tmp_path, put):
    """Stream a nested tar, or the objects under a prefix, from a real server that requires signatures."""
    expected = write_nested_tar(tmp_path / "train.tar")
    workspace.environment.update(MY_KEY=ACCESS_KEY, MY_SECRET=SECRET_KEY)
    with S3Server() as server:
        write_workflow(workspace, S3_SOURCE.format(endpoint=server.endpoint, path=put(server, tmp_path / "train.tar")))
        out = workspace.run("run", "workflow.yaml")
    assert read_report(workspace)["samples"] == expected
    assert SECRET_KEY not in out + workspace.stderr


def test_in_a_container(workspace, tmp_path):
    """The index, the secrets and the cache are available in the container."""
    image = pytorch_image.build_image(tmp_path / "image")
    workspace.environment.update(MY_TOKEN="s3same-open", PATH=f"{apptainer.install_dir()}/usr/bin:{os.environ['PATH']}")
    with HttpServer(tmp_path / "served", token="s3same-open") as origin:
        expected = write_nested_tar(origin.folder / "train.tar")
        source = f"http: {{url: {origin.url}/train.tar, token: '${{env:MY_TOKEN}}'}}"
        more = f"  code: {{file: {{path: {streaming_program.__file__}}}}}"
        text = WORKFLOW.format(
            source=source, more=more, limits="disk: 3GB", options="--epochs 2", python="/.venv/bin/python3",
            program="$PACKTRAIN_INPUT_CODE/streaming_program.py",
        )  # fmt: skip
        workspace.write_file(text.replace("run: {", f"run: {{container: {{image: {image}}}, "))
        workspace.run("run", "workflow.yaml")
    report = read_report(workspace)
    assert report["samples"] == expected * 2
    assert report["bytes_read"][1] == 0, "the second epoch comes from the cache"
