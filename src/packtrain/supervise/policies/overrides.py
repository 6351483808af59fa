"""What the next attempt of a job gets otherwise than planned: more memory or disk, another place, another way for its
data."""

from __future__ import annotations

import math
from dataclasses import replace

from packtrain.engines.api import AS_PLANNED, Amendment
from packtrain.events.failure import MORE_DISK, MORE_MEMORY, REDELIVER
from packtrain.state import Attempt, AttemptStatus, JobState, RunState
from packtrain.state.timing import site_of
from packtrain.supervise.decisions import Cancel, Changed, Decision, Policy
from packtrain.supervise.policies.config import Rules

_FACTOR = 2.0
_PATIENCE, _LEAST_PATIENCE_S = 1 / 6, 60.0  # of the time that a place is avoided
_USUAL_WAITS = 2.0  # where jobs wait for long anyway, a long wait says nothing of what was asked for
_AVOIDED = ("avoid_sites", "avoid_machines")
Places = tuple[tuple[str, ...], tuple[str, ...]]


def amendment(job: JobState, rules: Rules, avoid: Places) -> Amendment:
    """`avoid`: sites and machines."""
    if not job.attempts and not any(avoid):
        return AS_PLANNED
    needs = _needs(job, rules)
    if _found_no_machine(job):
        return needs
    sites, machines = ({*names, *_left(job, key)} for names, key in zip(avoid, _AVOIDED, strict=True))
    elsewhere = tuple(sorted({*sites, *_own_site(job, rules)}))
    return replace(needs, avoid_sites=elsewhere, avoid_machines=tuple(sorted(machines)))


def _needs(job: JobState, rules: Rules) -> Amendment:
    """What it failed without: as planned it would fail again, however long it waits for more."""
    disk = min(_FACTOR ** _count(job, MORE_DISK), rules.recovery.most_disk) if rules.many_sites else 1.0
    return Amendment(memory=_memory(job, rules), disk=disk, agent_brings=_agent_brings(job, rules))


def _left(job: JobState, key: str) -> set[str]:
    """Places that it was moved away from."""
    return {str(name) for moved in job.moves.values() for name in moved.get(key) or ()}


def _count(job: JobState, action: str) -> int:
    """Of all attempts: what a job needs is still so when it was opened again."""
    return sum(attempt.failure is not None and attempt.failure.action == action for attempt in job.attempts)


def _memory(job: JobState, rules: Rules) -> float:
    """Not more than the largest machine has: it would wait for ever."""
    planned = rules.jobs[job.id].resources.memory_mb if job.id in rules.jobs else 1
    room = max(1.0, rules.memory_mb / max(1, planned))
    return min(_FACTOR ** _count(job, MORE_MEMORY), rules.recovery.most_memory, room)


def _own_site(job: JobState, rules: Rules) -> tuple[str, ...]:
    """A mistake is to be confirmed elsewhere."""
    last = job.recent[-1] if job.recent else None
    doubted = last is not None and last.failure is not None and last.failure.blame == "user"
    return (site_of(last),) if doubted and last and site_of(last) and rules.can_move else ()


def _agent_brings(job: JobState, rules: Rules) -> bool:
    switches = rules.recovery.switch_delivery and rules.uses_plugins(job.id)
    return switches and _count(job, REDELIVER) > 0


def _found_no_machine(job: JobState) -> bool:
    """No other place took it, see `loosen`."""
    last = job.recent[-1] if job.recent else None
    gone = last is not None and _is_narrow(last) and _never_ran(last) and job.cancel_decided(last.decision)
    return gone and last is not None and not last.copy_of


def loosen(rules: Rules) -> Policy:
    """An attempt that waits too long for another place than those that are avoided is asked for anywhere."""
    least = max(_LEAST_PATIENCE_S, rules.recovery.avoid_s * _PATIENCE)

    def policy(state: RunState, changed: Changed, now: float) -> list[Decision]:
        jobs = [job for name in changed if not (job := state.jobs[name]).verdict and now >= job.changed_at + least]
        stuck = [(job, attempt) for job in jobs for attempt in _stuck(job)]
        patience = _patience(state) if stuck else 0.0
        return [_loosened(job, attempt) for job, attempt in stuck if now >= job.changed_at + patience]

    return policy


def _patience(state: RunState) -> float:
    usual = state.outcomes.pace.usual_wait()
    return _USUAL_WAITS * usual if math.isfinite(usual) else 0.0


def _stuck(job: JobState) -> list[Attempt]:
    idle = (a for a in job.live if a.status is AttemptStatus.QUEUED and _is_narrow(a) and _never_ran(a))
    return [attempt for attempt in idle if not job.cancel_decided(attempt.decision)]


def _loosened(job: JobState, attempt: Attempt) -> Cancel:
    alone = "no machine at another place took it; it is asked for anywhere"
    return Cancel(job.id, attempt.decision, alone if len(job.live) == 1 else "no other machine took this second copy")


def _is_narrow(attempt: Attempt) -> bool:
    return any(name in attempt.amendment for name in _AVOIDED)


def _never_ran(attempt: Attempt) -> bool:
    return not attempt.emitter and not attempt.start
