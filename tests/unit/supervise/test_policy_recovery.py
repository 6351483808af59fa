"""What is done about failures: budgets, mistakes that stop a run, places that are avoided, more of what was short."""

from __future__ import annotations

from dataclasses import replace

import pytest
from story import Story

from packtrain.engines.api import Amendment
from packtrain.engines.htcondor import CAPABILITIES as HTCONDOR
from packtrain.plan import EnvVar, Input, Job, Limits, Plan, Recovery, Resources
from packtrain.state import JobStatus
from packtrain.supervise.decisions import Cancel, End, GiveUp, Release, Submit, event_of
from packtrain.supervise.policies import Rules, halt, holds, loosen, patience, start, verdict
from packtrain.supervise.policies.places import avoided

HOUR = 3600.0


def pool(jobs=1, many_sites=True, limits=None, inputs=(), **recovery):
    made = {str(n): Job(str(n), (), Resources(), limits or Limits(), (), inputs=inputs) for n in range(jobs)}
    return Rules(Recovery(**recovery), made, many_sites=many_sites)


def names(jobs):
    return [str(n) for n in range(jobs)]


def failing_alike(sites, kind="step_failed", jobs=100, detail="exit code 1"):
    """The first jobs failed at these sites, the others are in the queue."""
    story = Story(*names(jobs))
    for number in range(jobs):
        if number < len(sites):
            story.fail_at(sites[number], 1, kind, str(number), detail=detail)
        else:
            story.submit(f"{number}-1", str(number))
    return story


