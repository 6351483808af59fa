"""Jobs of a run on a pool, and the rules that their recovery has."""

from __future__ import annotations

from packtrain.plan import Job, Limits, Recovery, Resources
from packtrain.supervise.policies import Rules
from tests.support.event_builder import Story

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
