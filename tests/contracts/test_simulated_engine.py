"""The engine contract (test_engine_contract.py) for the simulated engine.

Parts about processes, journals and a second engine for the same pool do not apply.
"""

from __future__ import annotations

import pytest

from packtrain.engines.api import Overrides, SubmitRequest
from packtrain.engines.updates import (
    AgentEventsReceived,
    ExecutionInterrupted,
    ExecutionStarted,
    Gone,
    Held,
    ProgressReported,
    Queued,
    Released,
    Running,
)
from packtrain.events import kinds
from packtrain.plan import Job, Limits, Resources
from packtrain.simulate.job_behaviour import AgentBehaviour
from packtrain.simulate.simulated_engine import SimulatedEngine
from tests.support.pool_models import HOUR_S, make_model, make_site

ATTEMPT_S = 600 + HOUR_S + 2  # transfer, compute, probe


@pytest.fixture
def engine():
    return SimulatedEngine("run-1", make_model(make_site(slots=1)), AgentBehaviour(), 1)


def request(attempt_id, **overrides):
    return SubmitRequest(
        attempt_id, Job(attempt_id.partition("-")[0], (), Resources(), Limits(), ()), Overrides(**overrides)
    )


def poll_until(engine, is_done):
    """Return all updates until `is_done` accepts them."""
    updates = list(engine.poll())
    for _ in range(1000):
        if is_done(updates):
            return updates
        engine.wait(30.0)
        updates += engine.poll()
    raise AssertionError(updates[-3:])


def are_gone(*attempt_ids):
    return lambda updates: set(attempt_ids) <= {update.attempt_id for update in updates if isinstance(update, Gone)}


def is_started(attempt_id):
    return lambda updates: attempt_id in {u.attempt_id for u in updates if isinstance(u, ExecutionStarted)}


def agent_events(updates, kind):
    received = [update.events for update in updates if isinstance(update, AgentEventsReceived)]
    return [event for events in received for event in events if event.kind == kind]


def test_attempt_runs_to_its_end(engine):
    engine.submit([request("0-1")])
    updates = poll_until(engine, are_gone("0-1"))
    assert (updates[-1].attempt_id, updates[-1].job_id, updates[-1].exit_code, bool(updates[-1].detail)) == (
        "0-1",
        "0",
        0,
        True,
    )
    assert updates[-1].occurred_at == pytest.approx(ATTEMPT_S)
    (ended,) = agent_events(updates, kinds.AGENT_ENDED)
    assert ended.data["outcome"] == "succeeded"
    (started,) = agent_events(updates, kinds.AGENT_STARTED)
    assert (started.data["attempt"], started.data["site"]) == ("0-1", "Ada")
    steps = [update.progress["step"] for update in updates if isinstance(update, ProgressReported)]
    assert steps == sorted(set(steps)) and steps, "progress is reported in order"


def test_gone_is_reported_once(engine):
    engine.submit([request("0-1")])
    poll_until(engine, are_gone("0-1"))
    engine.wait(30.0)
    assert list(engine.poll()) == []


def test_submit_is_idempotent(engine):
    engine.submit([request("0-1"), request("0-1")])
    engine.submit([request("0-1")])
    poll_until(engine, are_gone("0-1"))
    engine.submit([request("0-1"), request("1-1")])
    updates = poll_until(engine, are_gone("1-1"))
    assert {update.attempt_id for update in updates} == {"1-1"}
    assert len(engine.pool.job_records["0"].sessions) == 1


def test_recover(engine):
    engine.submit([request("0-1")])
    poll_until(engine, is_started("0-1"))
    engine.submit([request("1-1")])
    requests = [request("0-1"), request("1-1"), request("2-1")]
    assert engine.recover(requests) == [Running("0-1", "0"), Queued("1-1", "1")]
    poll_until(engine, are_gone("0-1"))
    assert [type(update) for update in engine.recover(requests[:1])] == [Gone]


