"""Runs on a pool and policy configurations for tests of the recovery policies."""

from __future__ import annotations

from packtrain.plan import Job, Limits, Recovery, Resources
from packtrain.supervise.policies import PolicyConfig
from tests.support.event_builder import RunBuilder

HOUR_S = 3600.0


def make_policy_config(n_jobs=1, has_multiple_sites=True, limits=None, inputs=(), **recovery):
    jobs = {str(n): Job(str(n), (), Resources(), limits or Limits(), (), inputs=inputs) for n in range(n_jobs)}
    return PolicyConfig(Recovery(**recovery), jobs, has_multiple_sites=has_multiple_sites)


def job_ids(n_jobs):
    return [str(n) for n in range(n_jobs)]


def build_identical_failures(sites, kind="step_failed", n_jobs=100, detail="exit code 1"):
    """Build a run whose first jobs failed, one at each of these sites; the other jobs are queued."""
    run = RunBuilder(*job_ids(n_jobs))
    for number in range(n_jobs):
        if number < len(sites):
            run.add_failed_attempt_at(sites[number], 1, kind, str(number), detail=detail)
        else:
            run.submit(f"{number}-1", str(number))
    return run
