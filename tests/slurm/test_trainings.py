"""Trainings that Slurm interrupts: the program saves, exits and resumes, and no part of its work is lost or done twice.

Checkpoints are in the run's folder, on the disk that the nodes share. All trainings run at the same time, because they
mostly wait for Slurm.
"""

from __future__ import annotations

import signal

import pytest

from tests.slurm.conftest import TWO_CLUSTERS
from tests.support.slurm_workspace import SlurmTraining, SlurmWorkspace

pytestmark = [
    pytest.mark.parametrize("session_cluster", TWO_CLUSTERS, indirect=True, scope="session"),
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def trainings(session_cluster, tmp_path_factory):
    """Start the trainings, interrupt them, and return them by name."""
    cluster = session_cluster
    cluster.wait_until_idle()

    def start(settings=None, **options):
        return SlurmTraining(SlurmWorkspace(cluster, tmp_path_factory.mktemp("workspace"), settings), **options)

    started = {
        "requeued": start(exclude="n3"),
        "preempted and requeued": start(partition="low", nodelist="n3", cpus=2),
        "preempted and cancelled": start(partition="preemptible", nodelist="n3", cpus=2),
        "requeueing forbidden": start({"requeue": False}, partition="low", nodelist="n3", cpus=2),
        "time limit": start(time="1", exclude="n3"),
        "supervisor killed": start(exclude="n3"),
    }
    for training in started.values():
        training.wait_for_checkpoint()
    cluster.run(["scontrol", "requeue", started["requeued"].native_id()])
    cluster.run(["sbatch", "-p", "high", "-w", "n3", "-c", "8", "-o", "/dev/null", "--wrap", "sleep 1"])
    killed = started.pop("supervisor killed")
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait()
    killed.process = killed.workspace.start("resume", killed.workspace.run_folder().name)
    for training in started.values():
        training.workspace.wait_for(lambda training=training: training.n_runs() == 2)
    started["supervisor killed"] = killed
    for training in started.values():
        training.open_gate()
    yield started
    for training in started.values():
        training.process.kill()


def executions(training):
    return [(e["attempt"], e["status"]) for e in training.assert_success()["executions"]]


@pytest.mark.parametrize("name", ["requeued", "preempted and requeued"])
def test_restart_is_an_execution_of_the_same_attempt(trainings, name):
    training = trainings[name]
    assert executions(training) == [("0-1", "requeued"), ("0-1", "succeeded")]
    assert training.start_steps() == [0, 20]


@pytest.mark.parametrize("name", ["preempted and cancelled", "requeueing forbidden"])
def test_another_attempt_where_slurm_does_not_restart(trainings, name):
    training = trainings[name]
    assert executions(training) == [("0-1", "requeued"), ("0-2", "succeeded")]
    assert training.start_steps() == [0, 20]


def test_announced_time_limit(trainings):
    """The program leaves before the limit, after which Slurm would not requeue the job."""
    training = trainings["time limit"]
    assert executions(training) == [("0-1", "requeued"), ("0-2", "succeeded")]
    assert training.start_steps() == [0, 20]


def test_killed_supervisor(trainings):
    training = trainings["supervisor killed"]
    assert executions(training) == [("0-1", "succeeded")]
    assert training.start_steps() == [0]
