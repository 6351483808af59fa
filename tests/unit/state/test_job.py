"""A job's state as its events tell it."""

from __future__ import annotations

import pytest

from packtrain.events import Event, kinds
from packtrain.state import ExecutionStatus, JobStatus, fold
from tests.support.event_builder import RUN, RunBuilder

A, J = ExecutionStatus, JobStatus


@pytest.fixture
def story():
    return RunBuilder()


def test_a_typical_life(story):
    assert story.job.status is J.WAITING
    story.submit(is_confirmed=False)
    assert (story.job.status, story.job.latest_execution.status) == (J.QUEUED, A.SUBMITTING)
    story.confirm()
    assert (story.job.status, story.job.latest_execution.status) == (J.QUEUED, A.QUEUED)
    story.start_agent()
    assert (story.job.status, story.job.latest_execution.status) == (J.RUNNING, A.RUNNING)
    story.add_stage("probe")
    story.add_stage("fetch", duration_s=None)
    story.add_event("agent-1", kinds.PROGRESS, stage="fetch", done=5, total=10)
    attempt = story.job.latest_execution
    assert (attempt.stage, attempt.progress["done"], attempt.stages[0].duration_s) == ("fetch", 5, 1.0)
    assert (attempt.host, attempt.site, attempt.attempt_id, attempt.number) == ("w1", "here", "0-1", 1)
    story.end_agent()
    assert (story.job.status, story.job.latest_execution.status) == (J.WAITING, A.SUCCEEDED)
    assert story.job.live_executions == ()
    story.end_attempt(exit_code=0)
    assert story.job.latest_execution.status is A.SUCCEEDED, "the agent's own word stands"
    story.end_job("succeeded", emitter="agent-1")
    assert (story.job.status, story.job.result.emitter) == (J.SUCCEEDED, "agent-1")
    assert story.state.is_finished


def test_progress_of_an_earlier_stage_is_not_shown(story):
    story.submit()
    story.start_agent()
    story.add_stage("fetch", duration_s=None)
    story.add_event("agent-1", kinds.PROGRESS, stage="fetch", done=10)
    story.add_stage("unpack", duration_s=None)
    assert story.job.latest_execution.progress == {}


def test_steps_metrics_and_notices_of_the_newest_kind_are_shown(story):
    story.submit()
    story.start_agent()
    for step in ("prepare", "train"):
        story.add_event("agent-1", kinds.STEP_STARTED, step=step, command="c")
    for loss in (3.0, 2.0):
        story.add_event("agent-1", kinds.METRIC, loss=loss)
        story.add_event("agent-1", kinds.NOTICE, text=f"loss {loss}")
    attempt = story.job.latest_execution
    assert (attempt.step_name, attempt.metrics["loss"], attempt.notices) == ("train", 2.0, ("loss 3.0", "loss 2.0"))


def test_an_agent_that_vanishes_is_lost_in_its_stage(story):
    story.submit()
    story.start_agent()
    story.add_stage("fetch", duration_s=None)
    story.end_attempt(exit_code=-9, detail="the agent was killed by SIGKILL")
    failure = story.job.latest_execution.failure
    assert story.job.latest_execution.status is A.LOST
    assert (failure.kind, failure.stage, failure.transient) == ("agent_lost", "fetch", True)
    assert failure.detail == "the agent was killed by SIGKILL, in the stage fetch"
    assert story.job.latest_execution.exit_code == -9


def test_a_launcher_that_found_no_python_is_known_by_its_exit_code(story):
    story.submit()
    story.end_attempt(exit_code=50)
    assert (story.job.latest_execution.status, story.job.latest_execution.failure.kind) == (A.LOST, "python_missing")
    assert story.job.latest_execution.failure.stage == "startup"


def test_an_attempt_that_left_on_purpose_has_no_failure(story):
    story.submit()
    story.start_agent()
    story.end_agent("requeued")
    story.end_attempt(exit_code=85)
    assert (story.job.latest_execution.status, story.job.latest_execution.failure) == (A.REQUEUED, None)


def test_retries_are_numbered_in_the_order_of_their_decisions(story):
    story.add_failed_attempt(1, "service_unavailable")
    story.add_failed_attempt(2, "agent_lost")
    story.replace_supervisor()
    story.submit("0-3")
    story.start_agent("agent-a", "0-3")
    attempts = story.job.executions
    assert [(a.number, a.attempt_id, a.status) for a in attempts] == [
        (1, "0-1", A.FAILED),
        (2, "0-2", A.FAILED),
        (3, "0-3", A.RUNNING),
    ]
    assert (story.job.status, story.job.n_attempts, story.job.latest_execution.number) == (J.RUNNING, 3, 3)


def test_a_pool_that_reruns_one_decision_makes_two_attempts_and_renumbers(story):
    story.submit("0-1")
    story.now = 10.0
    story.start_agent("agent-b", "0-1")
    story.submit("0-2")
    story.now = 5.0  # heard later, but started earlier by the workers' clocks
    story.start_agent("agent-a", "0-1")
    story.end_agent("failed", "agent-a", failure="terminated")
    found = [(a.number, a.attempt_id, a.emitter, a.status) for a in story.job.executions]
    assert found == [
        (1, "0-1", "agent-a", A.FAILED),
        (2, "0-1", "agent-b", A.RUNNING),
        (3, "0-2", "", A.QUEUED),
    ]


