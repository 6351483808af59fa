"""The testbed's Slurm cluster behaves like one: GPUs, arrays, requeueing, preemption, lost daemons and nodes."""

from __future__ import annotations

import time

import pytest

from tests.slurm.conftest import TWO_CLUSTERS

pytestmark = [
    pytest.mark.parametrize("session_cluster", TWO_CLUSTERS, indirect=True),
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
]
RUN_UNTIL_TERM = "trap 'exit 60' TERM; while :; do sleep 0.1; done"
FIELDS = ("State", "RestartCnt", "exit_code")


def submit(cluster, *options, script):
    output = cluster.run(["sbatch", "--parsable", "-o", cluster.folder / "job-%j.out", *options, "--wrap", script])
    return output.stdout.strip()


def status(cluster, job_id):
    query = ["squeue", "-h", "-r", "-t", "all", "-j", job_id, "-O", ",".join(f"{field}:|" for field in FIELDS)]
    return cluster.run(query, check=False).stdout.split("\n")[0].split("|")[: len(FIELDS)]


def wait_for(cluster, job_id, *states, timeout_s=90):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        current = status(cluster, job_id)
        if current[0] in states:
            return current
        time.sleep(0.1)
    raise TimeoutError(f"job {job_id} is {current}, not {states}")


def test_gpu_and_exit_code(cluster):
    job_id = submit(cluster, "--gres=gpu:a100:2", script="echo $CUDA_VISIBLE_DEVICES; exit 7")
    assert wait_for(cluster, job_id, "FAILED")[2] in ("7:0", "1792")
    assert (cluster.folder / f"job-{job_id}.out").read_text() == "0,1\n"


def test_array(cluster):
    job_id = submit(cluster, "--array=0-5%3", script="true")
    wait_for(cluster, f"{job_id}_5", "COMPLETED")


def test_requeue_counts_restarts(cluster):
    job_id = submit(cluster, script=RUN_UNTIL_TERM)
    wait_for(cluster, job_id, "RUNNING")
    cluster.run(["scontrol", "requeue", job_id])
    wait_for(cluster, job_id, "PENDING")
    assert wait_for(cluster, job_id, "RUNNING")[1] == "1"


def test_preemption(cluster):
    low = submit(cluster, "-p", "low", "-w", "n3", "-c", "8", script=RUN_UNTIL_TERM)
    wait_for(cluster, low, "RUNNING")
    high = submit(cluster, "-p", "high", "-w", "n3", "-c", "8", script="sleep 1")
    wait_for(cluster, high, "COMPLETED")
    assert wait_for(cluster, low, "RUNNING")[1] == "1"


def test_running_job_survives_the_controller(cluster):
    job_id = submit(cluster, script=RUN_UNTIL_TERM)
    wait_for(cluster, job_id, "RUNNING")
    cluster.stop("slurmctld")
    cluster.start("slurmctld")
    cluster.wait_for_controller()
    assert wait_for(cluster, job_id, "RUNNING")[1] == "0"


def test_lost_node_requeues_its_job(cluster):
    job_id = submit(cluster, "-w", "n2", "--requeue", script=RUN_UNTIL_TERM)
    wait_for(cluster, job_id, "RUNNING")
    try:
        cluster.lose_node("n2")
        wait_for(cluster, job_id, "PENDING")
    finally:
        cluster.start("n2")
    assert wait_for(cluster, job_id, "RUNNING")[1] == "1"


def test_accounting(cluster):
    job_id = submit(cluster, script="exit 3")
    wait_for(cluster, job_id, "FAILED")
    query = ["sacct", "-n", "-P", "-X", "-j", job_id, "-o", "JobID,State,ExitCode"]
    if not cluster.accounting:
        assert cluster.run(query, check=False).returncode != 0
        return
    deadline = time.monotonic() + 30
    while (rows := cluster.run(query).stdout) != f"{job_id}|FAILED|3:0\n":
        assert time.monotonic() < deadline, rows
        time.sleep(0.2)
