"""What every engine promises (test_engine_contract.py), by the simulated one, as far as it applies: there are no
processes, no journals, and no second engine of the same pool."""

from __future__ import annotations

import pytest

from packtrain.engines.api import Overrides, SubmitRequest
from packtrain.events import kinds
from packtrain.plan import Job, Limits, Resources
from packtrain.simulate.job_behaviour import AgentBehaviour
from packtrain.simulate.simulated_engine import SimulatedEngine
from tests.support.pool_models import HOUR_S, make_model, make_site

WHOLE = 600 + HOUR_S + 2  # transfer, computing, probe


@pytest.fixture
def engine():
    return SimulatedEngine("run-1", make_model(make_site(slots=1)), AgentBehaviour(), 1)


def ticket(decision, **amended):
    return SubmitRequest(decision, Job(decision.partition("-")[0], (), Resources(), Limits(), ()), Overrides(**amended))


def until(engine, ready):
    """All that was told by then."""
    seen = list(engine.poll())
    for _ in range(1000):
        if ready(seen):
            return seen
        engine.wait(30.0)
        seen += engine.poll()
    raise AssertionError(seen[-3:])


def gone(*decisions):
    return lambda seen: set(decisions) <= {s.attempt_id for s in seen if s.status == "gone"}


def placed(decision):
    return lambda seen: any(s.attempt_id == decision and s.status == "started" for s in seen)


def words(seen, kind):
    return [event for sighting in seen for event in sighting.agent_events if event.kind == kind]


def test_an_attempt_runs_and_is_gone_with_its_exit_code_and_its_words(engine):
    engine.submit([ticket("0-1")])
    seen = until(engine, gone("0-1"))
    assert (seen[-1].decision, seen[-1].job, seen[-1].exit_code, bool(seen[-1].detail)) == ("0-1", "0", 0, True)
    assert seen[-1].when == pytest.approx(WHOLE)
    (ended,) = words(seen, kinds.AGENT_ENDED)
    assert ended.data["outcome"] == "succeeded"
    (started,) = words(seen, kinds.AGENT_STARTED)
    assert (started.data["attempt"], started.data["site"]) == ("0-1", "Ada")
    steps = [s.glimpse["step"] for s in seen if s.glimpse]
    assert steps == sorted(set(steps)) and steps, "it tells how far it is"


def test_a_gone_one_is_told_once(engine):
    engine.submit([ticket("0-1")])
    until(engine, gone("0-1"))
    engine.wait(30.0)
    assert list(engine.poll()) == []


def test_submitting_twice_starts_once_and_not_again_when_it_is_over(engine):
    engine.submit([ticket("0-1"), ticket("0-1")])
    engine.submit([ticket("0-1")])
    until(engine, gone("0-1"))
    engine.submit([ticket("0-1"), ticket("1-1")])
    seen = until(engine, gone("1-1"))
    assert {s.attempt_id for s in seen} == {"1-1"}
    assert len(engine.pool.truth["0"].stays) == 1


def test_looking(engine):
    engine.submit([ticket("0-1")])
    until(engine, placed("0-1"))
    engine.submit([ticket("1-1")])
    asked = [ticket("0-1"), ticket("1-1"), ticket("2-1")]
    assert {s.decision: s.status for s in engine.recover(asked)} == {"0-1": "running", "1-1": "queued"}
    until(engine, gone("0-1"))
    assert {s.decision: s.status for s in engine.look(asked[:1])} == {"0-1": "gone"}


def test_cancelling_what_runs_waits_or_is_unknown(engine):
    engine.submit([ticket("0-1"), ticket("1-1"), ticket("2-1")])
    until(engine, placed("0-1"))
    engine.cancel(["1-1", "never heard of", "0-1", "0-1"])
    seen = until(engine, gone("0-1", "1-1"))
    assert [s.attempt_id for s in seen if s.status == "gone"] == ["1-1", "0-1"]
    until(engine, gone("2-1"))
    engine.cancel(["2-1"])
    assert list(engine.poll()) == []
    assert "1" not in engine.pool.truth or not engine.pool.truth["1"].stays


def test_one_that_is_asked_to_leave_saves(engine):
    engine.submit([ticket("0-1")])
    until(engine, lambda seen: any(s.progress for s in seen))
    engine.cancel(["0-1"])
    seen = until(engine, gone("0-1"))
    (ended,) = words(seen, kinds.AGENT_ENDED)
    assert ended.data["outcome"] == "continue" and ended.data["step"] > 0
    engine.submit([ticket("0-2")])
    (restored,) = words(until(engine, gone("0-2")), kinds.CHECKPOINT_RESTORED)
    assert restored.data["step"] == ended.data["step"]


def test_first_come_first_served(engine):
    engine.submit([ticket("0-1"), ticket("1-1")])
    engine.submit([ticket("2-1"), ticket("3-1")])
    seen = until(engine, gone("0-1", "1-1", "2-1", "3-1"))
    assert [s.attempt_id for s in seen if s.status == "gone"] == ["0-1", "1-1", "2-1", "3-1"]


def test_places_are_avoided():
    engine = SimulatedEngine("run-1", make_model(make_site("Ada", 3), make_site("Bob", 1)), AgentBehaviour(), 1)
    engine.submit([ticket(f"{n}-1", avoid_sites=("Ada",)) for n in range(3)])
    engine.submit([ticket(f"{n}-1", avoid_nodes=("Bob-1", "Ada-1")) for n in range(3, 8)])
    seen = until(engine, gone(*(f"{n}-1" for n in range(8))))
    where = {s.job_id: s.host for s in seen if s.status == "started"}
    assert [where[str(n)] for n in range(3)] == ["Bob-1"] * 3
    assert {where[str(n)] for n in range(3, 8)} <= {"Ada-2", "Ada-3"}


def test_the_pool_starts_again_what_it_took_back():
    engine = SimulatedEngine("run-1", make_model(make_site(slots=1, evictions_per_s=1 / HOUR_S)), AgentBehaviour(), 3)
    engine.submit([ticket("0-1")])
    seen = until(engine, gone("0-1"))
    told = [(s.status, s.execution) for s in seen if s.status in ("started", "interrupted", "gone")]
    starts = told[-1][1]
    assert starts > 1
    turns = [(status, n) for n in range(1, starts + 1) for status in ("started", "interrupted")]
    assert told == [*turns[:-1], ("gone", starts)]
    assert len({s.seq for s in seen if s.seq}) == len([s for s in seen if s.seq])


def test_a_program_without_checkpoints_is_held_at_the_time_limit_and_can_be_released():
    engine = SimulatedEngine(
        "run-1", make_model(make_site(slots=1), time_limit_s=600.0), AgentBehaviour(checkpoint_interval_s=None), 1
    )
    engine.submit([ticket("0-1")])
    held = until(engine, lambda seen: seen and seen[-1].status == "held")[-1]
    assert (held.failure_kind, held.hold_action, held.hold_code) == ("pool_time_limit", "give_up", (47, 0))
    engine.release(["0-1", "unknown"])
    assert [s.status for s in until(engine, lambda seen: seen and seen[-1].status == "held")][:2] == [
        "released",
        "started",
    ]
    engine.cancel(["0-1"])
    until(engine, gone("0-1"))


def test_time_passes_while_nothing_happens(engine):
    engine.wait(30.0)
    assert engine.clock() == 30.0
    engine.needs_clock_tick = lambda: False
    engine.wait(30.0)
    assert engine.clock() > 1000.0