def test_what_a_rerun_did_not_say_is_lost_only_where_it_did_not_end(story):
    story.submit("0-1")
    story.start_agent("agent-a", "0-1")
    story.start_agent("agent-b", "0-1")
    story.end_agent("succeeded", "agent-b")
    story.end_attempt("0-1")
    assert {a.emitter: a.status for a in story.job.executions} == {"agent-a": A.LOST, "agent-b": A.SUCCEEDED}


def test_an_agent_heard_before_its_decision_is_shown_once_the_decision_is_known(story):
    story.start_agent()
    assert story.job.executions == ()
    story.submit()
    assert story.job.latest_execution.status is A.RUNNING


def test_a_reopened_job_has_no_verdict_and_a_fresh_budget(story):
    story.add_failed_attempt(1, "step_failed")
    story.end_job("failed")
    assert (story.job.status, len(story.job.recent_executions)) == (J.FAILED, 1)
    story.replace_supervisor()
    story.reopen()
    assert (story.job.status, story.job.result, story.job.recent_executions) == (J.WAITING, None, ())
    assert not story.state.is_finished
    story.submit("0-2")
    assert [a.attempt_id for a in story.job.recent_executions] == ["0-2"]
    assert story.job.latest_execution.number == 2
    story.end_job("succeeded")
    assert story.job.status is J.SUCCEEDED


def test_a_verdict_of_an_older_epoch_never_returns(story):
    story.end_job("failed")
    old = story.events[-1]
    story.replace_supervisor()
    story.end_job("succeeded")
    story.events.append(old)
    assert fold(RUN, story.events).jobs["0"].status is J.SUCCEEDED


def test_a_verdict_keeps_its_failure(story):
    story.add_failed_attempt(1, "step_failed")
    story.end_job("failed", failure=story.job.latest_execution.failure.to_data())
    assert story.job.result.failure.kind == "step_failed"


def test_a_request_is_open_until_a_verdict_answers_it(story):
    first = story.request_cancel(reason="no longer needed")
    second = story.request_cancel()
    assert set(story.job.open_requests) == {first, second}
    assert story.job.open_requests[first]["reason"] == "no longer needed"
    story.end_job("cancelled", requests=(first,))
    assert set(story.job.open_requests) == {second}


def test_a_reopening_makes_earlier_requests_void(story):
    asked = story.request_cancel()
    story.reopen(requests=(asked,))
    assert story.job.open_requests == {}


def test_a_decided_cancellation_is_remembered(story):
    story.submit()
    story.cancel()
    assert story.job.has_cancel_decision("0-1")
    assert not story.job.has_cancel_decision("0-2")


def test_repeated_confirmations_change_nothing(story):
    story.submit()
    before = story.job.executions
    story.replace_supervisor()
    story.confirm()
    assert story.job.executions == before


def test_changed_at_is_when_the_last_lifecycle_event_arrived(story):
    story.now = 5.0
    story.submit()
    story.now = 7.0
    story.start_agent()
    assert story.job.changed_at == 5.0
    story.now = 9.0
    story.end_agent()
    assert story.job.changed_at == 9.0


def test_unknown_kinds_are_skipped(story):
    story.submit()
    before = story.job.executions
    story.add_event("agent-9", "of.tomorrow", text="x")
    story.add_event("agent-9", "of.tomorrow", "", text="x")
    assert story.job.executions == before


def test_a_run_knows_its_jobs_and_its_supervisor():
    story = RunBuilder("0", "1")
    state = story.state
    assert (list(state.jobs), state.metadata["name"], state.is_supervised) == (["0", "1"], "n", True)
    story.end_job("succeeded", "0")
    assert not story.state.is_finished
    story.end_job("failed", "1")
    assert story.state.is_finished
    assert (story.state.count_jobs(J.SUCCEEDED), story.state.count_jobs(J.FAILED)) == (1, 1)
    story.add_supervisor_event(kinds.SUPERVISOR_ENDED, "", reason="finished")
    assert not story.state.is_supervised


def test_a_run_without_events_is_not_finished():
    assert not fold(RUN, []).is_finished


def test_the_end_of_an_older_supervisor_does_not_hide_the_newer(story):
    story.add_supervisor_event(kinds.SUPERVISOR_ENDED, "", reason="lost")
    ended = story.events.pop()
    story.received_at.pop()
    story.replace_supervisor()
    story.events.append(ended)
    story.received_at.append(0.0)
    assert story.state.is_supervised


def test_a_run_that_is_only_created_is_not_supervised():
    assert not fold(RUN, [Event(RUN, "", "cli", 1, kinds.RUN_CREATED, 0.0, 0.0, {"points": {"0": {}}})]).is_supervised
