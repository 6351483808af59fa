"""How the time of a run was used, by the agents' stages and the pool's log."""

from __future__ import annotations

import pytest

from packtrain.views.time_summary import summarize_times
from tests.support.event_builder import RunBuilder

AGENT_TIMES = {"startup": 2.0, "fetch": 2.0, "steps": 5.0}


@pytest.fixture
def run():
    run = RunBuilder()
    run.now = 100.4  # the access point's clock has fractions, the log has whole seconds
    run.submit()
    return run


def call_at(run, now, method, *args, **kwargs):
    run.now = float(now)
    getattr(run, method)(*args, **kwargs)


def transfer_inputs(run, started_at, ended_at, start=1):
    call_at(run, started_at, "add_transfer", "in", "started", start)
    call_at(run, ended_at, "add_transfer", "in", "finished", start)


def transfer_outputs(run, started_at, ended_at, start=1):
    call_at(run, started_at, "add_transfer", "out", "started", start)
    call_at(run, ended_at, "add_transfer", "out", "finished", start)


def summarize(run):
    times = summarize_times(run.state)
    return {**times.seconds_by_stage, "wasted": times.wasted_s}


def add_agent(run, name="agent-1", outcome="succeeded", failure=""):
    """Add an agent that takes 9 s, 2 s of them to fetch and 5 s for steps, by another clock."""
    run.now = 7_000_000.0
    run.start_agent(name)
    run.add_stage("fetch", name, duration_s=2.0)
    run.add_stage("steps", name, duration_s=5.0)
    run.end_agent(outcome, name, failure=failure)


def test_local_run(run):
    add_agent(run)
    assert summarize(run) == {**AGENT_TIMES, "wasted": 0.0}


def test_pool_run(run):
    transfer_inputs(run, 130, 140)
    call_at(run, 141, "start_execution")
    add_agent(run)
    transfer_outputs(run, 152, 155)
    call_at(run, 155, "end_attempt", exit_code=0)
    # 12 s on the slot (141 to 152, and 1 s after the inputs), 9 s of which are the agent's.
    assert summarize(run) == {
        "queue": 30.0,
        "transfer": 13.0,
        "startup": 5.0,
        "fetch": 2.0,
        "steps": 5.0,
        "wasted": 0.0,
    }
    assert summarize_times(run.state).total_s == 155 - 100


def test_transfer_queue_counts_as_transfer(run):
    call_at(run, 110, "add_transfer", "in", "queued")
    transfer_inputs(run, 130, 140)
    call_at(run, 140, "start_execution")
    assert summarize(run) == {"queue": 10.0, "transfer": 30.0, "wasted": 0.0}


def test_start_logged_before_end_of_inputs(run):
    call_at(run, 130, "add_transfer", "in", "started")
    call_at(run, 140, "start_execution")
    call_at(run, 140, "add_transfer", "in", "finished")
    add_agent(run)
    transfer_outputs(run, 149, 150)
    call_at(run, 150, "end_attempt", exit_code=0)
    assert summarize(run) == {"queue": 30.0, "transfer": 11.0, **AGENT_TIMES, "wasted": 0.0}


def test_evicted_execution_is_wasted(run):
    transfer_inputs(run, 110, 120)
    call_at(run, 120, "start_execution")
    run.start_agent("agent-1")
    call_at(run, 170, "interrupt_execution", 1, emitters=("agent-1",))
    transfer_inputs(run, 200, 210, start=2)
    call_at(run, 210, "start_execution", 2)
    add_agent(run, "agent-2")
    transfer_outputs(run, 219, 220, start=2)
    call_at(run, 220, "end_attempt", exit_code=0)
    assert summarize(run) == {"queue": 40.0, "transfer": 11.0, **AGENT_TIMES, "wasted": 60.0}


def test_requeued_agent_before_eviction_is_useful(run):
    transfer_inputs(run, 110, 120)
    call_at(run, 120, "start_execution")
    add_agent(run, "agent-1", "requeued")
    transfer_outputs(run, 130, 132)
    run.start_agent("agent-2")
    call_at(run, 150, "interrupt_execution", 1, emitters=("agent-1", "agent-2"))
    # 28 s on the slot, 9 s of which are the first agent's.
    assert summarize(run) == {"queue": 10.0, "transfer": 12.0, **AGENT_TIMES, "wasted": 19.0}


def test_failed_inputs_and_hold(run):
    transfer_inputs(run, 110, 140)
    call_at(run, 141, "add_transfer", "out", "started")
    call_at(run, 141, "hold")
    call_at(run, 201, "release")
    transfer_inputs(run, 211, 221)
    call_at(run, 221, "start_execution")
    add_agent(run)
    call_at(run, 230, "end_attempt", exit_code=0)
    assert summarize(run) == {"queue": 20.0, "held": 60.0, "transfer": 10.0, **AGENT_TIMES, "wasted": 31.0}


def test_interrupted_during_inputs(run):
    call_at(run, 110, "add_transfer", "in", "started")
    call_at(run, 150, "interrupt_execution", 0)
    assert [execution.execution_number for execution in run.job.executions] == [0], "no execution was started"
    transfer_inputs(run, 160, 170)
    call_at(run, 170, "start_execution")
    assert summarize(run) == {"queue": 20.0, "transfer": 10.0, "wasted": 40.0}


def test_removed_during_inputs(run):
    call_at(run, 110, "add_transfer", "in", "started")
    call_at(run, 150, "end_attempt")
    assert summarize(run) == {"queue": 10.0, "wasted": 40.0}


def test_end_missing_from_log(run):
    """A shadow was killed, and the next execution starts."""
    transfer_inputs(run, 110, 120)
    call_at(run, 120, "start_execution")
    transfer_inputs(run, 150, 160, start=2)
    call_at(run, 160, "start_execution", 2)
    add_agent(run, "agent-2")
    call_at(run, 169, "end_attempt", exit_code=0)
    assert summarize(run)["queue"] == 10.0
    assert summarize(run)["transfer"] == 20.0
    assert summarize_times(run.state).total_s == 69.0


def test_failed_execution_is_wasted(run):
    transfer_inputs(run, 110, 120)
    call_at(run, 120, "start_execution")
    add_agent(run, outcome="failed", failure="step_failed")
    transfer_outputs(run, 131, 140)
    call_at(run, 140, "end_attempt", exit_code=10)
    assert summarize(run) == {"queue": 10.0, "wasted": 30.0}


def test_running_phase_is_not_counted(run):
    transfer_inputs(run, 110, 120)
    call_at(run, 120, "start_execution")
    run.start_agent("agent-1")
    run.add_stage("fetch", duration_s=2.0)
    assert summarize(run) == {"queue": 10.0, "transfer": 10.0, "fetch": 2.0, "wasted": 0.0}


def test_rounding_cancels_out():
    """A job of 1.5 s takes 1 s or 2 s by the log."""
    run = RunBuilder(*map(str, range(10)))
    for job in map(str, range(10)):
        run.now = 100.0
        run.submit(f"{job}-1", job)
        run.now = 110.0
        run.start_execution(attempt_id=f"{job}-1", job=job)
        run.start_agent(f"agent-{job}", f"{job}-1", job)
        run.add_event(f"agent-{job}", "agent.ended", job, outcome="succeeded", exit_code=0, failure=None, seconds=1.5)
        run.now = 111.0 + int(job) % 2
        run.end_attempt(f"{job}-1", job, 0)
    assert summarize(run) == {"queue": 100.0, "startup": 15.0, "wasted": 0.0}