def test_cancel(engine):
    engine.submit([request("0-1"), request("1-1"), request("2-1")])
    poll_until(engine, is_started("0-1"))
    engine.cancel(["1-1", "unknown", "0-1", "0-1"])
    updates = poll_until(engine, are_gone("0-1", "1-1"))
    assert [update.attempt_id for update in updates if isinstance(update, Gone)] == ["1-1", "0-1"]
    poll_until(engine, are_gone("2-1"))
    engine.cancel(["2-1"])
    assert list(engine.poll()) == []
    assert "1" not in engine.pool.job_records or not engine.pool.job_records["1"].sessions


def test_cancelled_attempt_saves_checkpoint(engine):
    engine.submit([request("0-1")])
    poll_until(engine, lambda updates: any(isinstance(update, ProgressReported) for update in updates))
    engine.cancel(["0-1"])
    updates = poll_until(engine, are_gone("0-1"))
    (ended,) = agent_events(updates, kinds.AGENT_ENDED)
    assert ended.data["outcome"] == "requeued" and ended.data["step"] > 0
    engine.submit([request("0-2")])
    (restored,) = agent_events(poll_until(engine, are_gone("0-2")), kinds.CHECKPOINT_RESTORED)
    assert restored.data["step"] == ended.data["step"]


def test_attempts_start_in_order(engine):
    engine.submit([request("0-1"), request("1-1")])
    engine.submit([request("2-1"), request("3-1")])
    updates = poll_until(engine, are_gone("0-1", "1-1", "2-1", "3-1"))
    assert [update.attempt_id for update in updates if isinstance(update, Gone)] == ["0-1", "1-1", "2-1", "3-1"]


def test_avoided_sites_and_nodes():
    engine = SimulatedEngine("run-1", make_model(make_site("Ada", 3), make_site("Bob", 1)), AgentBehaviour(), 1)
    engine.submit([request(f"{n}-1", avoid_sites=("Ada",)) for n in range(3)])
    engine.submit([request(f"{n}-1", avoid_nodes=("Bob-1", "Ada-1")) for n in range(3, 8)])
    updates = poll_until(engine, are_gone(*(f"{n}-1" for n in range(8))))
    hosts = {update.job_id: update.host for update in updates if isinstance(update, ExecutionStarted)}
    assert [hosts[str(n)] for n in range(3)] == ["Bob-1"] * 3
    assert {hosts[str(n)] for n in range(3, 8)} <= {"Ada-2", "Ada-3"}


def test_evicted_attempt_is_restarted():
    engine = SimulatedEngine("run-1", make_model(make_site(slots=1, evictions_per_s=1 / HOUR_S)), AgentBehaviour(), 3)
    engine.submit([request("0-1")])
    updates = poll_until(engine, are_gone("0-1"))
    executions = [
        (type(update), update.execution)
        for update in updates
        if isinstance(update, (ExecutionStarted, ExecutionInterrupted))
    ]
    n_executions = executions[-1][1]
    assert n_executions > 1
    types = (ExecutionStarted, ExecutionInterrupted)
    assert executions == [(type_, n) for n in range(1, n_executions + 1) for type_ in types][:-1]
    assert isinstance(updates[-1], Gone)
    assert len({update.seq for update in updates if update.seq}) == len([update for update in updates if update.seq])


def test_held_at_time_limit_and_released():
    engine = SimulatedEngine(
        "run-1", make_model(make_site(slots=1), time_limit_s=600.0), AgentBehaviour(checkpoint_interval_s=None), 1
    )
    engine.submit([request("0-1")])
    is_held = lambda updates: updates and isinstance(updates[-1], Held)  # noqa: E731
    held = poll_until(engine, is_held)[-1]
    assert (held.failure_kind, held.action, held.code) == ("pool_time_limit", "give_up", 47)
    engine.release(["0-1", "unknown"])
    updates = [update for update in poll_until(engine, is_held) if update.seq]
    assert [type(update) for update in updates[:2]] == [Released, ExecutionStarted]
    engine.cancel(["0-1"])
    poll_until(engine, are_gone("0-1"))


def test_wait_advances_clock(engine):
    engine.wait(30.0)
    assert engine.clock() == 30.0
    engine.needs_clock_tick = lambda: False
    engine.wait(30.0)
    assert engine.clock() > 1000.0
