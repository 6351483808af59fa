"""The policies: pure functions from state and time to decisions."""

from __future__ import annotations

import pytest

from packtrain.plan import Job, Limits, Resources
from packtrain.state import JobStatus
from packtrain.supervise.decisions import Cancel, EndJob, Reopen, Submit, event_from_decision
from packtrain.supervise.policies import PolicyConfig, cancel_all, cancel_requested, job_result_policy, submit_policy
from tests.support.event_builder import RunBuilder


@pytest.fixture
def story():
    return RunBuilder()


def rules(attempts):
    return PolicyConfig(jobs={"0": Job("0", (), Resources(), Limits(max_attempts=attempts), ())})


def judge(story, allowed=3):
    return job_result_policy(rules(allowed))(story.state, ["0"], 0.0)


def starting(story, now=0.0):
    return submit_policy(PolicyConfig())(story.state, ["0"], now)


class TestStart:
    def test_the_first_attempt(self, story):
        assert starting(story) == [Submit("0", "0-1", "not tried yet")]

    def test_only_jobs_that_changed_are_looked_at(self):
        assert submit_policy(PolicyConfig())(RunBuilder("0", "1").state, ["1"], 0.0) == [
            Submit("1", "1-1", "not tried yet")
        ]

    def test_not_while_an_attempt_lives(self, story):
        story.submit()
        assert starting(story) == []

    def test_not_after_a_verdict(self, story):
        story.end_job("failed")
        assert starting(story) == []

    def test_not_while_a_cancellation_is_asked_for(self, story):
        story.request_cancel()
        assert starting(story) == []

    def test_what_the_pool_did_needs_no_wait(self, story):
        story.now = 100.0
        story.add_failed_attempt(1, "terminated")
        assert starting(story, 100.0) == [Submit("0", "0-2", "attempt 1 ended: terminated")]

    def test_a_failing_service_is_given_time_and_more_each_time(self, story):
        story.now = 100.0
        for number, wait in ((1, 2.0), (2, 6.0), (3, 18.0)):
            story.add_failed_attempt(number, "service_unavailable")
            assert starting(story, story.now + wait - 0.1) == []
            assert [d.attempt_id for d in starting(story, story.now + wait)] == [f"0-{number + 1}"]

    def test_the_wait_has_an_end(self, story):
        for number in range(1, 20):
            story.add_failed_attempt(number, "service_unavailable")
        assert starting(story, 119.9) == []
        assert len(starting(story, 120.0)) == 1

    def test_a_reopened_job_starts_at_once_under_a_new_name(self, story):
        story.add_failed_attempt(1, "step_failed")
        story.end_job("failed")
        story.reopen()
        assert starting(story) == [Submit("0", "0-2", "opened again")]

    def test_an_attempt_that_left_is_continued_at_once(self, story):
        story.submit()
        story.start_agent()
        story.end_agent("requeued")
        assert starting(story) == [Submit("0", "0-2", "attempt 1 ended: requeued")]

    def test_many_that_left_do_not_lengthen_the_wait(self, story):
        for number in range(1, 1001):
            story.add_checkpointed_attempt(number, number)
        story.add_failed_attempt(1001, "service_unavailable")
        assert starting(story, 1.9) == []
        assert len(starting(story, 2.0)) == 1


