"""Failures that stop a run, and how they are confirmed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packtrain.engines.htcondor import capabilities_for
from packtrain.plan import EnvVar, Plan
from packtrain.supervise.decisions import Cancel, EndJob
from packtrain.supervise.policies import PolicyConfig, job_result_policy, stop_run_policy, submit_policy
from tests.support.event_builder import RunBuilder
from tests.support.policy_runs import HOUR_S, build_identical_failures, job_ids, make_policy_config


class TestStopRun:
    def decide(self, run, config=None, changed=("0",)):
        return stop_run_policy(config or make_policy_config(100))(run.state, changed, 0.0)

    def test_identical_failures_at_two_sites(self):
        run = build_identical_failures("AAB")
        results = [d for d in self.decide(run) if isinstance(d, EndJob)]
        cancelled = [d for d in self.decide(run) if isinstance(d, Cancel)]
        assert len(cancelled) == 97
        assert {d.reason for d in cancelled} == {"stopped after 3 identical failures on 2 sites"}
        assert {d.job for d in results} == {"0", "1", "2"}

    def test_result_of_jobs_that_were_not_started(self):
        run = build_identical_failures("AAB", n_jobs=4)
        run.cancel("3-1", "3")
        run.end_attempt("3-1", "3")
        ended = {d.job: d for d in self.decide(run, make_policy_config(4), ("3",))}
        assert ended["3"].failure.kind == "run_stopped"
        expected = "stopped after 3 identical failures on 2 sites; this job was not started"
        assert ended["3"].failure.detail == expected
        assert ended["0"].failure.kind == "step_failed", "a job keeps its own failure"

    def test_running_job_continues(self):
        run = build_identical_failures("AAB", n_jobs=4)
        run.start_agent("agent-3", "3-1", "3")
        assert {d.job for d in self.decide(run, make_policy_config(4))} == {"0", "1", "2"}

    @pytest.mark.parametrize(
        ("sites", "config"),
        [
            ("AAA", make_policy_config(100)),
            ("AB", make_policy_config(100)),
            ("AAB", make_policy_config(100, stop_after_identical_failures=0)),
        ],
    )
    def test_not_enough_evidence(self, sites, config):
        assert self.decide(build_identical_failures(sites), config) == []

    def test_missing_objects_do_not_stop_run(self):
        assert self.decide(build_identical_failures("ABC" * 5, "object_missing")) == []

    def test_site_faults_do_not_stop_run(self):
        assert self.decide(build_identical_failures("ABC" * 5, "gpu_unusable")) == []

    def test_broken_image_stops_run_after_jobs_failed(self):
        run = build_identical_failures("ABC", "container_failed", n_jobs=9)
        assert self.decide(run, make_policy_config(9)) == []
        for job in job_ids(3):
            run.end_job("failed", job)
        assert {d.job for d in self.decide(run, make_policy_config(9), ("3",))} == set(), (
            "no attempt is about to be submitted"
        )
        stopped = self.decide(run, make_policy_config(9))
        assert {d.reason for d in stopped} == {"stopped after 3 identical failures on 3 sites"}
        run.now = 1.0
        run.submit("8-1", "8")
        run.add_event("agent-8", "agent.started", "8", attempt="8-1", host="d1", pid=7, site="D")
        run.add_stage("steps", "agent-8", "8", duration_s=None)
        assert self.decide(run, make_policy_config(9)) == [], "another job has reached its steps"

    def test_job_that_never_ran_has_no_site(self):
        run = build_identical_failures("AA", "submit_rejected", n_jobs=4)
        run.submit("2-1", "2")
        run.hold("give_up", attempt_id="2-1", job="2", kind="submit_rejected")
        run.end_attempt("2-1", "2")
        assert [outcome.site for outcomes in run.state.stats.user_errors.values() for outcome in outcomes].count(
            ""
        ) == 1
        assert self.decide(run, make_policy_config(4)) == []

    def test_different_failures(self):
        run = RunBuilder(*job_ids(3))
        for number, message in enumerate(("no scipy", "no numpy", "no torch")):
            run.add_failed_attempt_at("AB"[number % 2], 1, "step_failed", str(number), detail=message)
        assert self.decide(run, make_policy_config(3)) == []

    def test_numbers_in_messages_are_ignored(self):
        run = RunBuilder(*job_ids(3))
        for number in range(3):
            run.add_failed_attempt_at(
                "AB"[number % 2], 1, "step_failed", str(number), detail=f"line {number} at 0x7f{number}"
            )
        assert len(self.decide(run, make_policy_config(3))) == 3

    def test_failures_of_one_job_count_once(self):
        run = RunBuilder(*job_ids(2))
        for number, site in enumerate("ABC", 1):
            run.add_failed_attempt_at(site, number, "step_failed")
        assert self.decide(run, make_policy_config(2)) == []

    def test_success_disproves_it(self):
        run = build_identical_failures("AAB", n_jobs=5)
        run.add_succeeded_attempt_at("A", 2, "4")
        assert self.decide(run, make_policy_config(5)) == []

    def test_further_training_disproves_it(self):
        run = build_identical_failures("AAB", n_jobs=5)
        run.start_agent("agent-4", "4-1", "4")
        run.save_checkpoint(7, "agent-4", "4")
        assert self.decide(run, make_policy_config(5)) == []

    def test_single_site_needs_different_jobs(self):
        config = make_policy_config(100, has_multiple_sites=False)
        (first, *_) = self.decide(build_identical_failures(["local"] * 3), config)
        assert first.reason == "stopped after 3 identical failures on this machine"
        assert self.decide(build_identical_failures(["local"] * 2), config) == []

    def test_reopened_run_starts_without_evidence(self):
        run = build_identical_failures("AAB", n_jobs=4)
        for job in job_ids(3):
            run.end_job("failed", job)
            run.reopen(job)
        assert self.decide(run, make_policy_config(4)) == []

    def test_jobs_with_cancel_request_are_skipped(self):
        run = build_identical_failures("AAB", n_jobs=4)
        run.request_cancel("3")
        assert "3" not in {d.job for d in self.decide(run, make_policy_config(4))}


class TestConfirmElsewhere:
    def decide(self, run, config=None):
        return job_result_policy(config or make_policy_config())(run.state, ["0"], 0.0)

    @pytest.mark.parametrize("kind", ["step_failed", "output_missing", "output_invalid"])
    def test_user_error_is_confirmed_elsewhere(self, kind):
        run = RunBuilder()
        run.add_failed_attempt_at("A", 1, kind)
        assert self.decide(run) == []
        (retry,) = submit_policy(make_policy_config())(run.state, ["0"], 1e6)
        assert retry.overrides.avoid_sites == ("A",)

    def test_two_failures_are_enough(self):
        run = RunBuilder()
        run.add_failed_attempt_at("A", 1, "step_failed")
        run.add_failed_attempt_at("A", 2, "step_failed")
        assert self.decide(run)[0].reason == "2 attempts failed in the same way"

    def test_failure_of_other_job_confirms(self):
        run = RunBuilder("0", "1")
        run.add_failed_attempt_at("B", 1, "step_failed", "1")
        run.add_failed_attempt_at("A", 1, "step_failed", "0")
        assert self.decide(run, make_policy_config(2))[0].reason == "it failed in the same way at 2 sites"

    def test_long_execution_is_not_repeated(self):
        run = RunBuilder()
        run.add_failed_attempt_at("A", 1, "step_failed", duration_s=2 * HOUR_S)
        assert "ran for a long time" in self.decide(run)[0].reason

    def test_single_site(self):
        run = RunBuilder()
        run.add_failed_attempt_at("local", 1, "step_failed")
        assert (
            self.decide(run, make_policy_config(has_multiple_sites=False))[0].reason
            == "another attempt would fail in the same way"
        )

    @pytest.mark.parametrize("requirements", ['GLIDEIN_Site == "A"', 'regexp("a1", Machine)'])
    def test_pinned_sites(self, requirements):
        run = RunBuilder()
        run.add_failed_attempt_at("A", 1, "step_failed")
        plan = Plan("r", "n", "htcondor", (), htcondor=(EnvVar("Requirements", requirements),))
        pinned = PolicyConfig.from_plan(plan, capabilities_for(plan))
        assert self.decide(run, pinned)[0].reason == "another attempt would fail in the same way"
        other = replace(plan, htcondor=(EnvVar("requirements", "HasAVX"),))
        assert not PolicyConfig.from_plan(other, capabilities_for(other)).has_pinned_sites

    def test_missing_object_is_retried_on_pools_only(self):
        run = RunBuilder()
        run.add_failed_attempt_at("A", 1, "object_missing")
        assert self.decide(run) == []
        assert self.decide(run, make_policy_config(has_multiple_sites=False))[0].failure.kind == "object_missing"
