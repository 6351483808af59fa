"""The contract of every engine (tests/contracts), checked for the Slurm engine on real clusters.

As on HTCondor, waiting attempts are reported once with a reason.
"""

from __future__ import annotations

import pytest

from packtrain.engines.updates import ExecutionStarted, Gone, Running
from packtrain.events import kinds
from tests.contracts.test_engine_contract import (  # noqa: F401
    has_started,
    test_attempt_ends_with_exit_code,
    test_cancel_ignores_unknown_and_gone,
    test_cancel_running_attempt,
    test_finished_attempt_is_not_started_again,
    test_finished_attempt_is_recovered_as_gone,
    test_first_come_first_served,
    test_gone_is_reported_once,
    test_recover_keeps_updates_of_others,
    test_recover_leaves_out_unknown_attempts,
    test_submit_is_repeatable,
    test_two_engines_start_an_attempt_once,
    test_wait_returns_early,
)
from tests.support.pool_updates import all_gone, poll_until
from tests.support.slurm_engine import SlurmEngineHarness

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(600)]


@pytest.fixture
def pool(cluster, tmp_path):
    harness = SlurmEngineHarness(tmp_path, cluster)
    yield harness
    harness.kill_agents()


@pytest.fixture
def engine(pool):
    return pool.make_engine()


def test_running_attempt_is_recovered_and_cancelled(pool, engine):
    request = pool.make_request("0-1", "hang")
    engine.submit([request])
    poll_until(engine, lambda updates: any(isinstance(update, ExecutionStarted) for update in updates))
    poll_until(engine, has_started(pool, request))
    later_engine = pool.make_engine()
    assert later_engine.recover([request])[-1] == Running("0-1", "0")
    later_engine.cancel(["0-1"])
    poll_until(later_engine, all_gone("0-1"))
    assert pool.read_events(request, kinds.AGENT_ENDED)[0].data["failure"]["kind"] == "terminated"


def test_cancel_queued_attempt(pool, engine):
    first, queued, last = (pool.make_request(f"{n}-1", "hang") for n in range(3))
    engine.submit([first, queued, last])
    poll_until(engine, has_started(pool, first))
    engine.cancel(["1-1"])
    updates = poll_until(engine, all_gone("1-1"))
    (gone,) = [u for u in updates if u.attempt_id == "1-1" and isinstance(u, Gone)]
    assert "cancelled" in gone.detail
    engine.cancel(["0-1"])
    poll_until(engine, has_started(pool, last))
    assert not pool.attempt_folder(queued).claim.exists()
    engine.cancel(["2-1"])
    poll_until(engine, all_gone("2-1"))
