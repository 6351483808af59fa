"""Mistakes that stop a run, and how they are made sure of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packtrain.engines.htcondor import capabilities_for
from packtrain.plan import EnvVar, Plan
from packtrain.supervise.decisions import Cancel, EndJob
from packtrain.supervise.policies import PolicyConfig, job_result_policy, stop_run_policy, submit_policy
from tests.support.event_builder import RunBuilder
from tests.support.policy_runs import HOUR_S, build_identical_failures, job_ids, make_policy_config


class TestStoppingTheRun:
    def decide(self, story, rules=None, changed=("0",)):
        return stop_run_policy(rules or make_policy_config(100))(story.state, changed, 0.0)

    def test_three_identical_mistakes_at_two_sites_stop_what_was_not_started(self):
        story = build_identical_failures("AAB")
        verdicts = [d for d in self.decide(story) if isinstance(d, EndJob)]
        cancelled = [d for d in self.decide(story) if isinstance(d, Cancel)]
        assert len(cancelled) == 97
        assert {d.reason for d in cancelled} == {"stopped after 3 identical failures on 2 sites"}
        assert {d.job for d in verdicts} == {"0", "1", "2"}

    def test_then_these_jobs_end_as_not_started(self):
        story = build_identical_failures("AAB", n_jobs=4)
        story.cancel("3-1", "3")
        story.end_attempt("3-1", "3")
        ended = {d.job: d for d in self.decide(story, make_policy_config(4), ("3",))}
        assert ended["3"].failure.kind == "run_stopped"
        expected = "stopped after 3 identical failures on 2 sites; this job was not started"
        assert ended["3"].failure.detail == expected
        assert ended["0"].failure.kind == "step_failed", "its own failure, where it has one"

    def test_a_job_that_runs_goes_on_to_its_own_end(self):
        story = build_identical_failures("AAB", n_jobs=4)
        story.start_agent("agent-3", "3-1", "3")
        assert {d.job for d in self.decide(story, make_policy_config(4))} == {"0", "1", "2"}

    @pytest.mark.parametrize(
        ("sites", "rules"),
        [
            ("AAA", make_policy_config(100)),
            ("AB", make_policy_config(100)),
            ("AAB", make_policy_config(100, stop_after_identical_failures=0)),
        ],
    )
    def test_less_evidence_stops_nothing(self, sites, rules):
        assert self.decide(build_identical_failures(sites), rules) == []

    def test_fifteen_404s_are_no_mistake_of_the_user(self):
        assert self.decide(build_identical_failures("ABC" * 5, "object_missing")) == []

    def test_failures_of_sites_stop_nothing(self):
        assert self.decide(build_identical_failures("ABC" * 5, "gpu_unusable")) == []

    def test_a_broken_image_does_once_jobs_have_used_up_their_attempts_with_it(self):
        story = build_identical_failures("ABC", "container_failed", n_jobs=9)
        assert self.decide(story, make_policy_config(9)) == []
        for job in job_ids(3):
            story.end_job("failed", job)
        assert {d.job for d in self.decide(story, make_policy_config(9), ("3",))} == set(), (
            "nothing is about to be started"
        )
        stopped = self.decide(story, make_policy_config(9))
        assert {d.reason for d in stopped} == {"stopped after 3 identical failures on 3 sites"}
        story.now = 1.0
        story.submit("8-1", "8")
        story.add_event("agent-8", "agent.started", "8", attempt="8-1", host="d1", pid=7, site="D")
        story.add_stage("steps", "agent-8", "8", duration_s=None)
        assert self.decide(story, make_policy_config(9)) == [], "another one has got to its steps"

    def test_a_job_that_never_ran_is_no_evidence_of_a_site(self):
        story = build_identical_failures("AA", "submit_rejected", n_jobs=4)
        story.submit("2-1", "2")
        story.hold("give_up", attempt_id="2-1", job="2", kind="submit_rejected")
        story.end_attempt("2-1", "2")
        assert [one.site for found in story.state.stats.user_errors.values() for one in found].count("") == 1
        assert self.decide(story, make_policy_config(4)) == []

    def test_different_mistakes_are_counted_apart(self):
        story = RunBuilder(*job_ids(3))
        for number, words in enumerate(("no scipy", "no numpy", "no torch")):
            story.add_failed_attempt_at("AB"[number % 2], 1, "step_failed", str(number), detail=words)
        assert self.decide(story, make_policy_config(3)) == []

    def test_figures_in_what_was_said_make_no_difference(self):
        story = RunBuilder(*job_ids(3))
        for number in range(3):
            story.add_failed_attempt_at(
                "AB"[number % 2], 1, "step_failed", str(number), detail=f"line {number} at 0x7f{number}"
            )
        assert len(self.decide(story, make_policy_config(3))) == 3

    def test_one_job_failing_again_and_again_is_one_job(self):
        story = RunBuilder(*job_ids(2))
        for number, site in enumerate("ABC", 1):
            story.add_failed_attempt_at(site, number, "step_failed")
        assert self.decide(story, make_policy_config(2)) == []

    def test_a_job_that_succeeded_disproves_it(self):
        story = build_identical_failures("AAB", n_jobs=5)
        story.add_succeeded_attempt_at("A", 2, "4")
        assert self.decide(story, make_policy_config(5)) == []

    def test_so_does_one_whose_training_is_further(self):
        story = build_identical_failures("AAB", n_jobs=5)
        story.start_agent("agent-4", "4-1", "4")
        story.save_checkpoint(7, "agent-4", "4")
        assert self.decide(story, make_policy_config(5)) == []

    def test_on_one_machine_the_evidence_is_different_jobs(self):
        here = make_policy_config(100, has_multiple_sites=False)
        (first, *_) = self.decide(build_identical_failures(["local"] * 3), here)
        assert first.reason == "stopped after 3 identical failures on this machine"
        assert self.decide(build_identical_failures(["local"] * 2), here) == []

    def test_a_reopened_run_starts_without_that_evidence(self):
        story = build_identical_failures("AAB", n_jobs=4)
        for job in job_ids(3):
            story.end_job("failed", job)
            story.reopen(job)
        assert self.decide(story, make_policy_config(4)) == []

    def test_what_a_person_asked_to_cancel_is_left_to_that(self):
        story = build_identical_failures("AAB", n_jobs=4)
        story.request_cancel("3")
        assert "3" not in {d.job for d in self.decide(story, make_policy_config(4))}


class TestConfirmingElsewhere:
    def judge(self, story, rules=None):
        return job_result_policy(rules or make_policy_config())(story.state, ["0"], 0.0)

    @pytest.mark.parametrize("kind", ["step_failed", "output_missing", "output_invalid"])
    def test_a_mistake_seen_once_in_a_pool_is_looked_at_elsewhere(self, kind):
        story = RunBuilder()
        story.add_failed_attempt_at("A", 1, kind)
        assert self.judge(story) == []
        (again,) = submit_policy(make_policy_config())(story.state, ["0"], 1e6)
        assert again.overrides.avoid_sites == ("A",)

    def test_twice_is_enough_even_at_one_site(self):
        story = RunBuilder()
        story.add_failed_attempt_at("A", 1, "step_failed")
        story.add_failed_attempt_at("A", 2, "step_failed")
        assert self.judge(story)[0].reason == "2 attempts failed alike"

    def test_another_jobs_failure_elsewhere_is_evidence_too(self):
        story = RunBuilder("0", "1")
        story.add_failed_attempt_at("B", 1, "step_failed", "1")
        story.add_failed_attempt_at("A", 1, "step_failed", "0")
        assert self.judge(story, make_policy_config(2))[0].reason == "it failed alike at 2 sites"

    def test_not_if_it_took_long_to_fail(self):
        story = RunBuilder()
        story.add_failed_attempt_at("A", 1, "step_failed", duration_s=2 * HOUR_S)
        assert "ran for long" in self.judge(story)[0].reason

    def test_not_on_one_machine(self):
        story = RunBuilder()
        story.add_failed_attempt_at("local", 1, "step_failed")
        assert (
            self.judge(story, make_policy_config(has_multiple_sites=False))[0].reason
            == "another attempt would end alike"
        )

    @pytest.mark.parametrize("lines", ['GLIDEIN_Site == "A"', 'regexp("a1", Machine)'])
    def test_not_where_the_user_says_at_which_place_it_has_to_run(self, lines):
        story = RunBuilder()
        story.add_failed_attempt_at("A", 1, "step_failed")
        plan = Plan("r", "n", "htcondor", (), htcondor=(EnvVar("Requirements", lines),))
        pinned = PolicyConfig.from_plan(plan, capabilities_for(plan))
        assert self.judge(story, pinned)[0].reason == "another attempt would end alike"
        other = replace(plan, htcondor=(EnvVar("requirements", "HasAVX"),))
        assert not PolicyConfig.from_plan(other, capabilities_for(other)).user_pinned_sites

    def test_a_404_is_tried_again_in_a_pool_only(self):
        story = RunBuilder()
        story.add_failed_attempt_at("A", 1, "object_missing")
        assert self.judge(story) == []
        assert self.judge(story, make_policy_config(has_multiple_sites=False))[0].failure.kind == "object_missing"
