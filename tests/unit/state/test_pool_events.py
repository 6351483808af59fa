"""Attempts that a pool restarts, holds and releases."""

from __future__ import annotations

import pytest

from packtrain.events import kinds
from packtrain.state import ExecutionStatus, JobStatus
from tests.support.event_builder import RunBuilder

E, J = ExecutionStatus, JobStatus


@pytest.fixture
def run():
    run = RunBuilder()
    run.submit()
    return run


def summarize(run) -> list[tuple[int, str, ExecutionStatus]]:
    return [(e.execution_number, e.emitter, e.status) for e in run.job.executions]


def test_engine_reports_start_before_agent(run):
    run.start_execution(site="CHTC-Spark-CE1")
    assert summarize(run) == [(1, "", E.RUNNING)]
    assert (run.job.latest_execution.site, run.job.latest_execution.host) == ("CHTC-Spark-CE1", "w9")
    run.start_agent()
    assert summarize(run) == [(1, "agent-1", E.RUNNING)]
    assert run.job.latest_execution.site == "here", "the agent's own report counts"


def test_restart_after_eviction(run):
    run.start_execution(1)
    run.start_agent("agent-1")
    run.interrupt_execution(1, emitters=("agent-1",))
    assert summarize(run) == [(1, "agent-1", E.LOST), (0, "", E.QUEUED)]
    assert run.job.executions[0].failure.kind == "evicted"
    assert (run.job.status, len(run.job.live_executions)) == (J.QUEUED, 1)
    run.start_execution(2)
    run.start_agent("agent-2")
    run.end_agent("succeeded", "agent-2")
    run.end_attempt(exit_code=0)
    assert summarize(run) == [(1, "agent-1", E.LOST), (2, "agent-2", E.SUCCEEDED)]
    assert [a.number for a in run.job.executions] == [1, 2]


def test_evictions_do_not_count(run):
    for number in range(1, 6):
        run.start_execution(number)
        run.interrupt_execution(number)
    assert run.job.counted_failures == ()
    run.end_attempt(detail="it vanished")
    assert len(run.job.counted_failures) == 1, "the pool did not restart the last one"


def test_failed_executions_count(run):
    for number in (1, 2):
        run.start_execution(number)
        run.interrupt_execution(number, kind="container_failed")
    assert [a.failure.kind for a in run.job.counted_failures] == ["container_failed"] * 2


def test_success_without_outputs_is_lost(run):
    run.start_execution(1)
    run.start_agent("agent-1")
    run.end_agent("succeeded", "agent-1")
    run.interrupt_execution(1, emitters=("agent-1",))
    assert summarize(run) == [(1, "agent-1", E.LOST), (0, "", E.QUEUED)]


def test_engine_explains_terminated_agent(run):
    run.start_execution(1)
    run.start_agent("agent-1")
    run.add_stage("steps", duration_s=None)
    run.end_agent("failed", "agent-1", failure="terminated")
    run.interrupt_execution(1, kind="pool_time_limit", emitters=("agent-1",))
    failure = run.job.executions[0].failure
    assert (failure.kind, failure.stage, failure.transient) == ("pool_time_limit", "steps", True)


def test_agent_failure_wins_over_eviction(run):
    run.start_execution(1)
    run.start_agent("agent-1")
    run.end_agent("failed", "agent-1", failure="step_failed")
    run.interrupt_execution(1, emitters=("agent-1",))
    assert run.job.executions[0].failure.kind == "step_failed"


def test_executions_without_agent(run):
    for number in (1, 2):
        run.start_execution(number)
        run.interrupt_execution(number)
    run.start_execution(3)
    run.start_agent("agent-1")
    assert summarize(run) == [(1, "", E.LOST), (2, "", E.LOST), (3, "agent-1", E.RUNNING)]


def test_several_agents_of_one_start(run):
    """After exit code 85 HTCondor starts the launcher again in the same sandbox."""
    run.start_execution(1)
    run.start_agent("agent-1")
    run.end_agent("requeued", "agent-1")
    run.now = 5.0
    run.start_agent("agent-2")
    assert summarize(run) == [(1, "agent-1", E.REQUEUED), (1, "agent-2", E.RUNNING)]


def test_held_and_released(run):
    run.now = 7.0
    run.hold()
    job = run.job
    assert (job.status, job.latest_execution.status) == (J.HELD, E.HELD)
    assert (job.latest_execution.hold.event.data["detail"], job.latest_execution.hold.received_at) == (
        "it is held",
        7.0,
    )
    run.release()
    assert (run.job.status, run.job.latest_execution.hold) == (J.QUEUED, None)


