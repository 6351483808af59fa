"""Attempts that wait for a machine that does not come: the pool has none that fits, and nobody would ever say so.

Looks at all that wait, not only at what changed: the supervisor asks seldom."""

from __future__ import annotations

from packtrain.state import Attempt, AttemptStatus, JobState, RunState
from packtrain.state.job import NO_MACHINE
from packtrain.supervise.decisions import Changed, Decision, GiveUp, Policy
from packtrain.supervise.policies.config import Rules


def patience(rules: Rules) -> Policy:
    limit = rules.recovery.longest_queue_s

    def policy(state: RunState, changed: Changed, now: float) -> list[Decision]:
        if not rules.many_sites or state.outcomes.pace.running:
            return []
        old = [job for name in state.outcomes.pace.waiting if now >= (job := state.jobs[name]).changed_at + limit]
        if not old or state.record.pace.running:  # the record is what was asked above, and what began since
            return []
        given_up = [job for job in old if now >= gives_up_at(state, job, rules)]
        return [decision for job in sorted(given_up, key=lambda job: job.id) for decision in _given_up(job, limit)]

    return policy


def gives_up_at(state: RunState, job: JobState, rules: Rules) -> float:
    """As long as something of the run gets a machine, or has one, the others may only have to wait for their turn."""
    return max(job.waits_since, state.record.pace.last) + rules.recovery.longest_queue_s


def _given_up(job: JobState, limit: float) -> list[Decision]:
    reason = f"no machine of the pool took anything of the run for {limit / 3600:.1f} h"
    return [GiveUp(job.id, a.decision, reason, NO_MACHINE) for a in job.live if is_idle(a) and _is_wanted(job, a)]


def is_idle(attempt: Attempt) -> bool:
    return attempt.status is AttemptStatus.QUEUED


def _is_wanted(job: JobState, attempt: Attempt) -> bool:
    decided = job.cancel_decided(attempt.decision) or job.answer(attempt.decision, NO_MACHINE)
    return not decided and not job.open_requests and not job.verdict
