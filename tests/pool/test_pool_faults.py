"""Trainings on a real pool with faults: each one succeeds, and resumes from its checkpoint."""

from __future__ import annotations

import signal

import pytest

from testbed.condor_config import SITES
from tests.support.pool_trainings import PoolTraining

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-1"), pytest.mark.timeout(600)]

HERE = SITES[0].name
EVICTED, DISCONNECTED, HELD = "\n004 (", "\n022 (", "\n012 ("
RESTORED = "checkpoint.restored"  # an event of the agent
AT_HERE = f'GLIDEIN_ResourceName == "{HERE}"'


def vacate_by_schedd(pool, training):
    pool.run_as_user(["condor_vacate_job", "-constraint", training.constraint])


def vacate_by_startd(pool, training):
    """condor_vacate finds the startd by its slots in the collector, which knows a new claim only after a moment."""
    claimed = ["condor_status", "-af", "Name", "-constraint", f'{AT_HERE} && State == "Claimed"']
    training.workspace.wait_for(lambda: pool.run_as_user(claimed).stdout.strip())
    pool.run_as_user(["condor_vacate", "-constraint", AT_HERE])


def shut_down_startd(pool, training):
    assert pool.kill_daemon("startd", HERE, signal.SIGTERM) == 1


@pytest.mark.parametrize("evict", [vacate_by_schedd, vacate_by_startd, shut_down_startd])
def test_eviction(workspace, evict):
    training = PoolTraining(workspace, wait_at=20, requirements=AT_HERE)
    training.wait_for_step(10)
    evict(workspace.pool, training)
    training.wait_for_log(EVICTED)
    training.open_gate()
    training.wait_for_exit()
    training.assert_succeeded()
    first, second = training.start_steps()
    assert first == 0 and second >= 10


def test_too_many_executions_with_progress(workspace):
    """packtrain's own rule holds the job, and packtrain releases it, because it has a newer checkpoint."""
    workspace.environment["PACKTRAIN_CONFIG"] = str(
        workspace.write_file("htcondor: {maxExecutions: 1}\n", "config.yaml")
    )
    training = PoolTraining(workspace, wait_at=20, max_attempts=1)
    training.wait_for_step(10)
    vacate_by_schedd(workspace.pool, training)
    training.wait_for_log(RESTORED)
    edit = ["condor_qedit", "-constraint", training.constraint, "Requirements"]
    workspace.pool.run_as_user([*edit, "false"])  # so that HTCondor evaluates the rule between two executions
    vacate_by_schedd(workspace.pool, training)
    training.wait_for_log(HELD)
    workspace.pool.run_as_user([*edit, "true"])
    training.open_gate()
    training.wait_for_exit()
    training.assert_succeeded()
    assert "the pool has started it more than 1 times" in training.read_user_log()
    assert "released 1 time" in workspace.run("why", workspace.run_folder().name)


def test_killed_starter(workspace):
    """The agent cannot save anything, so the job resumes from the last checkpoint that HTCondor transferred."""
    training = PoolTraining(workspace, checkpoint_interval="1s", wait_at=50, requirements=AT_HERE)
    training.wait_for_log(RESTORED)
    assert workspace.pool.kill_daemon("starter", HERE)
    training.open_gate()
    training.wait_for_exit()
    training.assert_succeeded()
    assert all(start > 0 for start in training.start_steps()[1:])


def test_killed_schedd_and_shadow(workspace):
    training = PoolTraining(workspace, wait_at=20)
    training.wait_for_step(5)
    assert workspace.pool.kill_daemon("schedd") == 1
    workspace.pool.kill_daemon("shadow")
    training.open_gate()
    training.wait_for_exit()
    training.assert_succeeded()
    assert training.start_steps() == [0]


def test_disconnected_site(workspace):
    """The network of a site fails after an eviction.

    The eviction leaves a checkpoint, for the case that HTCondor cannot return the outputs.

    A waiting training sends no events, so it waits at a late step. On a busy machine HTCondor needs minutes to recover:
    it reconnects after one, loses the connection every 5 s for another, and then starts the job again.
    """
    training = PoolTraining(workspace, n_steps=320, wait_at=300, requirements=AT_HERE)
    training.wait_for_step(10)
    vacate_by_schedd(workspace.pool, training)
    training.wait_for_log(RESTORED)
    with workspace.pool.disconnect_site(HERE):
        training.wait_for_log(DISCONNECTED)
    training.open_gate()
    training.wait_for_exit()
    training.assert_succeeded()
    assert training.start_steps().count(0) == 1


def test_hold_and_release_by_user(workspace):
    training = PoolTraining(workspace, wait_at=20)
    training.wait_for_step(5)
    workspace.pool.run_as_user(["condor_hold", "-constraint", training.constraint])
    workspace.pool.wait_for_job(training.constraint, status=5)
    workspace.wait_for(lambda: training.status() == "held")
    training.open_gate()
    workspace.pool.run_as_user(["condor_release", "-constraint", training.constraint])
    training.wait_for_exit()
    training.assert_succeeded()
    assert training.start_steps()[-1] >= 5


def test_pool_time_limit(workspace):
    """The limit is longer than the start on a busy machine, and shorter than the training."""
    training = PoolTraining(workspace, n_steps=900, allowed_execute_duration=25)
    training.wait_for_exit()
    training.assert_succeeded()
    assert len(training.start_steps()) > 1
    assert training.start_steps().count(0) == 1
