"""A job's state as its events tell it."""

from __future__ import annotations

import pytest

from packtrain.events import Event, kinds
from packtrain.state import AttemptStatus, JobStatus, fold
from tests.support.event_builder import RUN, Story

A, J = AttemptStatus, JobStatus


@pytest.fixture
def story():
    return Story()


def test_a_typical_life(story):
    assert story.job.status is J.WAITING
    story.submit(confirm=False)
    assert (story.job.status, story.job.latest.status) == (J.QUEUED, A.DECIDED)
    story.confirm()
    assert (story.job.status, story.job.latest.status) == (J.QUEUED, A.QUEUED)
    story.start()
    assert (story.job.status, story.job.latest.status) == (J.RUNNING, A.RUNNING)
    story.stage("probe")
    story.stage("fetch", seconds=None)
    story.say("agent-1", kinds.PROGRESS, stage="fetch", done=5, total=10)
    attempt = story.job.latest
    assert (attempt.stage, attempt.progress["done"], attempt.stages[0].seconds) == ("fetch", 5, 1.0)
    assert (attempt.host, attempt.site, attempt.decision, attempt.number) == ("w1", "here", "0-1", 1)
    story.end()
    assert (story.job.status, story.job.latest.status) == (J.WAITING, A.SUCCEEDED)
    assert story.job.live == ()
    story.gone(code=0)
    assert story.job.latest.status is A.SUCCEEDED, "the agent's own word stands"
    story.verdict("succeeded", emitter="agent-1")
    assert (story.job.status, story.job.verdict.emitter) == (J.SUCCEEDED, "agent-1")
    assert story.state.finished


def test_progress_of_an_earlier_stage_is_not_shown(story):
    story.submit()
    story.start()
    story.stage("fetch", seconds=None)
    story.say("agent-1", kinds.PROGRESS, stage="fetch", done=10)
    story.stage("unpack", seconds=None)
    assert story.job.latest.progress == {}


def test_steps_metrics_and_notices_of_the_newest_kind_are_shown(story):
    story.submit()
    story.start()
    for step in ("prepare", "train"):
        story.say("agent-1", kinds.STEP_STARTED, step=step, command="c")
    for loss in (3.0, 2.0):
        story.say("agent-1", kinds.METRIC, loss=loss)
        story.say("agent-1", kinds.NOTICE, text=f"loss {loss}")
    attempt = story.job.latest
    assert (attempt.step, attempt.metric["loss"], attempt.notices) == ("train", 2.0, ("loss 3.0", "loss 2.0"))


def test_an_agent_that_vanishes_is_lost_in_its_stage(story):
    story.submit()
    story.start()
    story.stage("fetch", seconds=None)
    story.gone(code=-9, detail="the agent was killed by SIGKILL")
    failure = story.job.latest.failure
    assert story.job.latest.status is A.LOST
    assert (failure.kind, failure.stage, failure.transient) == ("agent_lost", "fetch", True)
    assert failure.detail == "the agent was killed by SIGKILL, in the stage fetch"
    assert story.job.latest.exit_code == -9


def test_a_launcher_that_found_no_python_is_known_by_its_exit_code(story):
    story.submit()
    story.gone(code=50)
    assert (story.job.latest.status, story.job.latest.failure.kind) == (A.LOST, "python_missing")
    assert story.job.latest.failure.stage == "start"


def test_an_attempt_that_left_on_purpose_has_no_failure(story):
    story.submit()
    story.start()
    story.end("continue")
    story.gone(code=85)
    assert (story.job.latest.status, story.job.latest.failure) == (A.LEFT, None)


def test_retries_are_numbered_in_the_order_of_their_decisions(story):
    story.fail(1, "service_unavailable")
    story.fail(2, "agent_lost")
    story.takeover()
    story.submit("0-3")
    story.start("agent-a", "0-3")
    attempts = story.job.attempts
    assert [(a.number, a.decision, a.status) for a in attempts] == [
        (1, "0-1", A.FAILED),
        (2, "0-2", A.FAILED),
        (3, "0-3", A.RUNNING),
    ]
    assert (story.job.status, story.job.submissions, story.job.latest.number) == (J.RUNNING, 3, 3)


def test_a_pool_that_reruns_one_decision_makes_two_attempts_and_renumbers(story):
    story.submit("0-1")
    story.now = 10.0
    story.start("agent-b", "0-1")
    story.submit("0-2")
    story.now = 5.0  # heard later, but started earlier by the workers' clocks
    story.start("agent-a", "0-1")
    story.end("failed", "agent-a", failure="terminated")
    found = [(a.number, a.decision, a.emitter, a.status) for a in story.job.attempts]
    assert found == [
        (1, "0-1", "agent-a", A.FAILED),
        (2, "0-1", "agent-b", A.RUNNING),
        (3, "0-2", "", A.QUEUED),
    ]


