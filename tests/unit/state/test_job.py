"""The state of a job, folded from its events."""

from __future__ import annotations

import pytest

from packtrain.events import Event, kinds
from packtrain.state import ExecutionStatus, JobStatus, fold
from tests.support.event_builder import RUN, RunBuilder

E, J = ExecutionStatus, JobStatus


@pytest.fixture
def run():
    return RunBuilder()


def test_job_lifecycle(run):
    assert run.job.status is J.WAITING
    run.submit(is_confirmed=False)
    assert (run.job.status, run.job.latest_execution.status) == (J.QUEUED, E.SUBMITTING)
    run.confirm()
    assert (run.job.status, run.job.latest_execution.status) == (J.QUEUED, E.QUEUED)
    run.start_agent()
    assert (run.job.status, run.job.latest_execution.status) == (J.RUNNING, E.RUNNING)
    run.add_stage("probe")
    run.add_stage("fetch", duration_s=None)
    run.add_event("agent-1", kinds.PROGRESS, stage="fetch", done=5, total=10)
    execution = run.job.latest_execution
    assert (execution.stage, execution.progress["done"], execution.stages[0].duration_s) == ("fetch", 5, 1.0)
    assert (execution.host, execution.site, execution.attempt_id, execution.number) == ("w1", "here", "0-1", 1)
    run.end_agent()
    assert (run.job.status, run.job.latest_execution.status) == (J.RUNNING, E.SUCCEEDED), "its outputs are published"
    assert run.job.live_executions == ()
    run.end_attempt(exit_code=0)
    assert run.job.latest_execution.status is E.SUCCEEDED, "the agent's own report counts"
    run.end_job("succeeded", emitter="agent-1")
    assert (run.job.status, run.job.result.emitter) == (J.SUCCEEDED, "agent-1")
    assert run.state.is_finished


def test_progress_of_earlier_stage_is_ignored(run):
    run.submit()
    run.start_agent()
    run.add_stage("fetch", duration_s=None)
    run.add_event("agent-1", kinds.PROGRESS, stage="fetch", done=10)
    run.add_stage("unpack", duration_s=None)
    assert run.job.latest_execution.progress == {}


def test_newest_step_metrics_and_notices(run):
    run.submit()
    run.start_agent()
    for step in ("prepare", "train"):
        run.add_event("agent-1", kinds.STEP_STARTED, step=step, command="c")
    for loss in (3.0, 2.0):
        run.add_event("agent-1", kinds.METRIC, loss=loss)
        run.add_event("agent-1", kinds.NOTICE, text=f"loss {loss}")
    execution = run.job.latest_execution
    assert (execution.step_name, execution.metrics["loss"], execution.notices) == (
        "train",
        2.0,
        ("loss 3.0", "loss 2.0"),
    )


def test_vanished_agent_is_lost(run):
    run.submit()
    run.start_agent()
    run.add_stage("fetch", duration_s=None)
    run.end_attempt(exit_code=-9, detail="the agent was killed by SIGKILL")
    failure = run.job.latest_execution.failure
    assert run.job.latest_execution.status is E.LOST
    assert (failure.kind, failure.stage, failure.transient) == ("agent_lost", "fetch", True)
    assert failure.detail == "the agent was killed by SIGKILL"
    assert run.job.latest_execution.exit_code == -9


def test_missing_python_is_known_by_exit_code(run):
    run.submit()
    run.end_attempt(exit_code=50)
    assert (run.job.latest_execution.status, run.job.latest_execution.failure.kind) == (E.LOST, "python_missing")
    assert run.job.latest_execution.failure.stage == "startup"


def test_requeued_execution_has_no_failure(run):
    run.submit()
    run.start_agent()
    run.end_agent("requeued")
    run.end_attempt(exit_code=85)
    assert (run.job.latest_execution.status, run.job.latest_execution.failure) == (E.REQUEUED, None)


def test_retries_are_numbered_by_decision(run):
    run.add_failed_attempt(1, "service_unavailable")
    run.add_failed_attempt(2, "agent_lost")
    run.replace_supervisor()
    run.submit("0-3")
    run.start_agent("agent-a", "0-3")
    executions = run.job.executions
    assert [(e.number, e.attempt_id, e.status) for e in executions] == [
        (1, "0-1", E.FAILED),
        (2, "0-2", E.FAILED),
        (3, "0-3", E.RUNNING),
    ]
    assert (run.job.status, run.job.n_attempts, run.job.latest_execution.number) == (J.RUNNING, 3, 3)


