"""Workflows in DeepSquare's format: http input and S3 output with continuousOutputSync; then a resume from S3."""

from __future__ import annotations

import io
import tarfile

import pytest

from testbed import s3 as testbed_s3
from testbed.http_server import HttpServer
from tests.support.cli_runs import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("s3")]

S3 = """
  s3:
    region: us-east-1
    bucketUrl: s3://{bucket}
    path: '/models'
    accessKeyId: {access}
    secretAccessKey: '{secret}'
    endpointUrl: {endpoint}
"""
FIRST = """
resources: {{tasks: 1, gpus: 0, cpusPerTask: 1, memPerCpu: 64}}
enableLogging: true
input:
  http:
    url: {url}/cifar-10-python.tar.gz
output:{s3}
continuousOutputSync: true
steps:
  - name: train
    resources: {{gpusPerTask: 0}}
    run:
      command: cp $DEEPSQUARE_INPUT/batch $DEEPSQUARE_OUTPUT/ckpt.pth; until [ -e {gate} ]; do sleep 0.1; done
"""
SECOND = """
resources: {{tasks: 1, gpus: 0, cpusPerTask: 1, memPerCpu: 64}}
input:{s3}
output:{s3}
steps:
  - name: train
    run:
      command: 'ls -A $DEEPSQUARE_INPUT; cat $DEEPSQUARE_INPUT/ckpt.pth > $DEEPSQUARE_OUTPUT/again.pth || true'
"""


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path, S3_SECRET=testbed_s3.SECRET_KEY)


def s3_text(server, secret=testbed_s3.SECRET_KEY):
    keys = {"access": testbed_s3.ACCESS_KEY, "secret": secret, "bucket": testbed_s3.BUCKET}
    return S3.format(endpoint=server.endpoint, **keys)


def read_objects(server):
    contents = server.client.list_objects_v2(Bucket=testbed_s3.BUCKET, Prefix="models/").get("Contents", [])
    return {o["Key"]: server.client.get_object(Bucket=testbed_s3.BUCKET, Key=o["Key"])["Body"].read() for o in contents}


def test_sync_and_resume(s3_server, workspace):
    workspace.write_file(SECOND.format(s3=s3_text(s3_server, "${env:S3_SECRET}")), "second.yaml")
    workspace.run("run", "second.yaml")  # the prefix is empty: the resuming workflow also works as the first one
    served = workspace.folder / "served"
    served.mkdir()
    with tarfile.open(served / "cifar-10-python.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("batch")
        member.size = 9
        archive.addfile(member, io.BytesIO(b"images..."))
    gate = workspace.folder / "go"
    with HttpServer(served) as http_server:
        workspace.write_file(FIRST.format(url=http_server.url, s3=s3_text(s3_server), gate=gate), "first.yaml")
        process = workspace.start("run", "first.yaml")
        workspace.wait_for(lambda: read_objects(s3_server).get("models/ckpt.pth") == b"images...")
        assert process.poll() is None, "the job is still running when its checkpoint is in S3"
        gate.touch()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert testbed_s3.SECRET_KEY not in out + err
    workspace.run("outputs", exit_code=2)
    assert "was written in the workflow itself" in workspace.stderr
    workspace.run("run", "second.yaml")
    assert read_objects(s3_server)["models/again.pth"] == b"images..."
    names = {entry["name"] for entry in workspace.run_json("outputs")}
    assert {"again.pth", "ckpt.pth"} <= names