class TestStoppingTheRun:
    def decide(self, story, rules=None, changed=("0",)):
        return halt(rules or pool(100))(story.state, changed, 0.0)

    def test_three_identical_mistakes_at_two_sites_stop_what_was_not_started(self):
        story = failing_alike("AAB")
        verdicts = [d for d in self.decide(story) if isinstance(d, End)]
        cancelled = [d for d in self.decide(story) if isinstance(d, Cancel)]
        assert len(cancelled) == 97
        assert {d.reason for d in cancelled} == {"stopped after 3 identical failures on 2 sites"}
        assert {d.job for d in verdicts} == {"0", "1", "2"}

    def test_then_these_jobs_end_as_not_started(self):
        story = failing_alike("AAB", jobs=4)
        story.cancel("3-1", "3")
        story.gone("3-1", "3")
        ended = {d.job: d for d in self.decide(story, pool(4), ("3",))}
        assert ended["3"].failure.kind == "run_stopped"
        expected = "stopped after 3 identical failures on 2 sites; this job was not started"
        assert ended["3"].failure.detail == expected
        assert ended["0"].failure.kind == "step_failed", "its own failure, where it has one"

    def test_a_job_that_runs_goes_on_to_its_own_end(self):
        story = failing_alike("AAB", jobs=4)
        story.start("agent-3", "3-1", "3")
        assert {d.job for d in self.decide(story, pool(4))} == {"0", "1", "2"}

    @pytest.mark.parametrize(
        ("sites", "rules"), [("AAA", pool(100)), ("AB", pool(100)), ("AAB", pool(100, stop_after=0))]
    )
    def test_less_evidence_stops_nothing(self, sites, rules):
        assert self.decide(failing_alike(sites), rules) == []

    def test_fifteen_404s_are_no_mistake_of_the_user(self):
        assert self.decide(failing_alike("ABC" * 5, "object_missing")) == []

    def test_failures_of_sites_stop_nothing(self):
        assert self.decide(failing_alike("ABC" * 5, "gpu_unusable")) == []

    def test_a_broken_image_does_once_jobs_have_used_up_their_attempts_with_it(self):
        story = failing_alike("ABC", "container_failed", jobs=9)
        assert self.decide(story, pool(9)) == []
        for job in names(3):
            story.verdict("failed", job)
        assert {d.job for d in self.decide(story, pool(9), ("3",))} == set(), "nothing is about to be started"
        stopped = self.decide(story, pool(9))
        assert {d.reason for d in stopped} == {"stopped after 3 identical failures on 3 sites"}
        story.now = 1.0
        story.submit("8-1", "8")
        story.say("agent-8", "attempt.started", "8", decision="8-1", host="d1", pid=7, site="D")
        story.stage("steps", "agent-8", "8", seconds=None)
        assert self.decide(story, pool(9)) == [], "another one has got to its steps"

    def test_a_job_that_never_ran_is_no_evidence_of_a_site(self):
        story = failing_alike("AA", "submit_refused", jobs=4)
        story.submit("2-1", "2")
        story.held("give_up", decision="2-1", job="2", kind="submit_refused")
        story.gone("2-1", "2")
        assert [one.site for found in story.state.record.mistakes.values() for one in found].count("") == 1
        assert self.decide(story, pool(4)) == []

    def test_different_mistakes_are_counted_apart(self):
        story = Story(*names(3))
        for number, words in enumerate(("no scipy", "no numpy", "no torch")):
            story.fail_at("AB"[number % 2], 1, "step_failed", str(number), detail=words)
        assert self.decide(story, pool(3)) == []

    def test_figures_in_what_was_said_make_no_difference(self):
        story = Story(*names(3))
        for number in range(3):
            story.fail_at("AB"[number % 2], 1, "step_failed", str(number), detail=f"line {number} at 0x7f{number}")
        assert len(self.decide(story, pool(3))) == 3

    def test_one_job_failing_again_and_again_is_one_job(self):
        story = Story(*names(2))
        for number, site in enumerate("ABC", 1):
            story.fail_at(site, number, "step_failed")
        assert self.decide(story, pool(2)) == []

    def test_a_job_that_succeeded_disproves_it(self):
        story = failing_alike("AAB", jobs=5)
        story.succeed_at("A", 2, "4")
        assert self.decide(story, pool(5)) == []

    def test_so_does_one_whose_training_is_further(self):
        story = failing_alike("AAB", jobs=5)
        story.start("agent-4", "4-1", "4")
        story.checkpoint(7, "agent-4", "4")
        assert self.decide(story, pool(5)) == []

    def test_on_one_machine_the_evidence_is_different_jobs(self):
        here = pool(100, many_sites=False)
        (first, *_) = self.decide(failing_alike(["local"] * 3), here)
        assert first.reason == "stopped after 3 identical failures on this machine"
        assert self.decide(failing_alike(["local"] * 2), here) == []

    def test_a_reopened_run_starts_without_that_evidence(self):
        story = failing_alike("AAB", jobs=4)
        for job in names(3):
            story.verdict("failed", job)
            story.reopen(job)
        assert self.decide(story, pool(4)) == []

    def test_what_a_person_asked_to_cancel_is_left_to_that(self):
        story = failing_alike("AAB", jobs=4)
        story.request("3")
        assert "3" not in {d.job for d in self.decide(story, pool(4))}


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


class TestConfirmingElsewhere:
    def judge(self, story, rules=None):
        return verdict(rules or pool())(story.state, ["0"], 0.0)

    @pytest.mark.parametrize("kind", ["step_failed", "output_missing", "output_wrong"])
    def test_a_mistake_seen_once_in_a_pool_is_looked_at_elsewhere(self, kind):
        story = Story()
        story.fail_at("A", 1, kind)
        assert self.judge(story) == []
        (again,) = start(pool())(story.state, ["0"], 1e6)
        assert again.amendment.avoid_sites == ("A",)

    def test_twice_is_enough_even_at_one_site(self):
        story = Story()
        story.fail_at("A", 1, "step_failed")
        story.fail_at("A", 2, "step_failed")
        assert self.judge(story)[0].reason == "2 attempts failed alike"

    def test_another_jobs_failure_elsewhere_is_evidence_too(self):
        story = Story("0", "1")
        story.fail_at("B", 1, "step_failed", "1")
        story.fail_at("A", 1, "step_failed", "0")
        assert self.judge(story, pool(2))[0].reason == "it failed alike at 2 sites"

    def test_not_if_it_took_long_to_fail(self):
        story = Story()
        story.fail_at("A", 1, "step_failed", seconds=2 * HOUR)
        assert "ran for long" in self.judge(story)[0].reason

    def test_not_on_one_machine(self):
        story = Story()
        story.fail_at("local", 1, "step_failed")
        assert self.judge(story, pool(many_sites=False))[0].reason == "another attempt would end alike"

    @pytest.mark.parametrize("lines", ['GLIDEIN_Site == "A"', 'regexp("a1", Machine)'])
    def test_not_where_the_user_says_at_which_place_it_has_to_run(self, lines):
        story = Story()
        story.fail_at("A", 1, "step_failed")
        made = Plan("r", "n", "htcondor", (), htcondor=(EnvVar("Requirements", lines),))
        pinned = Rules.of(made, HTCONDOR)
        assert self.judge(story, pinned)[0].reason == "another attempt would end alike"
        assert not Rules.of(replace(made, htcondor=(EnvVar("requirements", "HasAVX"),)), HTCONDOR).pinned

    def test_a_404_is_tried_again_in_a_pool_only(self):
        story = Story()
        story.fail_at("A", 1, "object_missing")
        assert self.judge(story) == []
        assert self.judge(story, pool(many_sites=False))[0].failure.kind == "object_missing"


