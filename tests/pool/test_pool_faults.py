"""What befalls jobs in pools: every training ends well all the same, and goes on from where it was."""

from __future__ import annotations

import signal

import pytest

from testbed.condor_config import SITES
from tests.support.pool_trainings import PoolTraining

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-1"), pytest.mark.timeout(600)]

HERE = SITES[0].name
EVICTED, DISCONNECTED, HELD = "\n004 (", "\n022 (", "\n012 ("
RESTORED = "checkpoint.restored"  # a word of the agent's
AT_HERE = f'GLIDEIN_ResourceName == "{HERE}"'


def vacate_by_the_schedd(pool, training):
    pool.run_as_user(["condor_vacate_job", "-constraint", training.constraint])


def vacate_by_the_startd(pool, training):
    """Which is found by what the collector has heard of its slots: of one that was claimed just now, a moment later."""
    claimed = ["condor_status", "-af", "Name", "-constraint", f'{AT_HERE} && State == "Claimed"']
    training.desk.await_some(lambda: pool.run_as_user(claimed).stdout.strip())
    pool.run_as_user(["condor_vacate", "-constraint", AT_HERE])


def shut_the_startd_down(pool, training):
    assert pool.kill_daemon("startd", HERE, signal.SIGTERM) == 1


@pytest.mark.parametrize("evict", [vacate_by_the_schedd, vacate_by_the_startd, shut_the_startd_down])
def test_evicted_it_goes_on_where_it_was(desk, evict):
    training = PoolTraining(desk, wait_at=20, requirements=AT_HERE)
    training.wait_for_step(10)
    evict(desk.pool, training)
    training.wait_for_log(EVICTED)
    training.open_gate()
    training.wait_for_exit()
    training.assert_succeeded()
    first, second = training.start_steps()
    assert first == 0 and second >= 10


def test_started_too_often_it_goes_on_if_it_got_further(desk):
    """Our own rule holds it; it is let go, since there is a newer checkpoint, and costs no attempt."""
    desk.environment["PACKTRAIN_CONFIG"] = str(desk.write_file("htcondor: {starts: 1}\n", "config.yaml"))
    training = PoolTraining(desk, wait_at=20, max_attempts=1)
    training.wait_for_step(10)
    vacate_by_the_schedd(desk.pool, training)
    training.wait_for_log(RESTORED)
    edit = ["condor_qedit", "-constraint", training.constraint, "Requirements"]
    desk.pool.run([*edit, "false"])  # so that the rule sees it between two starts
    vacate_by_the_schedd(desk.pool, training)
    training.wait_for_log(HELD)
    desk.pool.run([*edit, "true"])
    training.open_gate()
    training.wait_for_exit()
    training.assert_succeeded()
    assert "the pool has started it more than 1 times" in training.read_user_log()
    assert "it was let go 1 time" in desk.run("why", desk.run_folder().name)


def test_its_starter_is_killed(desk):
    """Nothing can be said any more: what HTCondor carried at the last 85 counts."""
    training = PoolTraining(desk, checkpoint_interval="1s", wait_at=50, requirements=AT_HERE)
    training.wait_for_log(RESTORED)
    assert desk.pool.kill("starter", HERE)
    training.open_gate()
    training.wait_for_exit()
    training.assert_succeeded()
    assert all(start > 0 for start in training.start_steps()[1:])


def test_schedd_and_shadow_are_killed_and_it_goes_on_meanwhile(desk):
    training = PoolTraining(desk, wait_at=20)
    training.wait_for_step(5)
    assert desk.pool.kill("schedd") == 1
    desk.pool.kill("shadow")
    training.open_gate()
    training.wait_for_exit()
    training.assert_succeeded()
    assert training.start_steps() == [0]


def test_the_network_of_its_site_is_cut_off(desk):
    """After an eviction, so that there is something to go on from if HTCondor cannot bring the outputs home. While it
    waits it says nothing: so it has some way to go until then. On a busy machine HTCondor takes minutes to get over it:
    it connects again after one, loses the connection every 5 s for another, and then begins anew."""
    training = PoolTraining(desk, n_steps=320, wait_at=300, requirements=AT_HERE)
    training.wait_for_step(10)
    vacate_by_the_schedd(desk.pool, training)
    training.wait_for_log(RESTORED)
    with desk.pool.cut(HERE):
        training.wait_for_log(DISCONNECTED)
    training.open_gate()
    training.wait_for_exit()
    training.assert_succeeded()
    assert training.start_steps().count(0) == 1


def test_a_user_holds_it_and_lets_it_go(desk):
    training = PoolTraining(desk, wait_at=20)
    training.wait_for_step(5)
    desk.pool.run(["condor_hold", "-constraint", training.constraint])
    desk.pool.await_job(training.constraint, status=5)
    desk.wait_for(lambda: training.status() == "held")
    training.open_gate()
    desk.pool.run(["condor_release", "-constraint", training.constraint])
    training.wait_for_exit()
    training.assert_succeeded()
    assert training.start_steps()[-1] >= 5


def test_the_time_that_the_pool_allows_is_not_enough_at_once(desk):
    """Longer than it takes to start on a busy machine, shorter than the training."""
    training = PoolTraining(desk, n_steps=900, allowed_execute_duration=25)
    training.wait_for_exit()
    training.assert_succeeded()
    assert len(training.start_steps()) > 1
    assert training.start_steps().count(0) == 1
