"""What is done about failures: budgets, more of what was short, other machines, another delivery."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packtrain.engines.api import Amendment
from packtrain.plan import Input, Job, Limits, Resources
from packtrain.state import JobStatus
from packtrain.supervise.decisions import Cancel, End, GiveUp, Release
from packtrain.supervise.policies import halt, holds, patience, start, verdict
from tests.support.event_builder import Story
from tests.support.policy_runs import HOUR, failing_alike, pool


class TestBudgets:
    def test_failures_of_the_whole_run(self):
        story = failing_alike("AB", "service_unavailable", jobs=4)
        assert halt(pool(4, failures=3))(story.state, ["0"], 0.0) == []
        decided = halt(pool(4, failures=2))(story.state, ["0"], 0.0)
        assert {(type(d), d.job) for d in decided} == {(End, "0"), (End, "1"), (Cancel, "2"), (Cancel, "3")}
        assert {d.reason for d in decided} == {"2 of the 2 failures that the run may have"}

    def test_hours_of_the_whole_run(self):
        story = Story("0", "1")
        story.fail_at("A", 1, "service_unavailable", seconds=2 * HOUR)
        assert halt(pool(2, wasted_s=2.5 * HOUR))(story.state, ["0"], 0.0) == []
        decided = {d.job: d for d in halt(pool(2, wasted_s=2 * HOUR))(story.state, ["0"], 0.0)}
        assert decided["0"].failure.kind == "service_unavailable"
        assert decided["1"].failure.kind == "budget_spent"
        assert "2.0 h of the 2.0 h" in decided["1"].reason

    def test_hours_of_a_job(self):
        story = Story()
        story.fail_at("A", 1, "service_unavailable", seconds=HOUR)
        story.fail_at("A", 2, "service_unavailable", seconds=2 * HOUR)
        assert verdict(pool(limits=Limits(attempts=9, wasted_s=4 * HOUR)))(story.state, ["0"], 0.0) == []
        (end,) = verdict(pool(limits=Limits(attempts=9, wasted_s=3 * HOUR)))(story.state, ["0"], 0.0)
        assert "took 3.0 h of the 3.0 h" in end.reason

    def test_hours_of_a_job_also_if_its_last_attempt_cost_nothing(self):
        story = Story()
        story.fail_at("A", 1, "service_unavailable", seconds=3 * HOUR)
        story.submit("0-2")
        story.start("agent-2", "0-2")
        story.checkpoint(7, "agent-2")
        story.end("continue", "agent-2")
        story.gone("0-2")
        assert len(story.job.spent) == 1
        (end,) = verdict(pool(limits=Limits(attempts=9, wasted_s=3 * HOUR)))(story.state, ["0"], 0.0)
        assert "took 3.0 h of the 3.0 h" in end.reason
        assert verdict(pool(limits=Limits(attempts=9)))(story.state, ["0"], 0.0) == []

    def test_attempts_that_the_pool_spent_by_itself_count_whatever_follows_them(self):
        story = Story()
        story.submit()
        for number, kind in ((1, "container_failed"), (2, "evicted")):
            story.placed(number)
            story.start(f"agent-{number}")
            if number == 2:
                story.checkpoint(7, "agent-2")
            story.stopped(number, kind=kind, emitters=(f"agent-{number}",))
        story.gone()
        assert [attempt.failure.kind for attempt in story.job.spent] == ["container_failed"]
        assert verdict(pool())(story.state, ["0"], 0.0) == []
        (end,) = verdict(pool(limits=Limits(attempts=1)))(story.state, ["0"], 0.0)
        assert (end.reason, end.failure.kind) == ("1 of 1 attempts were used up", "container_failed")


class TestMoreOfIt:
    def next(self, story, rules):
        (again,) = start(rules)(story.state, ["0"], 1e6)
        return again.amendment

    def test_twice_the_memory_each_time_up_to_a_limit(self):
        story = Story()
        for number, times in ((1, 2.0), (2, 4.0), (3, 4.0)):
            story.fail_at("A", number, "out_of_memory", host="")
            assert self.next(story, pool()).memory == times
        assert self.next(story, pool(most_memory=1.0)).memory == 1.0

    def test_what_was_learned_is_kept_when_the_job_is_opened_again(self):
        story = Story()
        story.fail_at("A", 1, "out_of_memory", host="")
        story.verdict("failed")
        story.reopen()
        assert self.next(story, pool()) == Amendment(memory=2.0)

    def test_not_more_than_the_largest_machine_has(self):
        story = Story()
        story.fail_at("A", 1, "out_of_memory", host="")
        rules = replace(pool(many_sites=False), memory_mb=1536)
        assert rules.jobs["0"].resources.memory_mb == 1024
        assert self.next(story, rules).memory == 1.5

    def test_disk_in_a_pool_only(self):
        story = Story()
        story.fail_at("A", 1, "disk_full", host="")
        assert self.next(story, pool()).disk == 2.0
        assert self.next(story, pool(many_sites=False)).disk == 1.0

    def test_an_amended_job(self):
        job = Job("0", (), Resources(), Limits(), (), inputs=(Input("a", "a", delivery="plugin"), Input("b", "b")))
        made = Amendment(memory=1.5, agent_brings=True).of(job)
        assert made.resources.mem_per_cpu_mb == 1536
        assert [source.delivery for source in made.inputs] == ["agent", "auto"]

    def test_an_amendment_survives_the_store(self):
        made = Amendment(2.0, 4.0, ("A", "B"), ("a1",), True)
        assert Amendment.from_data(made.to_data()) == made
        assert Amendment().to_data() == {} and Amendment.from_data({}) == Amendment()


class TestNoMachine:
    """A week without any machine for the run: most likely none has what is asked for."""

    DAY = 24 * HOUR
    RULES = pool(2)

    def decide(self, story, now, rules=RULES):
        return patience(rules)(story.state, (), now)

    def test_what_nothing_takes_ends_with_a_reason(self):
        story = Story()
        story.submit()
        assert self.decide(story, 7 * self.DAY - 1) == []
        (decision,) = self.decide(story, 7 * self.DAY)
        reason = "no machine of the pool took anything of the run for 168.0 h"
        assert decision == GiveUp("0", "0-1", reason, decision.hold)
        story.answer("give_up", decision.hold)
        assert self.decide(story, 8 * self.DAY) == []
        story.gone(detail="packtrain: cancelled")
        (end,) = verdict(self.RULES)(story.state, ["0"], 8 * self.DAY)
        assert (end.verdict, end.failure.kind) == (JobStatus.FAILED, "no_machine")

    def test_others_that_run_or_ran_meanwhile_are_a_reason_to_wait(self):
        story = Story("0", "1")
        story.submit()
        story.submit("1-1", "1")
        story.now = 5 * self.DAY
        story.placed(1, "1-1", "1")
        assert self.decide(story, 30 * self.DAY) == [], "it has the only machine, perhaps"
        story.now = 31 * self.DAY
        story.stopped(1, "1-1", "1")
        assert self.decide(story, 37 * self.DAY) == []
        assert {d.job for d in self.decide(story, 38 * self.DAY)} == {"0", "1"}

    def test_not_what_is_held_or_is_to_end_nor_on_one_machine(self):
        story = Story("0", "1")
        story.submit()
        story.held("wait")
        story.submit("1-1", "1")
        story.cancel("1-1", "1")
        assert self.decide(story, 30 * self.DAY) == []
        alone = Story()
        alone.submit()
        assert self.decide(alone, 30 * self.DAY, pool(many_sites=False)) == []


class TestDelivery:
    PLUGIN = (Input("data", "inputs/data", delivery="plugin"),)

    def held_twice(self):
        story = Story()
        story.submit()
        story.answer("release", story.held())
        story.released()
        story.held()
        return story

    def test_what_plugins_failed_to_bring_twice_the_agent_fetches(self):
        story = self.held_twice()
        rules = pool(inputs=self.PLUGIN)
        (decision,) = holds(rules)(story.state, ["0"], 0.0)
        assert isinstance(decision, GiveUp) and "the agent fetches" in decision.reason
        story.answer("give_up", decision.hold)
        story.gone()
        (again,) = start(rules)(story.state, ["0"], 1e6)
        assert again.amendment == Amendment(agent_brings=True)

    @pytest.mark.parametrize(
        "rules",
        [pool(), pool(inputs=PLUGIN, switch_delivery=False), pool(inputs=(Input("a", "a", delivery="native"),))],
    )
    def test_otherwise_it_is_let_go_again(self, rules):
        (decision,) = holds(rules)(self.held_twice().state, ["0"], 1e6)
        assert isinstance(decision, Release)


def test_a_rule_of_the_pool_is_waited_for_but_not_for_ever():
    story = Story()
    for number in (1, 2, 3):
        story.submit(f"0-{number}")
        hold = story.held("give_up", decision=f"0-{number}", kind="policy_hold")
        story.answer("give_up", hold, f"0-{number}")
        story.gone(f"0-{number}")
        assert start(pool(wait_s=30.0))(story.state, ["0"], 29.0) == []
    (end,) = verdict(pool())(story.state, ["0"], 0.0)
    assert (end.verdict, end.failure.kind) == (JobStatus.FAILED, "policy_hold")
