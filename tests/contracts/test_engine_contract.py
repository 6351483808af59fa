"""What every engine promises: run against the local engine and against the fake that other tests use; on a real pool
by tests/pool/test_engine_contract_on_the_pool.py."""

from __future__ import annotations

import time

import pytest

from packtrain.events import kinds
from tests.support.pool_updates import FakeEngineHarness, LocalEngineHarness, all_gone, poll_until


@pytest.fixture(params=[FakeEngineHarness, pytest.param(LocalEngineHarness, marks=pytest.mark.slow)])
def pool(request, tmp_path):
    made = request.param(tmp_path)
    yield made
    made.end_agents()


@pytest.fixture
def engine(pool):
    return pool.make_engine()


def started(pool, ticket):
    return lambda seen: pool.read_events(ticket)


def test_an_attempt_runs_and_is_gone_with_its_exit_code(pool, engine):
    ticket = pool.make_request("0-1", "succeed")
    engine.submit([ticket])
    last = poll_until(engine, all_gone("0-1"))[-1]
    assert (last.attempt_id, last.job_id, last.status, last.exit_code) == ("0-1", "0", "gone", 0)
    assert last.detail
    assert pool.read_events(ticket, kinds.AGENT_ENDED), "its journal was complete when it was told gone"


def test_a_gone_one_is_told_once(pool, engine):
    engine.submit([pool.make_request("0-1", "succeed")])
    poll_until(engine, all_gone("0-1"))
    assert list(engine.poll()) == []
    assert list(engine.poll()) == []


def test_submitting_twice_starts_once(pool, engine):
    ticket = pool.make_request("0-1", "hang")
    engine.submit([ticket, ticket])
    engine.submit([ticket])
    poll_until(engine, started(pool, ticket))
    engine.submit([ticket])
    engine.cancel(["0-1"])
    poll_until(engine, all_gone("0-1"))
    assert len(pool.read_events(ticket)) == 1


def test_two_engines_that_submit_one_decision_start_it_once(pool):
    ticket = pool.make_request("0-1", "hang")
    engines = [pool.make_engine(), pool.make_engine()]
    for engine in engines:
        engine.submit([ticket])
    poll_until(engines[0], started(pool, ticket))
    engines[1].look([ticket])
    for engine in engines:
        engine.cancel(["0-1"])
    poll_until(engines[0], all_gone("0-1"))
    assert len(pool.read_events(ticket)) == 1


def test_submitting_what_is_over_does_not_start_it_again(pool, engine):
    ticket = pool.make_request("0-1", "succeed")
    engine.submit([ticket])
    poll_until(engine, all_gone("0-1"))
    other, again = pool.make_engine(), pool.make_request("1-1", "succeed")
    other.submit([ticket, again])
    poll_until(other, all_gone("1-1"))
    assert len(pool.read_events(ticket)) == 1


def test_an_earlier_engines_attempt_is_found_followed_and_cancelled(pool, engine):
    ticket = pool.make_request("0-1", "hang")
    engine.submit([ticket])
    poll_until(engine, started(pool, ticket))
    later = pool.make_engine()
    (found,) = later.look([ticket])
    assert (found.decision, found.job, found.status) == ("0-1", "0", "running")
    assert [s.status for s in later.poll()] == ["running"]
    later.cancel(["0-1"])
    poll_until(later, all_gone("0-1"))
    assert pool.read_events(ticket, kinds.AGENT_ENDED)[0].data["failure"]["kind"] == "terminated"


def test_an_attempt_that_ended_in_between_is_found_gone(pool, engine):
    ticket = pool.make_request("0-1", "succeed")
    engine.submit([ticket])
    poll_until(engine, all_gone("0-1"))
    later = pool.make_engine()
    told = later.look([ticket])
    assert {s.decision for s in told} == {"0-1"}
    assert [s.status for s in told].count("gone") == 1 and told[-1].status == "gone"
    assert list(later.poll()) == [], "told once, by look"


def test_looking_leaves_out_what_is_not_known(pool, engine):
    known, unknown = pool.make_request("0-1", "hang"), pool.make_request("1-1", "hang")
    engine.submit([known])
    poll_until(engine, started(pool, known))
    later = pool.make_engine()
    assert {s.decision for s in later.look([unknown, known])} == {"0-1"}
    assert not pool.attempt_folder(unknown).claim.exists()
    later.cancel(["0-1"])
    poll_until(later, all_gone("0-1"))


def test_looking_for_one_does_not_swallow_the_end_of_another(pool, engine):
    ticket = pool.make_request("0-1", "succeed")
    engine.submit([ticket])
    engine.wait(30.0)  # until it has ended
    engine.look([pool.make_request("1-1", "succeed")])
    poll_until(engine, all_gone("0-1"))


def test_cancelling_what_is_unknown_or_gone_is_ignored(pool, engine):
    ticket = pool.make_request("0-1", "succeed")
    engine.cancel(["0-1", "never heard of"])
    engine.submit([ticket])
    poll_until(engine, all_gone("0-1"))
    engine.cancel(["0-1", "0-1"])
    assert list(engine.poll()) == []
    assert pool.read_events(ticket, kinds.AGENT_ENDED)[0].data["outcome"] == "succeeded"


def test_a_running_attempt_is_cancelled(pool, engine):
    ticket = pool.make_request("0-1", "hang")
    engine.submit([ticket])
    poll_until(engine, started(pool, ticket))
    engine.cancel(["0-1"])
    engine.cancel(["0-1"])
    last = poll_until(engine, all_gone("0-1"))[-1]
    assert last.exit_code == 60
    assert pool.read_events(ticket, kinds.AGENT_ENDED)[0].data["failure"]["kind"] == "terminated"


def test_a_queued_attempt_is_cancelled_before_it_starts(pool, engine):
    first, queued, last = (pool.make_request(f"{n}-1", "hang") for n in range(3))
    engine.submit([first, queued, last])
    poll_until(engine, started(pool, first))
    assert [s.decision for s in engine.poll()] == ["0-1"], "what has not started is not told of"
    engine.cancel(["1-1"])
    seen = poll_until(engine, all_gone("1-1"))
    assert [s.exit_code for s in seen if s.attempt_id == "1-1"] == [None]
    engine.cancel(["0-1"])
    poll_until(engine, started(pool, last))
    assert not pool.attempt_folder(queued).claim.exists()
    engine.cancel(["2-1"])
    poll_until(engine, all_gone("2-1"))


def test_first_come_first_served(pool, engine):
    tickets = [pool.make_request(f"{n}-1", "succeed") for n in range(4)]
    engine.submit(tickets[:2])
    engine.submit(tickets[2:])
    seen = poll_until(engine, all_gone("0-1", "1-1", "2-1", "3-1"))
    assert [s.attempt_id for s in seen if s.status == "gone"] == ["0-1", "1-1", "2-1", "3-1"]


def test_waiting_ends_early_when_something_happened(pool, engine):
    engine.submit([pool.make_request("0-1", "succeed")])
    before = time.monotonic()
    engine.wait(60.0)
    assert time.monotonic() - before < 30
    poll_until(engine, all_gone("0-1"))
