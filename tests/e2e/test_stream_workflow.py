"""`mode: stream` in workflows on this machine: the index is made when the run starts, the program reads the samples
where they are, and what goes wrong with them is told as what it is."""

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
def desk(tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "home").mkdir()
    return Workspace(tmp_path / "home", XDG_CACHE_HOME=str(tmp_path / "cache"))


@pytest.fixture
def origin(tmp_path, desk):
    with HttpServer(tmp_path / "served") as origin:
        yield origin


def write(desk, source, options="", more="", limits="disk: 3GB"):
    program = {"python": sys.executable, "program": streaming_program.__file__}
    return desk.write_file(WORKFLOW.format(source=source, options=options, more=more, limits=limits, **program))


def told(desk):
    return json.loads((desk.run_folder() / "jobs/0/output/seen.json").read_text())


def failure(desk):
    (ended,) = desk.read_events(kinds.AGENT_ENDED)
    return ended.data["failure"]


def test_a_nested_tar_is_read_where_it_is(desk, tmp_path):
    with HttpServer(tmp_path / "served", token="s3same-open") as origin:
        expected = write_nested_tar(origin.folder / "train.tar")
        desk.environment["MY_TOKEN"] = origin.token
        write(desk, f"http: {{url: {origin.url}/train.tar, token: '${{env:MY_TOKEN}}'}}", "--epochs 2")
        said = desk.run("run", "workflow.yaml")
    assert "data: 36 samples of 3 classes to stream, indexed in" in said
    assert "○ stage   71.7 kB before the first batch; 71.7 kB of disk" in said
    assert "● stream  the index and 71.7 kB before the first batch; 71.7 kB an epoch, cached on disk" in said
    seen = told(desk)
    assert seen["seen"] == expected * 2
    assert seen["classes"] == list(CLASS_NAMES)
    assert seen["came"][0] > 0 and seen["came"][1] == 0, "the second epoch is read from the disk"
    assert not list(desk.run_folder().glob("jobs/*/attempts/*/sandbox")), "and what was kept is gone with the sandbox"
    whole = [one for one in origin.requests if one.method == "GET" and "range" not in one.headers]
    assert not whole, "nobody fetched the archive"
    written = [path for path in desk.run_folder().rglob("*") if path.is_file()]
    assert origin.token not in said + desk.stderr
    assert not [path for path in written if origin.token.encode() in path.read_bytes()]


def test_what_was_read_is_kept_in_the_depot_for_other_runs(desk, origin, tmp_path):
    expected = write_nested_tar(origin.folder / "train.tar")
    desk.environment["PACKTRAIN_CACHE"] = str(tmp_path / "depot")
    write(desk, f"http: {{url: {origin.url}/train.tar}}")
    desk.run("run", "workflow.yaml")
    first = told(desk)
    (kept,) = [one for one in desk.run_json("cache")["objects"] if one["name"] == "train.tar (streamed)"]
    assert kept["bytes"] == (origin.folder / "train.tar").stat().st_size
    assert kept["source"] == f"{origin.url}/train.tar"
    again = Workspace(tmp_path / "again", **desk.environment)
    again.folder.mkdir()
    write(again, f"http: {{url: {origin.url}/train.tar}}")
    again.run("run", "workflow.yaml")
    second = told(again)
    assert first["seen"] == second["seen"] == expected
    assert first["came"][0] > 0 and second["came"] == [0]
    assert desk.run_json("cache", "rm", kept["key"])["bytes"] == kept["bytes"]
    assert not (tmp_path / "depot" / kept["key"][:2] / kept["key"]).exists()


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
def test_killed_in_mid_epoch_each_sample_is_seen_once(desk, origin):
    samples = write_nested_tar(origin.folder / "train.tar")
    gate = desk.folder / "gate"
    program = {"python": sys.executable, "program": stream_training.__file__, "gate": gate}
    desk.write_file(TRAINING.format(url=f"{origin.url}/train.tar", **program))
    process = desk.start("run", "workflow.yaml")
    desk.wait_for((desk.folder / "waits").exists, 120)  # torch is imported
    desk.wait_for(lambda: desk.read_events(kinds.CHECKPOINT_SAVED))
    desk.kill_agent()
    gate.touch()
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    (restored,) = desk.read_events(kinds.CHECKPOINT_RESTORED)
    assert 0 < restored.data["step"] <= 5
    seen = told(desk)
    for epoch in (1, 2):
        found = Counter(one for number, batch in seen if number == epoch for one in batch)
        assert found == Counter(one for one, _ in samples), f"epoch {epoch}"


# What goes wrong


