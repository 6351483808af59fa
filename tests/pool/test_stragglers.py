"""Slow jobs on a real pool: hanging jobs are copied or moved, and bad sites of earlier runs are avoided."""

from __future__ import annotations

import sys
import time

import pytest

from packtrain.state.site_history import SiteObservation
from packtrain.store import SqliteStore
from testbed import s3
from testbed.condor_config import SITES
from tests.support.programs import counting_trainer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-1"), pytest.mark.timeout(360)]

# All sites are on this machine. The job that creates the folder first hangs and needs a second copy. Under load another
# job may look slow, too, and get a copy. No site has room for more than two jobs: at a site where three succeeded only
# the node would be avoided, and all sites have the same node here.
WORKFLOW = """
count: 4
resources: {tasks: 1, cpusPerTask: 6, memPerCpu: 100, gpus: 0}
limits: {grace: 2s, disk: 10MB}
recovery: {stragglerBudget: 1, minGain: 2s}
steps:
- name: train
  run: {command: 'if mkdir MARK; then echo $PACKTRAIN_JOB > MARK/job; while :; do sleep 0.2; done; fi;
    pwd > $PACKTRAIN_OUTPUT/model.txt'}
expect: [model.txt]
"""

# The first execution hangs at its tenth step; the one that resumes from its checkpoint does not.
TRAINING = """
count: 4
resources: {tasks: 1, cpusPerTask: 6, memPerCpu: 100, gpus: 0}
limits: {grace: 5s, disk: 10MB}
recovery: {stragglerBudget: 1, minGain: 2s}
checkpoint: {path: ckpt.bin}
expect: [model.bin]
output: {s3: {region: REGION, bucketUrl: 's3://BUCKET', path: '/moved/{job}', endpointUrl: ENDPOINT,
  accessKeyId: ACCESS, secretAccessKey: '${env:TESTBED_SECRET}'}}
steps:
- name: train
  run: {command: 'mkdir MARK && wait=10 && echo $PACKTRAIN_JOB > MARK/job;
    exec PYTHON -S PROGRAM --steps 40 --pace 0.05 --wait-at ${wait:--1} --gate no'}
"""


def find_slow_job(workspace, jobs):
    """Return the job that created the folder."""
    (slow_job,) = [job for job in jobs if job["job"] == (workspace.folder / "mark/job").read_text().strip()]
    return slow_job


def test_hanging_job_is_copied(workspace):
    workspace.write_file(WORKFLOW.replace("MARK", str(workspace.folder / "mark")))
    workspace.run("run", "workflow.yaml", "--on", "htcondor")
    jobs = workspace.run_json("ps", workspace.run_folder().name)["jobs"]
    assert {job["status"] for job in jobs} == {"succeeded"}
    slow_job = find_slow_job(workspace, jobs)
    first, second = slow_job["executions"]
    assert (first["failure"]["kind"], second["status"]) == ("superseded", "succeeded")
    assert first["site"] != second["site"]
    assert (workspace.run_folder() / f"jobs/{slow_job['job']}/output/model.txt").read_text()
    why = " ".join(workspace.run("why", f"{workspace.run_folder().name}.{slow_job['job']}").split())
    assert "was submitted as a copy of attempt" in why
    assert "-2 succeeded first" in why
    assert not workspace.pool.queue("true"), "the queue is empty"


def test_bad_site_of_earlier_runs_is_avoided(workspace):
    bad, good = SITES[0].name, SITES[1].name
    observations = [
        SiteObservation("old", f"{n}", time.time(), "htcondor", bad, "w1", "gpu_unusable", True) for n in range(3)
    ]
    store = SqliteStore(workspace.folder / "store.db")
    store.add_observations([*observations, SiteObservation("old", "9", time.time(), "htcondor", good, "w2")])
    store.close()
    workspace.write_file(
        WORKFLOW.replace("if mkdir MARK", "if false").replace("stragglerBudget: 1", "stragglerBudget: 0")
    )
    workspace.run("run", "workflow.yaml", "--on", "htcondor")
    executions = [e for job in workspace.run_json("ps", workspace.run_folder().name)["jobs"] for e in job["executions"]]
    assert len(executions) == 4 and bad not in {execution["site"] for execution in executions}
    text = (workspace.run_folder() / "htcondor/0-1.sub").read_text()
    assert f'(GLIDEIN_ResourceName =?= "{bad}" || GLIDEIN_Site =?= "{bad}", -75, 0)' in text
    rows = workspace.run_json("sites")["sites"]
    assert {row["name"] for row in rows} > {bad, good}
    (row,) = [row for row in rows if row["name"] == bad]
    assert row["avoid_reason"] == "100% of the executions there failed (gpu_unusable 3 times)"


def test_hanging_training_is_moved(workspace):
    with s3.S3Server() as server:
        values = {"REGION": s3.REGION, "BUCKET": s3.BUCKET, "ENDPOINT": server.endpoint, "ACCESS": s3.ACCESS_KEY}
        values |= {"MARK": workspace.folder / "mark", "PYTHON": sys.executable, "PROGRAM": counting_trainer.__file__}
        text = TRAINING
        for name, value in values.items():
            text = text.replace(name, str(value))
        workspace.environment["TESTBED_SECRET"] = s3.SECRET_KEY
        workspace.write_file(text)
        workspace.run("run", "workflow.yaml", "--on", "htcondor")
        models = [server.client.head_object(Bucket=s3.BUCKET, Key=f"moved/{job}/model.bin") for job in range(4)]
        assert len(models) == 4
    jobs = workspace.run_json("ps", workspace.run_folder().name)["jobs"]
    slow_job = find_slow_job(workspace, jobs)
    first, second = slow_job["executions"]
    assert second["status"] == "succeeded" and second["restored_checkpoint"]["step"] >= 10
    assert first["site"] != second["site"]
    why = " ".join(workspace.run("why", f"{workspace.run_folder().name}.{slow_job['job']}").split())
    assert "-1 was moved: it needs about" in why and "elsewhere" in why
