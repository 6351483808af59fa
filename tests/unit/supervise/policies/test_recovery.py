"""What is done about failures: budgets, more of what was short, other machines, another delivery."""

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
    def test_failures_of_the_whole_run(self):
        story = build_identical_failures("AB", "service_unavailable", n_jobs=4)
        assert stop_run_policy(make_policy_config(4, max_failures=3))(story.state, ["0"], 0.0) == []
        decided = stop_run_policy(make_policy_config(4, max_failures=2))(story.state, ["0"], 0.0)
        assert {(type(d), d.job) for d in decided} == {(EndJob, "0"), (EndJob, "1"), (Cancel, "2"), (Cancel, "3")}
        assert {d.reason for d in decided} == {"2 of the 2 failures that the run may have"}

    def test_hours_of_the_whole_run(self):
        story = RunBuilder("0", "1")
        story.add_failed_attempt_at("A", 1, "service_unavailable", duration_s=2 * HOUR_S)
        assert stop_run_policy(make_policy_config(2, max_wasted_time_s=2.5 * HOUR_S))(story.state, ["0"], 0.0) == []
        decided = {
            d.job: d
            for d in stop_run_policy(make_policy_config(2, max_wasted_time_s=2 * HOUR_S))(story.state, ["0"], 0.0)
        }
        assert decided["0"].failure.kind == "service_unavailable"
        assert decided["1"].failure.kind == "budget_exceeded"
        assert "2.0 h of the 2.0 h" in decided["1"].reason

    def test_hours_of_a_job(self):
        story = RunBuilder()
        story.add_failed_attempt_at("A", 1, "service_unavailable", duration_s=HOUR_S)
        story.add_failed_attempt_at("A", 2, "service_unavailable", duration_s=2 * HOUR_S)
        assert (
            job_result_policy(make_policy_config(limits=Limits(max_attempts=9, max_wasted_time_s=4 * HOUR_S)))(
                story.state, ["0"], 0.0
            )
            == []
        )
        (end,) = job_result_policy(make_policy_config(limits=Limits(max_attempts=9, max_wasted_time_s=3 * HOUR_S)))(
            story.state, ["0"], 0.0
        )
        assert "took 3.0 h of the 3.0 h" in end.reason

    def test_hours_of_a_job_also_if_its_last_attempt_cost_nothing(self):
        story = RunBuilder()
        story.add_failed_attempt_at("A", 1, "service_unavailable", duration_s=3 * HOUR_S)
        story.submit("0-2")
        story.start_agent("agent-2", "0-2")
        story.save_checkpoint(7, "agent-2")
        story.end_agent("requeued", "agent-2")
        story.end_attempt("0-2")
        assert len(story.job.counted_failures) == 1
        (end,) = job_result_policy(make_policy_config(limits=Limits(max_attempts=9, max_wasted_time_s=3 * HOUR_S)))(
            story.state, ["0"], 0.0
        )
        assert "took 3.0 h of the 3.0 h" in end.reason
        assert job_result_policy(make_policy_config(limits=Limits(max_attempts=9)))(story.state, ["0"], 0.0) == []

    def test_attempts_that_the_pool_spent_by_itself_count_whatever_follows_them(self):
        story = RunBuilder()
        story.submit()
        for number, kind in ((1, "container_failed"), (2, "evicted")):
            story.place(number)
            story.start_agent(f"agent-{number}")
            if number == 2:
                story.save_checkpoint(7, "agent-2")
            story.stop_execution(number, kind=kind, emitters=(f"agent-{number}",))
        story.end_attempt()
        assert [attempt.failure.kind for attempt in story.job.counted_failures] == ["container_failed"]
        assert job_result_policy(make_policy_config())(story.state, ["0"], 0.0) == []
        (end,) = job_result_policy(make_policy_config(limits=Limits(max_attempts=1)))(story.state, ["0"], 0.0)
        assert (end.reason, end.failure.kind) == ("1 of 1 attempts were used up", "container_failed")


class TestMoreOfIt:
    def next(self, story, rules):
        (again,) = submit_policy(rules)(story.state, ["0"], 1e6)
        return again.overrides

    def test_twice_the_memory_each_time_up_to_a_limit(self):
        story = RunBuilder()
        for number, times in ((1, 2.0), (2, 4.0), (3, 4.0)):
            story.add_failed_attempt_at("A", number, "out_of_memory", host="")
            assert self.next(story, make_policy_config()).memory_factor == times
        assert self.next(story, make_policy_config(max_memory_factor=1.0)).memory_factor == 1.0

    def test_what_was_learned_is_kept_when_the_job_is_opened_again(self):
        story = RunBuilder()
        story.add_failed_attempt_at("A", 1, "out_of_memory", host="")
        story.end_job("failed")
        story.reopen()
        assert self.next(story, make_policy_config()) == Overrides(memory_factor=2.0)

    def test_not_more_than_the_largest_machine_has(self):
        story = RunBuilder()
        story.add_failed_attempt_at("A", 1, "out_of_memory", host="")
        rules = replace(make_policy_config(has_multiple_sites=False), max_memory_mb=1536)
        assert rules.jobs["0"].resources.memory_mb == 1024
        assert self.next(story, rules).memory_factor == 1.5

    def test_disk_in_a_pool_only(self):
        story = RunBuilder()
        story.add_failed_attempt_at("A", 1, "disk_full", host="")
        assert self.next(story, make_policy_config()).disk_factor == 2.0
        assert self.next(story, make_policy_config(has_multiple_sites=False)).disk_factor == 1.0

    def test_an_amended_job(self):
        job = Job("0", (), Resources(), Limits(), (), inputs=(Input("a", "a", transfer="plugin"), Input("b", "b")))
        made = Overrides(memory_factor=1.5, fetch_with_agent=True).apply_to(job)
        assert made.resources.mem_per_cpu_mb == 1536
        assert [source.transfer for source in made.inputs] == ["agent", "auto"]

    def test_an_amendment_survives_the_store(self):
        made = Overrides(2.0, 4.0, ("A", "B"), ("a1",), True)
        assert Overrides.from_data(made.to_data()) == made
        assert Overrides().to_data() == {} and Overrides.from_data({}) == Overrides()


