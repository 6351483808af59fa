"""The policies that submit, end and cancel jobs."""

from __future__ import annotations

import pytest

from packtrain.plan import Job, Limits, Resources
from packtrain.state import JobStatus
from packtrain.supervise.decisions import Cancel, EndJob, Reopen, Submit, event_from_decision
from packtrain.supervise.policies import PolicyConfig, cancel_all, cancel_requested, job_result_policy, submit_policy
from tests.support.event_builder import RunBuilder


@pytest.fixture
def run():
    return RunBuilder()


def make_config(max_attempts):
    return PolicyConfig(jobs={"0": Job("0", (), Resources(), Limits(max_attempts=max_attempts), ())})


def decide_results(run, max_attempts=3):
    return job_result_policy(make_config(max_attempts))(run.state, ["0"], 0.0)


def decide_submits(run, now=0.0):
    return submit_policy(PolicyConfig())(run.state, ["0"], now)


class TestSubmit:
    def test_first_attempt(self, run):
        assert decide_submits(run) == [Submit("0", "0-1", "first attempt")]

    def test_only_changed_jobs_are_checked(self):
        assert submit_policy(PolicyConfig())(RunBuilder("0", "1").state, ["1"], 0.0) == [
            Submit("1", "1-1", "first attempt")
        ]

    def test_not_while_attempt_is_live(self, run):
        run.submit()
        assert decide_submits(run) == []

    def test_not_after_result(self, run):
        run.end_job("failed")
        assert decide_submits(run) == []

    def test_not_while_cancellation_is_requested(self, run):
        run.request_cancel()
        assert decide_submits(run) == []

    def test_no_delay_after_preemption(self, run):
        run.now = 100.0
        run.add_failed_attempt(1, "terminated")
        assert decide_submits(run, 100.0) == [Submit("0", "0-2", "execution 1 ended: terminated")]

    def test_not_before_the_pool_has_ended_the_execution(self, run):
        """Slurm restarts a preempted job although its agent exited in time; its journal is visible first."""
        run.now = 100.0
        run.submit()
        run.start_execution()
        run.start_agent()
        run.end_agent("requeued")
        assert decide_submits(run, 100.0) == []
        run.interrupt_execution()
        assert decide_submits(run, 100.0) == [], "the attempt is in the queue again"

    def test_when_the_pool_has_ended_the_attempt(self, run):
        run.now = 100.0
        run.submit()
        run.start_execution()
        run.start_agent()
        run.end_agent("requeued")
        run.end_attempt()
        assert decide_submits(run, 100.0) == [Submit("0", "0-2", "execution 1 ended: requeued")]

    def test_when_the_pool_does_not_report_the_end(self, run):
        run.now = 100.0
        run.submit()
        run.start_execution()
        run.start_agent()
        run.end_agent("requeued")
        assert decide_submits(run, 10_000.0) == [Submit("0", "0-2", "execution 1 ended: requeued")]

    def test_delays_grow(self, run):
        run.now = 100.0
        for number, delay_s in ((1, 2.0), (2, 6.0), (3, 18.0)):
            run.add_failed_attempt(number, "service_unavailable")
            assert decide_submits(run, run.now + delay_s - 0.1) == []
            assert [d.attempt_id for d in decide_submits(run, run.now + delay_s)] == [f"0-{number + 1}"]

    def test_delay_is_limited(self, run):
        for number in range(1, 20):
            run.add_failed_attempt(number, "service_unavailable")
        assert decide_submits(run, 119.9) == []
        assert len(decide_submits(run, 120.0)) == 1

    def test_reopened_job(self, run):
        run.add_failed_attempt(1, "step_failed")
        run.end_job("failed")
        run.reopen()
        assert decide_submits(run) == [Submit("0", "0-2", "the job was reopened")]

    def test_no_delay_after_requeue(self, run):
        run.submit()
        run.start_agent()
        run.end_agent("requeued")
        assert decide_submits(run) == [Submit("0", "0-2", "execution 1 ended: requeued")]

    def test_requeues_do_not_increase_delay(self, run):
        for number in range(1, 1001):
            run.add_checkpointed_attempt(number, number)
        run.add_failed_attempt(1001, "service_unavailable")
        assert decide_submits(run, 1.9) == []
        assert len(decide_submits(run, 2.0)) == 1


