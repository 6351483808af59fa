"""The response to failures: budgets, more resources, queue timeouts, and another transfer method."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packtrain.engines.api import Overrides
from packtrain.plan import Input, Job, Limits, Resources
from packtrain.state import JobStatus
from packtrain.supervise.decisions import Cancel, EndJob, GiveUp, Release
from packtrain.supervise.policies import (
    hold_policy,
    job_result_policy,
    queue_timeout_policy,
    stop_run_policy,
    submit_policy,
)
from tests.support.event_builder import RunBuilder
from tests.support.policy_runs import HOUR_S, build_identical_failures, make_policy_config


class TestBudgets:
    def test_max_failures_of_run(self):
        run = build_identical_failures("AB", "service_unavailable", n_jobs=4)
        assert stop_run_policy(make_policy_config(4, max_failures=3))(run.state, ["0"], 0.0) == []
        decisions = stop_run_policy(make_policy_config(4, max_failures=2))(run.state, ["0"], 0.0)
        assert {(type(d), d.job) for d in decisions} == {(EndJob, "0"), (EndJob, "1"), (Cancel, "2"), (Cancel, "3")}
        assert {d.reason for d in decisions} == {"2 attempts of the run failed (limit 2)"}

    def test_max_wasted_time_of_run(self):
        run = RunBuilder("0", "1")
        run.add_failed_attempt_at("A", 1, "service_unavailable", duration_s=2 * HOUR_S)
        assert stop_run_policy(make_policy_config(2, max_wasted_time_s=2.5 * HOUR_S))(run.state, ["0"], 0.0) == []
        decided = {
            d.job: d
            for d in stop_run_policy(make_policy_config(2, max_wasted_time_s=2 * HOUR_S))(run.state, ["0"], 0.0)
        }
        assert decided["0"].failure.kind == "service_unavailable"
        assert decided["1"].failure.kind == "budget_exceeded"
        assert "wasted 2 h (limit 2 h)" in decided["1"].reason

    def test_max_wasted_time_of_job(self):
        run = RunBuilder()
        run.add_failed_attempt_at("A", 1, "service_unavailable", duration_s=HOUR_S)
        run.add_failed_attempt_at("A", 2, "service_unavailable", duration_s=2 * HOUR_S)
        assert (
            job_result_policy(make_policy_config(limits=Limits(max_attempts=9, max_wasted_time_s=4 * HOUR_S)))(
                run.state, ["0"], 0.0
            )
            == []
        )
        (end,) = job_result_policy(make_policy_config(limits=Limits(max_attempts=9, max_wasted_time_s=3 * HOUR_S)))(
            run.state, ["0"], 0.0
        )
        assert "wasted 3 h (limit 3 h)" in end.reason

    def test_max_wasted_time_if_last_attempt_does_not_count(self):
        run = RunBuilder()
        run.add_failed_attempt_at("A", 1, "service_unavailable", duration_s=3 * HOUR_S)
        run.submit("0-2")
        run.start_agent("agent-2", "0-2")
        run.save_checkpoint(7, "agent-2")
        run.end_agent("requeued", "agent-2")
        run.end_attempt("0-2")
        assert len(run.job.counted_failures) == 1
        (end,) = job_result_policy(make_policy_config(limits=Limits(max_attempts=9, max_wasted_time_s=3 * HOUR_S)))(
            run.state, ["0"], 0.0
        )
        assert "wasted 3 h (limit 3 h)" in end.reason
        assert job_result_policy(make_policy_config(limits=Limits(max_attempts=9)))(run.state, ["0"], 0.0) == []

    def test_pool_restarts_that_fail_count(self):
        run = RunBuilder()
        run.submit()
        for number, kind in ((1, "container_failed"), (2, "evicted")):
            run.start_execution(number)
            run.start_agent(f"agent-{number}")
            if number == 2:
                run.save_checkpoint(7, "agent-2")
            run.interrupt_execution(number, kind=kind, emitters=(f"agent-{number}",))
        run.end_attempt()
        assert [attempt.failure.kind for attempt in run.job.counted_failures] == ["container_failed"]
        assert job_result_policy(make_policy_config())(run.state, ["0"], 0.0) == []
        (end,) = job_result_policy(make_policy_config(limits=Limits(max_attempts=1)))(run.state, ["0"], 0.0)
        assert (end.reason, end.failure.kind) == ("1 of 1 attempts failed", "container_failed")


class TestResources:
    def next_overrides(self, run, config):
        (retry,) = submit_policy(config)(run.state, ["0"], 1e6)
        return retry.overrides

    def test_memory_doubles_up_to_limit(self):
        run = RunBuilder()
        for number, factor in ((1, 2.0), (2, 4.0), (3, 4.0)):
            run.add_failed_attempt_at("A", number, "out_of_memory", host="")
            assert self.next_overrides(run, make_policy_config()).memory_factor == factor
        assert self.next_overrides(run, make_policy_config(max_memory_factor=1.0)).memory_factor == 1.0

    def test_memory_factor_is_kept_after_reopening(self):
        run = RunBuilder()
        run.add_failed_attempt_at("A", 1, "out_of_memory", host="")
        run.end_job("failed")
        run.reopen()
        assert self.next_overrides(run, make_policy_config()) == Overrides(memory_factor=2.0)

    def test_memory_is_limited_to_largest_node(self):
        run = RunBuilder()
        run.add_failed_attempt_at("A", 1, "out_of_memory", host="")
        config = replace(make_policy_config(has_multiple_sites=False), max_memory_mb=1536)
        assert config.jobs["0"].resources.memory_mb == 1024
        assert self.next_overrides(run, config).memory_factor == 1.5

    def test_disk_grows_on_pools_only(self):
        run = RunBuilder()
        run.add_failed_attempt_at("A", 1, "disk_full", host="")
        assert self.next_overrides(run, make_policy_config()).disk_factor == 2.0
        assert self.next_overrides(run, make_policy_config(has_multiple_sites=False)).disk_factor == 1.0

    def test_apply_overrides(self):
        job = Job("0", (), Resources(), Limits(), (), inputs=(Input("a", "a", transfer="plugin"), Input("b", "b")))
        overrides = Overrides(memory_factor=1.5, fetch_with_agent=True).apply_to(job)
        assert overrides.resources.mem_per_cpu_mb == 1536
        assert [source.transfer for source in overrides.inputs] == ["agent", "auto"]

    def test_overrides_round_trip(self):
        overrides = Overrides(2.0, 4.0, ("A", "B"), ("a1",), True)
        assert Overrides.from_data(overrides.to_data()) == overrides
        assert Overrides().to_data() == {} and Overrides.from_data({}) == Overrides()


class TestQueueTimeout:
    """No node takes any job of the run for a week: most likely none matches."""

    DAY = 24 * HOUR_S
    CONFIG = make_policy_config(2)

    def decide(self, run, now, config=CONFIG):
        return queue_timeout_policy(config)(run.state, (), now)

    def test_job_that_no_node_takes_fails(self):
        run = RunBuilder()
        run.submit()
        assert self.decide(run, 7 * self.DAY - 1) == []
        (decision,) = self.decide(run, 7 * self.DAY)
        reason = "no node of the pool took any job of the run for 7 d"
        assert decision == GiveUp("0", "0-1", reason, decision.hold_seq)
        run.answer_hold("give_up", decision.hold_seq)
        assert self.decide(run, 8 * self.DAY) == []
        run.end_attempt(detail="packtrain: cancelled")
        (end,) = job_result_policy(self.CONFIG)(run.state, ["0"], 8 * self.DAY)
        assert (end.result, end.failure.kind) == (JobStatus.FAILED, "no_matching_node")

    def test_other_jobs_extend_deadline(self):
        run = RunBuilder("0", "1")
        run.submit()
        run.submit("1-1", "1")
        run.now = 5 * self.DAY
        run.start_execution(1, "1-1", "1")
        assert self.decide(run, 30 * self.DAY) == [], "perhaps it has the only node"
        run.now = 31 * self.DAY
        run.interrupt_execution(1, "1-1", "1")
        assert self.decide(run, 37 * self.DAY) == []
        assert {d.job for d in self.decide(run, 38 * self.DAY)} == {"0", "1"}

    def test_held_cancelled_and_local_jobs_are_ignored(self):
        run = RunBuilder("0", "1")
        run.submit()
        run.hold("wait")
        run.submit("1-1", "1")
        run.cancel("1-1", "1")
        assert self.decide(run, 30 * self.DAY) == []
        local_run = RunBuilder()
        local_run.submit()
        assert self.decide(local_run, 30 * self.DAY, make_policy_config(has_multiple_sites=False)) == []


class TestTransferFallback:
    PLUGIN = (Input("data", "inputs/data", transfer="plugin"),)

    def build_held_twice(self):
        run = RunBuilder()
        run.submit()
        run.answer_hold("release", run.hold())
        run.release()
        run.hold()
        return run

    def test_agent_fetches_after_two_plugin_failures(self):
        run = self.build_held_twice()
        config = make_policy_config(inputs=self.PLUGIN)
        (decision,) = hold_policy(config)(run.state, ["0"], 0.0)
        assert isinstance(decision, GiveUp) and "the agent of the next attempt fetches" in decision.reason
        run.answer_hold("give_up", decision.hold_seq)
        run.end_attempt()
        (retry,) = submit_policy(config)(run.state, ["0"], 1e6)
        assert retry.overrides == Overrides(fetch_with_agent=True)

    @pytest.mark.parametrize(
        "config",
        [
            make_policy_config(),
            make_policy_config(inputs=PLUGIN, fallback_to_agent=False),
            make_policy_config(inputs=(Input("a", "a", transfer="condor"),)),
        ],
    )
    def test_released_if_fallback_is_not_possible(self, config):
        (decision,) = hold_policy(config)(self.build_held_twice().state, ["0"], 1e6)
        assert isinstance(decision, Release)


def test_policy_hold_is_retried_with_delay():
    run = RunBuilder()
    for number in (1, 2, 3):
        run.submit(f"0-{number}")
        hold = run.hold("give_up", attempt_id=f"0-{number}", kind="policy_hold")
        run.answer_hold("give_up", hold, f"0-{number}")
        run.end_attempt(f"0-{number}")
        assert submit_policy(make_policy_config(retry_delay_s=30.0))(run.state, ["0"], 29.0) == []
    (end,) = job_result_policy(make_policy_config())(run.state, ["0"], 0.0)
    assert (end.result, end.failure.kind) == (JobStatus.FAILED, "policy_hold")