class TestNoMachine:
    """A week without any machine for the run: most likely none has what is asked for."""

    DAY = 24 * HOUR_S
    RULES = make_policy_config(2)

    def decide(self, story, now, rules=RULES):
        return queue_timeout_policy(rules)(story.state, (), now)

    def test_what_nothing_takes_ends_with_a_reason(self):
        story = RunBuilder()
        story.submit()
        assert self.decide(story, 7 * self.DAY - 1) == []
        (decision,) = self.decide(story, 7 * self.DAY)
        reason = "no machine of the pool took anything of the run for 168.0 h"
        assert decision == GiveUp("0", "0-1", reason, decision.hold_seq)
        story.answer_hold("give_up", decision.hold_seq)
        assert self.decide(story, 8 * self.DAY) == []
        story.end_attempt(detail="packtrain: cancelled")
        (end,) = job_result_policy(self.RULES)(story.state, ["0"], 8 * self.DAY)
        assert (end.result, end.failure.kind) == (JobStatus.FAILED, "no_matching_node")

    def test_others_that_run_or_ran_meanwhile_are_a_reason_to_wait(self):
        story = RunBuilder("0", "1")
        story.submit()
        story.submit("1-1", "1")
        story.now = 5 * self.DAY
        story.place(1, "1-1", "1")
        assert self.decide(story, 30 * self.DAY) == [], "it has the only machine, perhaps"
        story.now = 31 * self.DAY
        story.stop_execution(1, "1-1", "1")
        assert self.decide(story, 37 * self.DAY) == []
        assert {d.job for d in self.decide(story, 38 * self.DAY)} == {"0", "1"}

    def test_not_what_is_held_or_is_to_end_nor_on_one_machine(self):
        story = RunBuilder("0", "1")
        story.submit()
        story.hold("wait")
        story.submit("1-1", "1")
        story.cancel("1-1", "1")
        assert self.decide(story, 30 * self.DAY) == []
        alone = RunBuilder()
        alone.submit()
        assert self.decide(alone, 30 * self.DAY, make_policy_config(has_multiple_sites=False)) == []


class TestDelivery:
    PLUGIN = (Input("data", "inputs/data", transfer="plugin"),)

    def held_twice(self):
        story = RunBuilder()
        story.submit()
        story.answer_hold("release", story.hold())
        story.release()
        story.hold()
        return story

    def test_what_plugins_failed_to_bring_twice_the_agent_fetches(self):
        story = self.held_twice()
        rules = make_policy_config(inputs=self.PLUGIN)
        (decision,) = hold_policy(rules)(story.state, ["0"], 0.0)
        assert isinstance(decision, GiveUp) and "the agent fetches" in decision.reason
        story.answer_hold("give_up", decision.hold_seq)
        story.end_attempt()
        (again,) = submit_policy(rules)(story.state, ["0"], 1e6)
        assert again.overrides == Overrides(fetch_with_agent=True)

    @pytest.mark.parametrize(
        "rules",
        [
            make_policy_config(),
            make_policy_config(inputs=PLUGIN, fallback_to_agent=False),
            make_policy_config(inputs=(Input("a", "a", transfer="native"),)),
        ],
    )
    def test_otherwise_it_is_let_go_again(self, rules):
        (decision,) = hold_policy(rules)(self.held_twice().state, ["0"], 1e6)
        assert isinstance(decision, Release)


def test_a_rule_of_the_pool_is_waited_for_but_not_for_ever():
    story = RunBuilder()
    for number in (1, 2, 3):
        story.submit(f"0-{number}")
        hold = story.hold("give_up", attempt_id=f"0-{number}", kind="policy_hold")
        story.answer_hold("give_up", hold, f"0-{number}")
        story.end_attempt(f"0-{number}")
        assert submit_policy(make_policy_config(retry_delay_s=30.0))(story.state, ["0"], 29.0) == []
    (end,) = job_result_policy(make_policy_config())(story.state, ["0"], 0.0)
    assert (end.result, end.failure.kind) == (JobStatus.FAILED, "policy_hold")