class TestAvoiding:
    def story(self):
        told = Story("0", "1", "2")
        told.now = 1000.0
        told.succeed_at("B", 1, "2", host="b1")
        return told

    def test_the_machine_that_failed_for_a_while(self):
        story = self.story()
        story.fail_at("A", 1, "gpu_unusable", host="slot1@a1")
        assert avoided(story.state, pool(), 1000.0 + HOUR - 1) == ((), ("a1",))
        assert avoided(story.state, pool(), 1000.0 + HOUR) == ((), ())

    def test_a_site_where_two_machines_failed(self):
        story = self.story()
        story.fail_at("A", 1, "gpu_unusable", host="a1")
        story.fail_at("A", 1, "host_unknown", "1", host="a2")
        assert avoided(story.state, pool(), 1001.0) == (("A",), ()), "its machines need not be named"
        assert avoided(story.state, pool(), 1001.0 + HOUR)[0] == (), "by then they weigh half"

    def test_not_a_site_where_more_ended_well(self):
        story = self.story()
        story.fail_at("B", 1, "gpu_unusable", host="b8")
        story.fail_at("B", 1, "gpu_unusable", "1", host="b9")
        for number in (2, 3):
            story.succeed_at("B", number, "2", host="b1")
        story.succeed_at("C", 4, "2", host="c1")
        assert avoided(story.state, pool(), 1001.0) == ((), ("b8", "b9"))

    @pytest.mark.parametrize(
        "kind", ["step_failed", "service_unavailable", "evicted", "object_missing", "out_of_memory", "delivery_refused"]
    )
    def test_not_for_what_is_no_fault_of_the_place(self, kind):
        story = self.story()
        story.fail_at("A", 1, kind, host="a1")
        story.fail_at("A", 1, kind, "1", host="a2")
        assert avoided(story.state, pool(), 1001.0) == ((), ())

    def broken_image(self):
        """At two sites of three; at the third one something else happened."""
        story = Story(*names(5))
        for number, site in enumerate("AABB"):
            story.fail_at(site, 1, "container_failed", str(number), host=f"w{number}", detail="no such image")
        story.fail_at("C", 1, "service_unavailable", "4", host="c1")
        return story

    def test_not_for_what_is_the_same_everywhere(self):
        assert avoided(self.broken_image().state, pool(5), 1.0) == ((), ())

    def test_but_if_another_job_has_got_past_it(self):
        story = self.broken_image()
        story.now = 1.0
        story.submit("4-2", "4")
        story.say("agent-4-2", "attempt.started", "4", decision="4-2", host="c1", pid=7, site="C")
        assert avoided(story.state, pool(5), 2.0) == ((), ())
        assert avoided(story.state, pool(5), 60.0) == (("A", "B"), ()), "it has outlived the others"

    def test_the_pools_time_limit_speaks_of_a_slow_machine(self):
        story = self.story()
        story.fail_at("A", 1, "time_limit", host="a1")
        assert avoided(story.state, pool(), 1001.0) == ((), ("a1",))

    def test_never_every_place_that_is_known(self):
        story = Story("0", "1")
        story.fail_at("A", 1, "gpu_unusable", host="a1")
        story.fail_at("A", 1, "gpu_unusable", "1", host="a2")
        assert avoided(story.state, pool(), 0.0) == ((), ())

    def test_never_on_one_machine(self):
        story = self.story()
        story.fail_at("A", 1, "gpu_unusable", host="a1")
        assert avoided(story.state, pool(many_sites=False), 1001.0) == ((), ())

    def test_what_is_asked_for_next_says_so(self):
        story = self.story()
        story.fail_at("A", 1, "gpu_unusable", host="a1")
        (again,) = start(pool())(story.state, ["0"], 1100.0)
        assert again.amendment == Amendment(avoid_machines=("a1",))
        assert event_of(again)[1]["amendment"] == {"avoid_machines": ["a1"]}

    def test_waiting_too_long_for_another_place_it_is_asked_for_as_planned(self):
        story = self.story()
        story.fail_at("A", 1, "gpu_unusable", host="a1")
        story.supervise("decided", action="submit", id="0-2", reason="r", amendment={"avoid_machines": ["a1"]})
        story.confirm("0-2")
        assert loosen(pool())(story.state, ["0"], 1000.0 + HOUR / 6 - 1) == []
        (cancel,) = loosen(pool())(story.state, ["0"], 1000.0 + HOUR / 6)
        assert isinstance(cancel, Cancel) and cancel.target == "0-2"
        story.cancel("0-2")
        story.gone("0-2")
        (again,) = start(pool())(story.state, ["0"], 1100.0)
        assert again == Submit("0", "0-3", again.reason)
        assert len(story.job.spent) == 1, "waiting costs no attempt"

    def test_where_jobs_wait_for_hours_it_is_waited_for_another_place_as_long(self):
        """In a busy pool every wait is longer than ten minutes."""
        story = self.story()
        story.submit("1-1", "1")
        story.now += 2 * HOUR
        story.placed(1, "1-1", "1")
        story.fail_at("A", 1, "gpu_unusable", host="a1")
        story.supervise("decided", action="submit", id="0-2", reason="r", amendment={"avoid_machines": ["a1"]})
        story.confirm("0-2")
        assert loosen(pool())(story.state, ["0"], story.now + 3 * HOUR) == []
        assert loosen(pool())(story.state, ["0"], story.now + 4 * HOUR)

    def test_more_memory_and_disk_are_kept_however_long_that_takes(self):
        story = self.story()
        story.fail_at("A", 1, "out_of_memory", host="a1")
        story.fail_at("A", 2, "disk_full", host="a2")
        (again,) = start(pool())(story.state, ["0"], 1100.0)
        assert (again.amendment.memory, again.amendment.disk) == (2.0, 2.0)
        given = event_of(again)[1]["amendment"]
        story.supervise("decided", action="submit", id="0-3", reason="r", amendment=given)
        story.confirm("0-3")
        (cancel,) = loosen(pool())(story.state, ["0"], 1e6)
        story.cancel(cancel.target)
        story.gone(cancel.target)
        (again,) = start(pool())(story.state, ["0"], 1e6)
        assert again.amendment == Amendment(memory=2.0, disk=2.0), "only the places are forgotten"
        story.supervise("decided", action="submit", id="0-4", reason="r", amendment=event_of(again)[1]["amendment"])
        story.confirm("0-4")
        assert loosen(pool())(story.state, ["0"], 1e9) == []

    def test_one_that_runs_or_is_as_planned_waits_for_nothing(self):
        story = self.story()
        story.submit("0-1")
        story.supervise("decided", "1", action="submit", id="1-1", reason="r", amendment={"avoid_machines": ["a1"]})
        story.start("agent-1", "1-1", "1")
        assert loosen(pool(3))(story.state, ["0", "1"], 1e9) == []


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
