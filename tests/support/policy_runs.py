"""Jobs of a run on a pool, and the rules that their recovery has."""

from __future__ import annotations

from packtrain.plan import Job, Limits, Recovery, Resources
from packtrain.supervise.policies import PolicyConfig
from tests.support.event_builder import RunBuilder

HOUR_S = 3600.0


def make_policy_config(n_jobs=1, has_multiple_sites=True, limits=None, inputs=(), **recovery):
    made = {str(n): Job(str(n), (), Resources(), limits or Limits(), (), inputs=inputs) for n in range(n_jobs)}
    return PolicyConfig(Recovery(**recovery), made, many_sites=has_multiple_sites)


def job_ids(n_jobs):
    return [str(n) for n in range(n_jobs)]


def build_identical_failures(sites, kind="step_failed", n_jobs=100, detail="exit code 1"):
    """The first jobs failed at these sites, the others are in the queue."""
    story = RunBuilder(*job_ids(n_jobs))
    for number in range(n_jobs):
        if number < len(sites):
            story.add_failed_attempt_at(sites[number], 1, kind, str(number), detail=detail)
        else:
            story.submit(f"{number}-1", str(number))
    return story
