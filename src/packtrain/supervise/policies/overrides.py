"""Choose what the next attempt of a job gets that differs from the plan.

That may be more memory or disk, other sites or nodes, or inputs that the agent fetches instead of the pool.
"""

from __future__ import annotations

import math
from dataclasses import replace

from packtrain.engines.api import NO_OVERRIDES, Overrides
from packtrain.events.failure import MORE_DISK, MORE_MEMORY, SWITCH_TRANSFER
from packtrain.state import Execution, ExecutionStatus, JobState, RunState
from packtrain.state.timing import execution_site
from packtrain.supervise.decisions import Cancel, ChangedJobs, Decision, Policy
from packtrain.supervise.policies.config import PolicyConfig

_GROWTH_FACTOR = 2.0
_WAIT_SHARE = 1 / 6  # of the time for which a site is avoided: how long to wait for another site
_MIN_WAIT_S = 60.0
_MEDIAN_WAIT_FACTOR = 2.0  # in a busy pool, only a wait longer than this multiple of the median is unusual
_AVOID_KEYS = ("avoid_sites", "avoid_nodes")
AvoidedLocations = tuple[tuple[str, ...], tuple[str, ...]]


def make_overrides(job: JobState, config: PolicyConfig, avoid: AvoidedLocations) -> Overrides:
    """Return the overrides for the next attempt of a job.

    Args:
        job: The job.
        config: The policy configuration.
        avoid: The sites and the nodes that the run avoids.
    """
    if not job.executions and not any(avoid):
        return NO_OVERRIDES
    overrides = _resource_overrides(job, config)
    if _found_no_node(job):
        return overrides
    sites, nodes = ({*names, *_locations_moved_from(job, key)} for names, key in zip(avoid, _AVOID_KEYS, strict=True))
    sites.update(_site_to_confirm_against(job, config))
    return replace(overrides, avoid_sites=tuple(sorted(sites)), avoid_nodes=tuple(sorted(nodes)))


def _resource_overrides(job: JobState, config: PolicyConfig) -> Overrides:
    """Return more of the resources that the job ran out of. Without them it would fail again."""
    disk_factor = min(_GROWTH_FACTOR ** _count_failures(job, MORE_DISK), config.recovery.max_disk_factor)
    return Overrides(
        memory_factor=_memory_factor(job, config),
        disk_factor=disk_factor if config.has_multiple_sites else 1.0,
        fetch_with_agent=_should_fetch_with_agent(job, config),
    )


def _locations_moved_from(job: JobState, key: str) -> set[str]:
    """Return the sites or nodes that the job was moved away from."""
    return {str(name) for move in job.moves.values() for name in move.get(key) or ()}


def _count_failures(job: JobState, action: str) -> int:
    """Return the number of failures that call for an action. Executions before a reopening count, too."""
    return sum(execution.failure is not None and execution.failure.action == action for execution in job.executions)


def _memory_factor(job: JobState, config: PolicyConfig) -> float:
    """Return the memory factor, limited to the largest node: the job would wait forever for more."""
    planned_mb = config.jobs[job.id].resources.memory_mb if job.id in config.jobs else 1
    largest_factor = max(1.0, config.max_memory_mb / max(1, planned_mb))
    return min(_GROWTH_FACTOR ** _count_failures(job, MORE_MEMORY), config.recovery.max_memory_factor, largest_factor)


def _site_to_confirm_against(job: JobState, config: PolicyConfig) -> tuple[str, ...]:
    """Return the site of the last execution if it failed because of a user error, to confirm that at another site."""
    last = job.recent_executions[-1] if job.recent_executions else None
    if last is None or last.failure is None or last.failure.blame != "user":
        return ()
    return (execution_site(last),) if execution_site(last) and config.can_move else ()


def _should_fetch_with_agent(job: JobState, config: PolicyConfig) -> bool:
    is_possible = config.recovery.fallback_to_agent and config.uses_transfer_plugin(job.id)
    return is_possible and _count_failures(job, SWITCH_TRANSFER) > 0


def _found_no_node(job: JobState) -> bool:
    """Return whether `relax_overrides_policy` ended the last attempt, because no other node matched."""
    last = job.recent_executions[-1] if job.recent_executions else None
    if last is None or last.copy_of:
        return False
    return _avoids_locations(last) and _has_never_run(last) and job.has_cancel_decision(last.attempt_id)


def relax_overrides_policy(config: PolicyConfig) -> Policy:
    """Return the policy that ends attempts that wait too long for a node outside the avoided sites.

    The next attempt is submitted without site restrictions.
    """
    min_wait_s = max(_MIN_WAIT_S, config.recovery.avoid_for_s * _WAIT_SHARE)

    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        unfinished = (job for job_id in changed_jobs if not (job := state.jobs[job_id]).result)
        waiting = [job for job in unfinished if now >= job.changed_at + min_wait_s]
        stuck = [(job, execution) for job in waiting for execution in _find_stuck(job)]
        wait_s = _usual_wait_s(state) if stuck else 0.0
        return [_cancel_stuck(job, execution) for job, execution in stuck if now >= job.changed_at + wait_s]

    return policy


def _usual_wait_s(state: RunState) -> float:
    median_s = state.stats_stale_ok.timing.median_queue_s()
    return _MEDIAN_WAIT_FACTOR * median_s if math.isfinite(median_s) else 0.0


def _find_stuck(job: JobState) -> list[Execution]:
    queued = (e for e in job.live_executions if e.status is ExecutionStatus.QUEUED)
    return [
        e for e in queued if _avoids_locations(e) and _has_never_run(e) and not job.has_cancel_decision(e.attempt_id)
    ]


def _cancel_stuck(job: JobState, execution: Execution) -> Cancel:
    is_only_attempt = len(job.live_executions) == 1
    return Cancel(
        job.id,
        execution.attempt_id,
        "no node outside the avoided sites matched; resubmitted without site restrictions"
        if is_only_attempt
        else "no other node took this second copy",
    )


def _avoids_locations(execution: Execution) -> bool:
    return any(name in execution.overrides for name in _AVOID_KEYS)


def _has_never_run(execution: Execution) -> bool:
    return not execution.emitter and not execution.execution_number