def held_at_a_gate(desk, source, patience):
    """A run whose program has read its first samples, and the gate that lets it go on."""
    gate = desk.folder / "gate"
    write(desk, source, f"--at-once 1 --gate {gate} --retry-timeout {patience}", limits="")
    process = desk.start("run", "workflow.yaml")
    desk.wait_for((desk.folder / "waits").exists)
    return process, gate


def test_an_archive_that_was_changed_meanwhile(desk, origin):
    write_nested_tar(origin.folder / "train.tar")
    process, gate = held_at_a_gate(desk, f"http: {{url: {origin.url}/train.tar}}", 60)
    write_nested_tar(origin.folder / "new.tar", samples_per_class=13)
    os.replace(origin.folder / "new.tar", origin.folder / "train.tar")
    gate.touch()
    out, err = process.communicate()
    assert process.returncode == 31, out + err
    found = failure(desk)
    assert (found["kind"], found["blame"]) == ("unexpected_content", "data")
    assert f"{origin.url}/train.tar is not the archive that was indexed: it had" in found["detail"]


def test_a_network_that_went_away(desk, tmp_path):
    with HttpServer(tmp_path / "served") as origin:
        write_nested_tar(origin.folder / "train.tar")
        process, gate = held_at_a_gate(desk, f"http: {{url: {origin.url}/train.tar}}", 0.3)
    gate.touch()
    out, err = process.communicate()
    found = failure(desk)
    assert found["blame"] in ("data", "site"), out + err
    assert found["kind"] in ("service_unavailable", "network_unreachable")
    assert "samples cannot be read" in found["detail"]


def test_a_compressed_tar_makes_no_run(desk, origin):
    with tarfile.open(origin.folder / "train.tar", "w:gz") as tar:  # whatever its name says
        add_member(tar, "cat/1.bin", b"meow")
    write(desk, f"http: {{url: {origin.url}/train.tar}}")
    desk.run("run", "workflow.yaml", code=None)
    assert desk.exit_code != 0
    assert "train.tar is compressed" in desk.stderr and "mode: stage" in desk.stderr
    assert not (desk.folder / ".packtrain").exists()


def put_tar(server, tar):
    server.client.put_object(Bucket=BUCKET, Key="data/train.tar", Body=tar.read_bytes())
    return "/data/train.tar"


def put_samples(server, tar):
    """Each sample an object, below a folder of its class."""
    with tarfile.open(tar) as outer:
        for member in outer:
            with tarfile.open(fileobj=outer.extractfile(member)) as inner:
                for one in inner:
                    key = f"samples/{member.name.removesuffix('.tar')}/{one.name}"
                    server.client.put_object(Bucket=BUCKET, Key=key, Body=inner.extractfile(one).read())
    return "/samples"


@pytest.mark.parametrize("put", [put_tar, put_samples])
def test_from_s3(desk, tmp_path, put):
    """A nested tar, or the objects below a path, of a real server that wants signatures."""
    expected = write_nested_tar(tmp_path / "train.tar")
    desk.environment.update(MY_KEY=ACCESS_KEY, MY_SECRET=SECRET_KEY)
    with S3Server() as server:
        write(desk, S3_SOURCE.format(endpoint=server.endpoint, path=put(server, tmp_path / "train.tar")))
        said = desk.run("run", "workflow.yaml")
    assert told(desk)["seen"] == expected
    assert SECRET_KEY not in said + desk.stderr


def test_inside_of_a_container(desk, tmp_path):
    """The index, the secrets and what is kept are found in there, too."""
    image = pytorch_image.build_image(tmp_path / "image")
    desk.environment.update(MY_TOKEN="s3same-open", PATH=f"{apptainer.install_dir()}/usr/bin:{os.environ['PATH']}")
    with HttpServer(tmp_path / "served", token="s3same-open") as origin:
        expected = write_nested_tar(origin.folder / "train.tar")
        source = f"http: {{url: {origin.url}/train.tar, token: '${{env:MY_TOKEN}}'}}"
        more = f"  code: {{file: {{path: {streaming_program.__file__}}}}}"
        text = WORKFLOW.format(
            source=source, more=more, limits="disk: 3GB", options="--epochs 2", python="/.venv/bin/python3",
            program="$PACKTRAIN_INPUT_CODE/reading.py",
        )  # fmt: skip
        desk.write_file(text.replace("run: {", f"run: {{container: {{image: {image}}}, "))
        desk.run("run", "workflow.yaml")
    seen = told(desk)
    assert seen["seen"] == expected * 2
    assert seen["came"][1] == 0, "the second epoch is read from the disk"