def test_hold_ends_execution(run):
    run.start_execution(1)
    run.start_agent("agent-1")
    run.hold("give_up", execution=1, kind="pool_time_limit")
    assert summarize(run) == [(1, "agent-1", E.LOST), (0, "", E.HELD)]
    run.end_attempt(detail="packtrain: cancelled")
    assert summarize(run) == [(1, "agent-1", E.LOST)]
    assert run.job.executions[0].failure.kind == "pool_time_limit"


def test_hold_in_queue_does_not_end_execution(run):
    """The inputs of the next execution were not transferred: the node of the previous one is not to blame."""
    run.start_execution(1)
    run.start_agent("agent-1")
    run.save_checkpoint(7, "agent-1")
    run.interrupt_execution(1, emitters=("agent-1",))
    run.answer_hold("give_up", run.hold("give_up", kind="transfer_failed"))
    n_before = len(summarize(run))
    run.end_attempt(detail="packtrain: cancelled")
    evicted, held = run.job.executions
    assert (evicted.failure.kind, evicted.node, held.failure.kind, held.node) == (
        *("evicted", "w9"),
        *("transfer_failed", ""),
    )
    assert [a.number for a in run.job.counted_failures] == [2] and n_before == 2, "the number does not change"


def run_until_held(run, attempt_id, steps):
    """Start and evict the attempt once per entry of `steps` (the step of its checkpoint, or None), then hold it."""
    run.submit(attempt_id)
    for number, step in enumerate(steps, 1):
        agent = f"agent-{attempt_id}-{number}"
        run.start_execution(number, attempt_id)
        run.start_agent(agent, attempt_id)
        if step is not None:
            run.save_checkpoint(step, agent)
        run.interrupt_execution(number, attempt_id, emitters=(agent,))
    return run.hold("give_up", attempt_id=attempt_id, kind="restart_loop")


def test_restart_loop_with_progress_does_not_count():
    run = RunBuilder()
    for number, first in enumerate((0, 11, 22), 1):
        hold = run_until_held(run, f"0-{number}", range(first, first + 11))
        run.answer_hold("give_up", hold, f"0-{number}")
        run.end_attempt(f"0-{number}")
    assert run.job.counted_failures == ()
    assert not any(location.faults for location in run.state.stats.nodes.values())


def test_restart_loop_without_progress_counts_once():
    run = RunBuilder()
    for number in (1, 2):
        run.answer_hold("give_up", run_until_held(run, f"0-{number}", [4] * 11), f"0-{number}")
        run.end_attempt(f"0-{number}")
    assert [(a.attempt_id, a.failure.kind) for a in run.job.counted_failures] == [("0-2", "restart_loop")]


def test_given_up_attempt_fails_with_hold_reason(run):
    hold = run.hold("give_up", kind="transfer_too_large")
    run.answer_hold("give_up", hold)
    run.end_attempt(detail="packtrain: cancelled")
    (execution,) = run.job.counted_failures
    assert (execution.status, execution.failure.kind) == (E.LOST, "transfer_too_large")


def test_removed_by_user(run):
    run.start_execution(1)
    run.start_agent("agent-1")
    run.end_agent("failed", "agent-1", failure="terminated")
    run.add_event(
        "engine-0-1", kinds.ATTEMPT_GONE, attempt="0-1", exit_code=None, detail="via condor_rm", kind="cancelled"
    )
    assert run.job.executions[0].failure.kind == "cancelled"
    assert not run.job.executions[0].failure.transient


def test_progress_snapshot(run):
    run.start_execution(1)
    state = run.state
    state.update_progress({"0-1": {"attempt": "0-1", "stage": "fetch", "done": 5, "total": 10}})
    execution = state.jobs["0"].latest_execution
    assert (execution.stage, execution.progress["done"], execution.progress["total"]) == ("fetch", 5, 10)
    snapshot = {"attempt": "0-1", "stage": "steps", "epoch": 2, "loss": 0.5, "metrics": {"accuracy": 0.9, "x": "no"}}
    state.update_progress({"0-1": snapshot})
    assert state.jobs["0"].latest_execution.metrics == {"epoch": 2, "loss": 0.5, "accuracy": 0.9}


@pytest.mark.parametrize("snapshot", [{"attempt": "0-9", "stage": "fetch"}, {"stage": "fetch"}, {}])
def test_snapshot_of_other_attempt_is_ignored(run, snapshot):
    state = run.state
    state.update_progress({"0-1": snapshot, "7-1": {"attempt": "7-1", "stage": "fetch"}})
    assert list(state.jobs) == ["0"]
    assert state.jobs["0"].latest_execution.stage == ""