def test_pool_restart_adds_execution(run):
    run.submit("0-1")
    run.now = 10.0
    run.start_agent("agent-b", "0-1")
    run.submit("0-2")
    run.now = 5.0  # received later, but started earlier by the workers' clocks
    run.start_agent("agent-a", "0-1")
    run.end_agent("failed", "agent-a", failure="terminated")
    assert [(e.number, e.attempt_id, e.emitter, e.status) for e in run.job.executions] == [
        (1, "0-1", "agent-a", E.FAILED),
        (2, "0-1", "agent-b", E.RUNNING),
        (3, "0-2", "", E.QUEUED),
    ]


def test_only_unfinished_agent_is_lost(run):
    run.submit("0-1")
    run.start_agent("agent-a", "0-1")
    run.start_agent("agent-b", "0-1")
    run.end_agent("succeeded", "agent-b")
    run.end_attempt("0-1")
    assert {e.emitter: e.status for e in run.job.executions} == {"agent-a": E.LOST, "agent-b": E.SUCCEEDED}


def test_agent_event_before_decision(run):
    run.start_agent()
    assert run.job.executions == ()
    run.submit()
    assert run.job.latest_execution.status is E.RUNNING


def test_reopened_job_has_no_result(run):
    run.add_failed_attempt(1, "step_failed")
    run.end_job("failed")
    assert (run.job.status, len(run.job.recent_executions)) == (J.FAILED, 1)
    run.replace_supervisor()
    run.reopen()
    assert (run.job.status, run.job.result, run.job.recent_executions) == (J.WAITING, None, ())
    assert not run.state.is_finished
    run.submit("0-2")
    assert [e.attempt_id for e in run.job.recent_executions] == ["0-2"]
    assert run.job.latest_execution.number == 2
    run.end_job("succeeded")
    assert run.job.status is J.SUCCEEDED


def test_result_of_older_epoch_is_ignored(run):
    run.end_job("failed")
    old_event = run.events[-1]
    run.replace_supervisor()
    run.end_job("succeeded")
    run.events.append(old_event)
    assert fold(RUN, run.events).jobs["0"].status is J.SUCCEEDED


def test_result_has_failure(run):
    run.add_failed_attempt(1, "step_failed")
    run.end_job("failed", failure=run.job.latest_execution.failure.to_data())
    assert run.job.result.failure.kind == "step_failed"


def test_request_is_open_until_handled(run):
    first = run.request_cancel(reason="no longer needed")
    second = run.request_cancel()
    assert set(run.job.open_requests) == {first, second}
    assert run.job.open_requests[first]["reason"] == "no longer needed"
    run.end_job("cancelled", requests=(first,))
    assert set(run.job.open_requests) == {second}


def test_reopening_discards_requests(run):
    request = run.request_cancel()
    run.reopen(requests=(request,))
    assert run.job.open_requests == {}


def test_cancel_decision(run):
    run.submit()
    run.cancel()
    assert run.job.has_cancel_decision("0-1")
    assert not run.job.has_cancel_decision("0-2")


def test_repeated_confirmation_changes_nothing(run):
    run.submit()
    before = run.job.executions
    run.replace_supervisor()
    run.confirm()
    assert run.job.executions == before


def test_changed_at(run):
    run.now = 5.0
    run.submit()
    run.now = 7.0
    run.start_agent()
    assert run.job.changed_at == 5.0
    run.now = 9.0
    run.end_agent()
    assert run.job.changed_at == 9.0


def test_unknown_kinds_are_ignored(run):
    run.submit()
    before = run.job.executions
    run.add_event("agent-9", "future.kind", text="x")
    run.add_event("agent-9", "future.kind", "", text="x")
    assert run.job.executions == before


def test_run_state():
    run = RunBuilder("0", "1")
    state = run.state
    assert (list(state.jobs), state.metadata["name"], state.is_supervised) == (["0", "1"], "n", True)
    run.end_job("succeeded", "0")
    assert not run.state.is_finished
    run.end_job("failed", "1")
    assert run.state.is_finished
    assert (run.state.count_jobs(J.SUCCEEDED), run.state.count_jobs(J.FAILED)) == (1, 1)
    run.add_supervisor_event(kinds.SUPERVISOR_ENDED, "", reason="finished")
    assert not run.state.is_supervised


def test_run_without_events_is_not_finished():
    assert not fold(RUN, []).is_finished


def test_end_of_older_supervisor_is_ignored(run):
    run.add_supervisor_event(kinds.SUPERVISOR_ENDED, "", reason="lost")
    old_event = run.events.pop()
    run.received_at.pop()
    run.replace_supervisor()
    run.events.append(old_event)
    run.received_at.append(0.0)
    assert run.state.is_supervised


def test_created_run_is_not_supervised():
    assert not fold(RUN, [Event(RUN, "", "cli", 1, kinds.RUN_CREATED, 0.0, 0.0, {"points": {"0": {}}})]).is_supervised
