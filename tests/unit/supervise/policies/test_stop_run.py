"""Mistakes that stop a run, and how they are made sure of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packtrain.engines.htcondor import CAPABILITIES as HTCONDOR
from packtrain.plan import EnvVar, Plan
from packtrain.supervise.decisions import Cancel, End
from packtrain.supervise.policies import Rules, halt, start, verdict
from tests.support.event_builder import Story
from tests.support.policy_runs import HOUR, failing_alike, names, pool


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