class TestJobResult:
    def test_no_result_before_attempts_end(self, run):
        assert decide_results(run) == []
        run.submit()
        assert decide_results(run) == []
        run.start_agent()
        assert decide_results(run) == []

    def test_success_has_emitter(self, run):
        run.submit()
        run.start_agent("agent-7")
        run.end_agent("succeeded", "agent-7")
        (end,) = decide_results(run)
        assert (end.result, end.emitter) == (JobStatus.SUCCEEDED, "agent-7")

    def test_success_while_other_attempt_is_live(self, run):
        run.submit("0-1")
        run.start_agent("agent-a", "0-1")
        run.submit("0-2")
        run.end_agent("succeeded", "agent-a")
        assert decide_results(run)[0].result is JobStatus.SUCCEEDED

    def test_permanent_failure(self, run):
        run.add_failed_attempt(1, "step_failed")
        (end,) = decide_results(run)
        assert (end.result, end.failure.kind) == (JobStatus.FAILED, "step_failed")

    def test_transient_failures_use_up_budget(self, run):
        run.add_failed_attempt(1, "service_unavailable")
        assert decide_results(run, max_attempts=2) == []
        run.add_failed_attempt(2, "agent_lost")
        (end,) = decide_results(run, max_attempts=2)
        assert (end.result, end.reason) == (JobStatus.FAILED, "2 of 2 attempts failed")

    def test_lost_agents_count(self, run):
        run.submit()
        run.end_attempt()
        assert decide_results(run, max_attempts=2) == []
        assert decide_results(run, max_attempts=1)[0].failure.kind == "agent_lost"

    def test_requeue_with_progress_does_not_count(self, run):
        for number in (1, 2, 3):
            run.add_checkpointed_attempt(number, step=10 * number)
        assert decide_results(run, max_attempts=1) == []

    @pytest.mark.parametrize("steps", [(None, None), (10, 10), (10, 7)])
    def test_requeue_without_progress_counts(self, run, steps):
        run.add_checkpointed_attempt(1, 10)
        run.add_checkpointed_attempt(2, steps[0])
        assert decide_results(run, max_attempts=2) == []
        run.add_checkpointed_attempt(3, steps[1])
        (end,) = decide_results(run, max_attempts=2)
        assert end.result is JobStatus.FAILED
        assert "without a newer checkpoint" in end.failure.detail

    def test_preemption_with_progress_does_not_count(self, run):
        for number in (1, 2, 3):
            run.submit(f"0-{number}")
            run.start_agent(f"agent-{number}", f"0-{number}")
            run.save_checkpoint(number, f"agent-{number}")
            run.end_attempt(f"0-{number}", exit_code=-9)
        assert decide_results(run, max_attempts=1) == []
        run.add_failed_attempt(4, "terminated")
        assert decide_results(run, max_attempts=1)[0].failure.kind == "terminated"

    def test_own_failure_with_progress_counts(self, run):
        run.submit()
        run.start_agent()
        run.save_checkpoint(5)
        run.end_agent("failed", failure="step_failed")
        assert decide_results(run)[0].failure.kind == "step_failed"

    def test_cancelled_attempt_does_not_count(self, run):
        run.submit()
        run.start_agent()
        run.cancel()
        run.end_agent("failed", failure="terminated")
        assert decide_results(run, max_attempts=1) == []
        run.add_failed_attempt(2, "terminated")
        assert decide_results(run, max_attempts=1)[0].reason == "1 of 1 attempts failed"

    def test_attempts_before_reopening_do_not_count(self, run):
        run.add_failed_attempt(1, "step_failed")
        run.end_job("failed")
        run.reopen()
        assert decide_results(run) == []

    def test_result_is_final(self, run):
        run.add_failed_attempt(1, "step_failed")
        run.end_job("cancelled")
        assert decide_results(run) == []


class TestCancel:
    def test_no_request(self, run):
        run.submit()
        assert cancel_requested(run.state, ["0"], 0.0) == []

    def test_live_attempt_is_cancelled_once(self, run):
        run.submit()
        run.request_cancel(reason="too slow")
        assert cancel_requested(run.state, ["0"], 0.0) == [Cancel("0", "0-1", "too slow")]
        run.cancel()
        assert cancel_requested(run.state, ["0"], 0.0) == []

    def test_job_is_cancelled_after_attempt(self, run):
        run.submit()
        request = run.request_cancel(reason="too slow")
        run.cancel()
        run.end_attempt()
        (end,) = cancel_requested(run.state, ["0"], 0.0)
        assert end == EndJob("0", JobStatus.CANCELLED, "too slow", requests=(request,))

    def test_waiting_job_is_cancelled(self, run):
        request = run.request_cancel()
        (end,) = cancel_requested(run.state, ["0"], 0.0)
        assert (end.result, end.requests, end.reason) == (JobStatus.CANCELLED, (request,), "requested by the user")

    def test_late_request_keeps_result(self, run):
        run.end_job("succeeded", emitter="agent-1")
        request = run.request_cancel()
        (end,) = cancel_requested(run.state, ["0"], 0.0)
        assert (end.result, end.emitter, end.requests) == (JobStatus.SUCCEEDED, "agent-1", (request,))

    def test_cancel_all(self):
        run = RunBuilder("0", "1", "2")
        for job in ("0", "1"):
            run.submit(f"{job}-1", job)
        run.cancel("1-1", "1")
        assert [d.attempt_id for d in cancel_all(run.state, [], 0.0)] == ["0-1"]


def test_events_of_decisions():
    assert event_from_decision(Submit("0", "0-1", "r"))[1] == {"action": "submit", "attempt": "0-1", "reason": "r"}
    assert event_from_decision(Cancel("0", "0-1", "r"))[1] == {"action": "cancel", "attempt": "0-1", "reason": "r"}
    assert event_from_decision(Reopen("0", "r", ("a:1",)))[1] == {
        "action": "reopen",
        "reason": "r",
        "requests": ["a:1"],
    }
    kind, data = event_from_decision(EndJob("0", JobStatus.FAILED, "r", requests=("a:1",)))
    assert (kind, data["result"], data["failure"], data["requests"]) == ("job.ended", "failed", None, ["a:1"])