def test_what_a_rerun_did_not_say_is_lost_only_where_it_did_not_end(story):
    story.submit("0-1")
    story.start("agent-a", "0-1")
    story.start("agent-b", "0-1")
    story.end("succeeded", "agent-b")
    story.gone("0-1")
    assert {a.emitter: a.status for a in story.job.attempts} == {"agent-a": A.LOST, "agent-b": A.SUCCEEDED}


def test_an_agent_heard_before_its_decision_is_shown_once_the_decision_is_known(story):
    story.start()
    assert story.job.attempts == ()
    story.submit()
    assert story.job.latest.status is A.RUNNING


def test_a_reopened_job_has_no_verdict_and_a_fresh_budget(story):
    story.fail(1, "step_failed")
    story.verdict("failed")
    assert (story.job.status, len(story.job.recent)) == (J.FAILED, 1)
    story.takeover()
    story.reopen()
    assert (story.job.status, story.job.verdict, story.job.recent) == (J.WAITING, None, ())
    assert not story.state.finished
    story.submit("0-2")
    assert [a.decision for a in story.job.recent] == ["0-2"]
    assert story.job.latest.number == 2
    story.verdict("succeeded")
    assert story.job.status is J.SUCCEEDED


def test_a_verdict_of_an_older_epoch_never_returns(story):
    story.verdict("failed")
    old = story.events[-1]
    story.takeover()
    story.verdict("succeeded")
    story.events.append(old)
    assert fold(RUN, story.events).jobs["0"].status is J.SUCCEEDED


def test_a_verdict_keeps_its_failure(story):
    story.fail(1, "step_failed")
    story.verdict("failed", failure=story.job.latest.failure.to_data())
    assert story.job.verdict.failure.kind == "step_failed"


def test_a_request_is_open_until_a_verdict_answers_it(story):
    first = story.request(reason="no longer needed")
    second = story.request()
    assert set(story.job.open_requests) == {first, second}
    assert story.job.open_requests[first]["reason"] == "no longer needed"
    story.verdict("cancelled", requests=(first,))
    assert set(story.job.open_requests) == {second}


def test_a_reopening_makes_earlier_requests_void(story):
    asked = story.request()
    story.reopen(requests=(asked,))
    assert story.job.open_requests == {}


def test_a_decided_cancellation_is_remembered(story):
    story.submit()
    story.cancel()
    assert story.job.cancel_decided("0-1")
    assert not story.job.cancel_decided("0-2")


def test_repeated_confirmations_change_nothing(story):
    story.submit()
    before = story.job.attempts
    story.takeover()
    story.confirm()
    assert story.job.attempts == before


def test_changed_at_is_when_the_last_lifecycle_event_arrived(story):
    story.now = 5.0
    story.submit()
    story.now = 7.0
    story.start()
    assert story.job.changed_at == 5.0
    story.now = 9.0
    story.end()
    assert story.job.changed_at == 9.0


def test_unknown_kinds_are_skipped(story):
    story.submit()
    before = story.job.attempts
    story.say("agent-9", "of.tomorrow", text="x")
    story.say("agent-9", "of.tomorrow", "", text="x")
    assert story.job.attempts == before


def test_a_run_knows_its_jobs_and_its_supervisor():
    story = Story("0", "1")
    state = story.state
    assert (list(state.jobs), state.about["name"], state.supervised) == (["0", "1"], "n", True)
    story.verdict("succeeded", "0")
    assert not story.state.finished
    story.verdict("failed", "1")
    assert story.state.finished
    assert (story.state.count(J.SUCCEEDED), story.state.count(J.FAILED)) == (1, 1)
    story.supervise(kinds.SUPERVISOR_ENDED, "", reason="finished")
    assert not story.state.supervised


def test_a_run_without_events_is_not_finished():
    assert not fold(RUN, []).finished


def test_the_end_of_an_older_supervisor_does_not_hide_the_newer(story):
    story.supervise(kinds.SUPERVISOR_ENDED, "", reason="lost")
    ended = story.events.pop()
    story.arrived.pop()
    story.takeover()
    story.events.append(ended)
    story.arrived.append(0.0)
    assert story.state.supervised


def test_a_run_that_is_only_created_is_not_supervised():
    assert not fold(RUN, [Event(RUN, "", "cli", 1, kinds.RUN_CREATED, 0.0, 0.0, {"points": {"0": {}}})]).supervised
