"""An attempt freezes in the middle of its upload to S3, the next one is accepted, and the first continues.

The freeze stands for a suspended virtual machine. Such a machine keeps its disk, so the test puts the sandbox and the
secrets of the frozen agent back before it continues.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal

import pytest

from testbed import s3 as testbed_s3
from tests.support.cli_runs import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("s3")]

N_FILES = 120
WORKFLOW = """
resources: {{tasks: 1, gpus: 0, cpusPerTask: 1, memPerCpu: 64}}
output:
  s3: {{region: us-east-1, bucketUrl: s3://{bucket}, path: /{path}, accessKeyId: {access}, secretAccessKey: {secret},
        endpointUrl: '{endpoint}', deleteSync: {delete_sync}}}
steps:
  - name: train
    run:
      command: |
        cd $DEEPSQUARE_OUTPUT
        echo of this attempt only > $(date +%s%N)
        for n in $(seq {n_files}); do head -c 2000 /dev/urandom > $n.bin; done
"""


def read_objects(server, path):
    pages = server.client.get_paginator("list_objects_v2").paginate(Bucket=testbed_s3.BUCKET, Prefix=f"{path}/")
    return {
        item["Key"].removeprefix(f"{path}/"): item["ETag"].strip('"') for p in pages for item in p.get("Contents", [])
    }


@pytest.mark.parametrize("delete_sync", ["false", "true"])
def test_late_upload_replaces_nothing(s3_server, tmp_path, delete_sync):
    path, workspace = f"frozen-{delete_sync}", Workspace(tmp_path)
    keys = {"access": testbed_s3.ACCESS_KEY, "secret": testbed_s3.SECRET_KEY, "bucket": testbed_s3.BUCKET}
    text = WORKFLOW.format(endpoint=s3_server.endpoint, path=path, n_files=N_FILES, delete_sync=delete_sync, **keys)
    workspace.write_file(text)
    packtrain = workspace.start("run", "workflow.yaml")
    workspace.wait_for(lambda: len(read_objects(s3_server, path)) >= N_FILES // 4)
    frozen_pid = workspace.agent_pid()
    os.kill(frozen_pid, signal.SIGSTOP)
    try:
        packtrain.kill()
        packtrain.communicate()
        assert not workspace.read_events("agent.ended")
        (attempt,), run_folder = workspace.attempt_folders(), workspace.run_folder()
        shutil.move(attempt / "sandbox", tmp_path / "sandbox")
        shutil.copytree(run_folder / "secrets", tmp_path / "secrets")
        shutil.copy(attempt / "claim", tmp_path / "claim")
        (tmp_path / "claim").replace(attempt / "claim")  # unlocked: the machine cannot be reached
        workspace.run_json("resume")
        accepted = {
            entry["path"]: entry["sha256"]
            for event in workspace.read_events("agent.ended")
            for entry in event.data["outputs"]
        }
        assert len(accepted) == N_FILES + 1
        shutil.move(tmp_path / "sandbox", attempt / "sandbox")
        shutil.copytree(tmp_path / "secrets", run_folder / "secrets", dirs_exist_ok=True)
    finally:
        os.kill(frozen_pid, signal.SIGCONT)
    workspace.wait_for(lambda: len(workspace.read_events("agent.ended")) == 2)
    published = {name for name in read_objects(s3_server, path) if not name.startswith(".packtrain/")}
    workspace.run("outputs", "--copy", "copies")
    copies = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (tmp_path / "copies").iterdir()}
    assert published == set(accepted)
    assert copies == accepted
