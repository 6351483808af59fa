"""The contract of every engine, checked on the local engine and on the fake that other tests use.

tests/pool/test_engine_contract.py checks it on a real pool.
"""

from __future__ import annotations

import pytest

from packtrain.engines.updates import Gone, Running
from packtrain.events import kinds
from tests.support.pool_updates import FakeEngineHarness, LocalEngineHarness, all_gone, poll_until


@pytest.fixture(params=[FakeEngineHarness, pytest.param(LocalEngineHarness, marks=pytest.mark.slow)])
def pool(request, tmp_path):
    harness = request.param(tmp_path)
    yield harness
    harness.kill_agents()


@pytest.fixture
def engine(pool):
    return pool.make_engine()


def has_started(pool, request):
    return lambda updates: pool.read_events(request)


def test_attempt_ends_with_exit_code(pool, engine):
    request = pool.make_request("0-1", "succeed")
    engine.submit([request])
    last = poll_until(engine, all_gone("0-1"))[-1]
    assert isinstance(last, Gone)
    assert (last.attempt_id, last.job_id, last.exit_code) == ("0-1", "0", 0)
    assert last.detail
    assert pool.read_events(request, kinds.AGENT_ENDED), "the journal is complete when the attempt is reported as gone"


def test_gone_is_reported_once(pool, engine):
    engine.submit([pool.make_request("0-1", "succeed")])
    poll_until(engine, all_gone("0-1"))
    assert list(engine.poll()) == []
    assert list(engine.poll()) == []


def test_submit_is_repeatable(pool, engine):
    request = pool.make_request("0-1", "hang")
    engine.submit([request, request])
    engine.submit([request])
    poll_until(engine, has_started(pool, request))
    engine.submit([request])
    engine.cancel(["0-1"])
    poll_until(engine, all_gone("0-1"))
    assert len(pool.read_events(request)) == 1


def test_two_engines_start_an_attempt_once(pool):
    request = pool.make_request("0-1", "hang")
    engines = [pool.make_engine(), pool.make_engine()]
    for engine in engines:
        engine.submit([request])
    poll_until(engines[0], has_started(pool, request))
    engines[1].recover([request])
    for engine in engines:
        engine.cancel(["0-1"])
    poll_until(engines[0], all_gone("0-1"))
    assert len(pool.read_events(request)) == 1


def test_finished_attempt_is_not_started_again(pool, engine):
    request = pool.make_request("0-1", "succeed")
    engine.submit([request])
    poll_until(engine, all_gone("0-1"))
    later_engine, other_request = pool.make_engine(), pool.make_request("1-1", "succeed")
    later_engine.submit([request, other_request])
    poll_until(later_engine, all_gone("1-1"))
    assert len(pool.read_events(request)) == 1


def test_running_attempt_is_recovered_and_cancelled(pool, engine):
    request = pool.make_request("0-1", "hang")
    engine.submit([request])
    poll_until(engine, has_started(pool, request))
    later_engine = pool.make_engine()
    (update,) = later_engine.recover([request])
    assert update == Running("0-1", "0")
    assert list(later_engine.poll()) == [Running("0-1", "0")]
    later_engine.cancel(["0-1"])
    poll_until(later_engine, all_gone("0-1"))
    assert pool.read_events(request, kinds.AGENT_ENDED)[0].data["failure"]["kind"] == "terminated"


def test_finished_attempt_is_recovered_as_gone(pool, engine):
    request = pool.make_request("0-1", "succeed")
    engine.submit([request])
    poll_until(engine, all_gone("0-1"))
    later_engine = pool.make_engine()
    updates = later_engine.recover([request])
    assert {update.attempt_id for update in updates} == {"0-1"}
    assert [type(update) for update in updates].count(Gone) == 1 and isinstance(updates[-1], Gone)
    assert list(later_engine.poll()) == [], "recover has reported it"


def test_recover_leaves_out_unknown_attempts(pool, engine):
    known, unknown = pool.make_request("0-1", "hang"), pool.make_request("1-1", "hang")
    engine.submit([known])
    poll_until(engine, has_started(pool, known))
    later_engine = pool.make_engine()
    assert {update.attempt_id for update in later_engine.recover([unknown, known])} == {"0-1"}
    assert not pool.attempt_folder(unknown).claim.exists()
    later_engine.cancel(["0-1"])
    poll_until(later_engine, all_gone("0-1"))


def test_recover_keeps_updates_of_others(pool, engine):
    request = pool.make_request("0-1", "succeed")
    engine.submit([request])
    engine.wait(30.0)  # until it has ended
    engine.recover([pool.make_request("1-1", "succeed")])
    poll_until(engine, all_gone("0-1"))


def test_cancel_ignores_unknown_and_gone(pool, engine):
    request = pool.make_request("0-1", "succeed")
    engine.cancel(["0-1", "unknown"])
    engine.submit([request])
    poll_until(engine, all_gone("0-1"))
    engine.cancel(["0-1", "0-1"])
    assert list(engine.poll()) == []
    assert pool.read_events(request, kinds.AGENT_ENDED)[0].data["outcome"] == "succeeded"


def test_cancel_running_attempt(pool, engine):
    request = pool.make_request("0-1", "hang")
    engine.submit([request])
    poll_until(engine, has_started(pool, request))
    engine.cancel(["0-1"])
    engine.cancel(["0-1"])
    last = poll_until(engine, all_gone("0-1"))[-1]
    assert last.exit_code == 60
    assert pool.read_events(request, kinds.AGENT_ENDED)[0].data["failure"]["kind"] == "terminated"


def test_cancel_queued_attempt(pool, engine):
    first, queued, last = (pool.make_request(f"{n}-1", "hang") for n in range(3))
    engine.submit([first, queued, last])
    poll_until(engine, has_started(pool, first))
    assert [update.attempt_id for update in engine.poll()] == ["0-1"], "attempts that have not started are not reported"
    engine.cancel(["1-1"])
    updates = poll_until(engine, all_gone("1-1"))
    assert [type(update) for update in updates if update.attempt_id == "1-1"] == [Gone]
    engine.cancel(["0-1"])
    poll_until(engine, has_started(pool, last))
    assert not pool.attempt_folder(queued).claim.exists()
    engine.cancel(["2-1"])
    poll_until(engine, all_gone("2-1"))


def test_first_come_first_served(pool, engine):
    requests = [pool.make_request(f"{n}-1", "succeed") for n in range(4)]
    engine.submit(requests[:2])
    engine.submit(requests[2:])
    updates = poll_until(engine, all_gone("0-1", "1-1", "2-1", "3-1"))
    assert [update.attempt_id for update in updates if isinstance(update, Gone)] == ["0-1", "1-1", "2-1", "3-1"]


def test_wait_returns_early(pool, engine):
    engine.submit([pool.make_request("0-1", "succeed")])
    engine.wait(3600.0)  # returns long before the timeout of the test
    poll_until(engine, all_gone("0-1"))