class TestVerdict:
    def test_none_while_nothing_was_tried_or_an_attempt_lives(self, story):
        assert judge(story) == []
        story.submit()
        assert judge(story) == []
        story.start_agent()
        assert judge(story) == []

    def test_success_names_the_agent_whose_outputs_count(self, story):
        story.submit()
        story.start_agent("agent-7")
        story.end_agent("succeeded", "agent-7")
        (end,) = judge(story)
        assert (end.result, end.emitter) == (JobStatus.SUCCEEDED, "agent-7")

    def test_success_counts_though_another_attempt_lives(self, story):
        story.submit("0-1")
        story.start_agent("agent-a", "0-1")
        story.submit("0-2")
        story.end_agent("succeeded", "agent-a")
        assert judge(story)[0].result is JobStatus.SUCCEEDED

    def test_a_failure_that_will_not_pass_ends_it_at_once(self, story):
        story.add_failed_attempt(1, "step_failed")
        (end,) = judge(story)
        assert (end.result, end.failure.kind) == (JobStatus.FAILED, "step_failed")

    def test_a_failure_that_may_pass_uses_up_the_budget(self, story):
        story.add_failed_attempt(1, "service_unavailable")
        assert judge(story, allowed=2) == []
        story.add_failed_attempt(2, "agent_lost")
        (end,) = judge(story, allowed=2)
        assert (end.result, end.reason) == (JobStatus.FAILED, "2 of 2 attempts were used up")

    def test_lost_agents_count(self, story):
        story.submit()
        story.end_attempt()
        assert judge(story, allowed=2) == []
        assert judge(story, allowed=1)[0].failure.kind == "agent_lost"

    def test_attempts_that_left_further_on_cost_nothing(self, story):
        for number in (1, 2, 3):
            story.add_checkpointed_attempt(number, step=10 * number)
        assert judge(story, allowed=1) == []

    @pytest.mark.parametrize("steps", [(None, None), (10, 10), (10, 7)])
    def test_attempts_that_left_for_nothing_cost_one_each(self, story, steps):
        story.add_checkpointed_attempt(1, 10)
        story.add_checkpointed_attempt(2, steps[0])
        assert judge(story, allowed=2) == []
        story.add_checkpointed_attempt(3, steps[1])
        (end,) = judge(story, allowed=2)
        assert end.result is JobStatus.FAILED
        assert "without a checkpoint that is further" in end.failure.detail

    def test_what_the_pool_ended_costs_nothing_if_it_got_further(self, story):
        for number in (1, 2, 3):
            story.submit(f"0-{number}")
            story.start_agent(f"agent-{number}", f"0-{number}")
            story.save_checkpoint(number, f"agent-{number}")
            story.end_attempt(f"0-{number}", exit_code=-9)
        assert judge(story, allowed=1) == []
        story.add_failed_attempt(4, "terminated")
        assert judge(story, allowed=1)[0].failure.kind == "terminated"

    def test_a_failure_of_its_own_counts_though_it_got_further(self, story):
        story.submit()
        story.start_agent()
        story.save_checkpoint(5)
        story.end_agent("failed", failure="step_failed")
        assert judge(story)[0].failure.kind == "step_failed"

    def test_an_attempt_that_a_supervisor_ended_costs_nothing(self, story):
        story.submit()
        story.start_agent()
        story.cancel()
        story.end_agent("failed", failure="terminated")
        assert judge(story, allowed=1) == []
        story.add_failed_attempt(2, "terminated")
        assert judge(story, allowed=1)[0].reason == "1 of 1 attempts were used up"

    def test_attempts_before_a_reopening_do_not_count(self, story):
        story.add_failed_attempt(1, "step_failed")
        story.end_job("failed")
        story.reopen()
        assert judge(story) == []

    def test_a_job_with_a_verdict_gets_no_other(self, story):
        story.add_failed_attempt(1, "step_failed")
        story.end_job("cancelled")
        assert judge(story) == []


class TestCancel:
    def test_nothing_without_a_request(self, story):
        story.submit()
        assert cancel_requested(story.state, ["0"], 0.0) == []

    def test_the_living_attempt_first_and_only_once(self, story):
        story.submit()
        story.request_cancel(reason="too slow")
        assert cancel_requested(story.state, ["0"], 0.0) == [Cancel("0", "0-1", "too slow")]
        story.cancel()
        assert cancel_requested(story.state, ["0"], 0.0) == []

    def test_then_the_job(self, story):
        story.submit()
        asked = story.request_cancel(reason="too slow")
        story.cancel()
        story.end_attempt()
        (end,) = cancel_requested(story.state, ["0"], 0.0)
        assert end == EndJob("0", JobStatus.CANCELLED, "too slow", requests=(asked,))

    def test_a_job_that_never_started_is_cancelled_at_once(self, story):
        asked = story.request_cancel()
        (end,) = cancel_requested(story.state, ["0"], 0.0)
        assert (end.result, end.requests, end.reason) == (JobStatus.CANCELLED, (asked,), "a person asked for it")

    def test_a_request_that_comes_too_late_is_answered_with_the_verdict(self, story):
        story.end_job("succeeded", emitter="agent-1")
        asked = story.request_cancel()
        (end,) = cancel_requested(story.state, ["0"], 0.0)
        assert (end.result, end.emitter, end.requests) == (JobStatus.SUCCEEDED, "agent-1", (asked,))

    def test_everything_means_every_living_attempt_once(self):
        story = RunBuilder("0", "1", "2")
        for job in ("0", "1"):
            story.submit(f"{job}-1", job)
        story.cancel("1-1", "1")
        assert [d.attempt_id for d in cancel_all(story.state, [], 0.0)] == ["0-1"]


def test_every_decision_becomes_an_event():
    assert event_from_decision(Submit("0", "0-1", "r"))[1] == {"action": "submit", "attempt": "0-1", "reason": "r"}
    assert event_from_decision(Cancel("0", "0-1", "r"))[1] == {"action": "cancel", "attempt": "0-1", "reason": "r"}
    assert event_from_decision(Reopen("0", "r", ("a:1",)))[1] == {
        "action": "reopen",
        "reason": "r",
        "requests": ["a:1"],
    }
    kind, data = event_from_decision(EndJob("0", JobStatus.FAILED, "r", requests=("a:1",)))
    assert (kind, data["result"], data["failure"], data["requests"]) == ("job.ended", "failed", None, ["a:1"])
