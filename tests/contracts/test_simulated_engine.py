"""The engine contract (test_engine_contract.py) for the simulated engine, as far as it applies: the simulation has no
processes, no logs, and no second engine of the same pool."""

from __future__ import annotations

import pytest

from packtrain.engines.api import Overrides, SubmitRequest
from packtrain.events import kinds
from packtrain.plan import Job, Limits, Resources
from packtrain.simulate.job_behaviour import AgentBehaviour
from packtrain.simulate.simulated_engine import SimulatedEngine
from tests.support.pool_models import HOUR_S, make_model, make_site

JOB_S = 600 + HOUR_S + 2  # transfer, compute, probe


@pytest.fixture
def engine():
    return SimulatedEngine("run-1", make_model(make_site(slots=1)), AgentBehaviour(), 1)


def request(attempt_id, **overrides):
    return SubmitRequest(
        attempt_id, Job(attempt_id.partition("-")[0], (), Resources(), Limits(), ()), Overrides(**overrides)
    )


def poll_until(engine, ready):
    """Poll until `ready(updates)`; return the updates."""
    updates = list(engine.poll())
    for _ in range(1000):
        if ready(updates):
            return updates
        engine.wait(30.0)
        updates += engine.poll()
    raise AssertionError(updates[-3:])


def gone(*attempt_ids):
    return lambda updates: set(attempt_ids) <= {s.attempt_id for s in updates if s.status == "gone"}


def started(attempt_id):
    return lambda updates: any(s.attempt_id == attempt_id and s.status == "started" for s in updates)


def agent_events(updates, kind):
    return [event for update in updates for event in update.agent_events if event.kind == kind]


def test_attempt_succeeds(engine):
    engine.submit([request("0-1")])
    updates = poll_until(engine, gone("0-1"))
    assert (updates[-1].attempt_id, updates[-1].job_id, updates[-1].exit_code, bool(updates[-1].detail)) == (
        "0-1",
        "0",
        0,
        True,
    )
    assert updates[-1].occurred_at == pytest.approx(JOB_S)
    (ended,) = agent_events(updates, kinds.AGENT_ENDED)
    assert ended.data["outcome"] == "succeeded"
    (started,) = agent_events(updates, kinds.AGENT_STARTED)
    assert (started.data["attempt"], started.data["site"]) == ("0-1", "Ada")
    steps = [s.progress["step"] for s in updates if s.progress]
    assert steps == sorted(set(steps)) and steps, "progress is reported"


def test_gone_is_reported_once(engine):
    engine.submit([request("0-1")])
    poll_until(engine, gone("0-1"))
    engine.wait(30.0)
    assert list(engine.poll()) == []


def test_submit_is_idempotent(engine):
    engine.submit([request("0-1"), request("0-1")])
    engine.submit([request("0-1")])
    poll_until(engine, gone("0-1"))
    engine.submit([request("0-1"), request("1-1")])
    updates = poll_until(engine, gone("1-1"))
    assert {s.attempt_id for s in updates} == {"1-1"}
    assert len(engine.pool.job_records["0"].sessions) == 1


def test_recover(engine):
    engine.submit([request("0-1")])
    poll_until(engine, started("0-1"))
    engine.submit([request("1-1")])
    submitted = [request("0-1"), request("1-1"), request("2-1")]
    assert {s.attempt_id: s.status for s in engine.recover(submitted)} == {"0-1": "running", "1-1": "queued"}
    poll_until(engine, gone("0-1"))
    assert {s.attempt_id: s.status for s in engine.recover(submitted[:1])} == {"0-1": "gone"}


def test_cancel(engine):
    engine.submit([request("0-1"), request("1-1"), request("2-1")])
    poll_until(engine, started("0-1"))
    engine.cancel(["1-1", "unknown", "0-1", "0-1"])
    updates = poll_until(engine, gone("0-1", "1-1"))
    assert [s.attempt_id for s in updates if s.status == "gone"] == ["1-1", "0-1"]
    poll_until(engine, gone("2-1"))
    engine.cancel(["2-1"])
    assert list(engine.poll()) == []
    assert "1" not in engine.pool.job_records or not engine.pool.job_records["1"].sessions


def test_cancelled_attempt_saves_a_checkpoint(engine):
    engine.submit([request("0-1")])
    poll_until(engine, lambda updates: any(s.progress for s in updates))
    engine.cancel(["0-1"])
    updates = poll_until(engine, gone("0-1"))
    (ended,) = agent_events(updates, kinds.AGENT_ENDED)
    assert ended.data["outcome"] == "requeued" and ended.data["step"] > 0
    engine.submit([request("0-2")])
    (restored,) = agent_events(poll_until(engine, gone("0-2")), kinds.CHECKPOINT_RESTORED)
    assert restored.data["step"] == ended.data["step"]


def test_queue_is_fifo(engine):
    engine.submit([request("0-1"), request("1-1")])
    engine.submit([request("2-1"), request("3-1")])
    updates = poll_until(engine, gone("0-1", "1-1", "2-1", "3-1"))
    assert [s.attempt_id for s in updates if s.status == "gone"] == ["0-1", "1-1", "2-1", "3-1"]


def test_avoided_sites_and_nodes():
    engine = SimulatedEngine("run-1", make_model(make_site("Ada", 3), make_site("Bob", 1)), AgentBehaviour(), 1)
    engine.submit([request(f"{n}-1", avoid_sites=("Ada",)) for n in range(3)])
    engine.submit([request(f"{n}-1", avoid_nodes=("Bob-1", "Ada-1")) for n in range(3, 8)])
    updates = poll_until(engine, gone(*(f"{n}-1" for n in range(8))))
    host_of = {s.job_id: s.host for s in updates if s.status == "started"}
    assert [host_of[str(n)] for n in range(3)] == ["Bob-1"] * 3
    assert {host_of[str(n)] for n in range(3, 8)} <= {"Ada-2", "Ada-3"}


def test_evicted_attempt_restarts():
    engine = SimulatedEngine("run-1", make_model(make_site(slots=1, evictions_per_s=1 / HOUR_S)), AgentBehaviour(), 3)
    engine.submit([request("0-1")])
    updates = poll_until(engine, gone("0-1"))
    history = [(s.status, s.execution) for s in updates if s.status in ("started", "interrupted", "gone")]
    n_executions = history[-1][1]
    assert n_executions > 1
    expected = [(status, n) for n in range(1, n_executions + 1) for status in ("started", "interrupted")]
    assert history == [*expected[:-1], ("gone", n_executions)]
    assert len({s.seq for s in updates if s.seq}) == len([s for s in updates if s.seq])


def test_hold_at_the_time_limit_and_release():
    engine = SimulatedEngine(
        "run-1", make_model(make_site(slots=1), time_limit_s=600.0), AgentBehaviour(checkpoint_interval_s=None), 1
    )
    engine.submit([request("0-1")])
    held = poll_until(engine, lambda updates: updates and updates[-1].status == "held")[-1]
    assert (held.failure_kind, held.hold_action, held.hold_code) == ("pool_time_limit", "give_up", (47, 0))
    engine.release(["0-1", "unknown"])
    assert [s.status for s in poll_until(engine, lambda updates: updates and updates[-1].status == "held")][:2] == [
        "released",
        "started",
    ]
    engine.cancel(["0-1"])
    poll_until(engine, gone("0-1"))


def test_clock_advances_while_idle(engine):
    engine.wait(30.0)
    assert engine.clock() == 30.0
    engine.needs_clock_tick = lambda: False
    engine.wait(30.0)
    assert engine.clock() > 1000.0
