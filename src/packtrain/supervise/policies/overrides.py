"""What the next attempt of a job gets otherwise than planned: more memory or disk, another place, another way for its
data."""

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
_WAIT_SHARE, _MIN_WAIT_S = 1 / 6, 60.0  # of the time that a place is avoided
_MEDIAN_WAIT_FACTOR = 2.0  # where jobs wait for long anyway, a long wait says nothing of what was asked for
_AVOID_KEYS = ("avoid_sites", "avoid_nodes")
AvoidedLocations = tuple[tuple[str, ...], tuple[str, ...]]


def make_overrides(job: JobState, config: PolicyConfig, avoid: AvoidedLocations) -> Overrides:
    """`avoid`: sites and machines."""
    if not job.executions and not any(avoid):
        return NO_OVERRIDES
    needs = _resource_overrides(job, config)
    if _found_no_node(job):
        return needs
    sites, machines = (
        {*names, *_locations_moved_from(job, key)} for names, key in zip(avoid, _AVOID_KEYS, strict=True)
    )
    elsewhere = tuple(sorted({*sites, *_site_to_confirm_against(job, config)}))
    return replace(needs, avoid_sites=elsewhere, avoid_nodes=tuple(sorted(machines)))


def _resource_overrides(job: JobState, config: PolicyConfig) -> Overrides:
    """What it failed without: as planned it would fail again, however long it waits for more."""
    disk = (
        min(_GROWTH_FACTOR ** _count_failures(job, MORE_DISK), config.recovery.max_disk_factor)
        if config.many_sites
        else 1.0
    )
    return Overrides(
        memory_factor=_memory_factor(job, config),
        disk_factor=disk,
        fetch_with_agent=_should_fetch_with_agent(job, config),
    )


def _locations_moved_from(job: JobState, key: str) -> set[str]:
    """Places that it was moved away from."""
    return {str(name) for moved in job.moves.values() for name in moved.get(key) or ()}


def _count_failures(job: JobState, action: str) -> int:
    """Of all attempts: what a job needs is still so when it was opened again."""
    return sum(attempt.failure is not None and attempt.failure.action == action for attempt in job.executions)


def _memory_factor(job: JobState, config: PolicyConfig) -> float:
    """Not more than the largest machine has: it would wait for ever."""
    planned = config.jobs[job.id].resources.memory_mb if job.id in config.jobs else 1
    room = max(1.0, config.max_memory_mb / max(1, planned))
    return min(_GROWTH_FACTOR ** _count_failures(job, MORE_MEMORY), config.recovery.max_memory_factor, room)


def _site_to_confirm_against(job: JobState, config: PolicyConfig) -> tuple[str, ...]:
    """A mistake is to be confirmed elsewhere."""
    last = job.recent_executions[-1] if job.recent_executions else None
    doubted = last is not None and last.failure is not None and last.failure.blame == "user"
    return (execution_site(last),) if doubted and last and execution_site(last) and config.can_move else ()


def _should_fetch_with_agent(job: JobState, config: PolicyConfig) -> bool:
    switches = config.recovery.fallback_to_agent and config.uses_transfer_plugin(job.id)
    return switches and _count_failures(job, SWITCH_TRANSFER) > 0


def _found_no_node(job: JobState) -> bool:
    """No other place took it, see `loosen`."""
    last = job.recent_executions[-1] if job.recent_executions else None
    gone = (
        last is not None
        and _avoids_locations(last)
        and _has_never_run(last)
        and job.has_cancel_decision(last.attempt_id)
    )
    return gone and last is not None and not last.copy_of


def relax_overrides_policy(config: PolicyConfig) -> Policy:
    """An attempt that waits too long for another place than those that are avoided is asked for anywhere."""
    least = max(_MIN_WAIT_S, config.recovery.avoid_for_s * _WAIT_SHARE)

    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        jobs = [job for name in changed_jobs if not (job := state.jobs[name]).result and now >= job.changed_at + least]
        stuck = [(job, attempt) for job in jobs for attempt in _find_stuck(job)]
        patience = _usual_wait_s(state) if stuck else 0.0
        return [_cancel_stuck(job, attempt) for job, attempt in stuck if now >= job.changed_at + patience]

    return policy


def _usual_wait_s(state: RunState) -> float:
    usual = state.stats_stale_ok.timing.median_queue_s()
    return _MEDIAN_WAIT_FACTOR * usual if math.isfinite(usual) else 0.0


def _find_stuck(job: JobState) -> list[Execution]:
    idle = (
        a
        for a in job.live_executions
        if a.status is ExecutionStatus.QUEUED and _avoids_locations(a) and _has_never_run(a)
    )
    return [attempt for attempt in idle if not job.has_cancel_decision(attempt.attempt_id)]


def _cancel_stuck(job: JobState, execution: Execution) -> Cancel:
    alone = "no machine at another place took it; it is asked for anywhere"
    return Cancel(
        job.id,
        execution.attempt_id,
        alone if len(job.live_executions) == 1 else "no other machine took this second copy",
    )


def _avoids_locations(execution: Execution) -> bool:
    return any(name in execution.overrides for name in _AVOID_KEYS)


def _has_never_run(execution: Execution) -> bool:
    return not execution.emitter and not execution.execution_number
