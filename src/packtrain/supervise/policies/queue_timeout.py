"""Attempts that wait for a machine that does not come: the pool has none that fits, and nobody would ever say so.

Looks at all that wait, not only at what changed: the supervisor asks seldom."""

from __future__ import annotations

from packtrain.state import Execution, ExecutionStatus, JobState, RunState
from packtrain.state.job import HOLD_QUEUE_TIMEOUT
from packtrain.supervise.decisions import ChangedJobs, Decision, GiveUp, Policy
from packtrain.supervise.policies.config import PolicyConfig


def queue_timeout_policy(config: PolicyConfig) -> Policy:
    limit = config.recovery.max_queue_time_s

    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        if not config.many_sites or state.stats_stale_ok.timing.running_jobs:
            return []
        old = [
            job
            for name in state.stats_stale_ok.timing.waiting_jobs
            if now >= (job := state.jobs[name]).changed_at + limit
        ]
        if not old or state.stats.timing.running_jobs:  # the record is what was asked above, and what began since
            return []
        given_up = [job for job in old if now >= queue_deadline_at(state, job, config)]
        return [decision for job in sorted(given_up, key=lambda job: job.id) for decision in _give_up(job, limit)]

    return policy


def queue_deadline_at(state: RunState, job: JobState, config: PolicyConfig) -> float:
    """As long as something of the run gets a machine, or has one, the others may only have to wait for their turn."""
    return max(job.waiting_since, state.stats.timing.last_change_at) + config.recovery.max_queue_time_s


def _give_up(job: JobState, max_queue_s: float) -> list[Decision]:
    reason = f"no machine of the pool took anything of the run for {max_queue_s / 3600:.1f} h"
    return [
        GiveUp(job.id, a.attempt_id, reason, HOLD_QUEUE_TIMEOUT)
        for a in job.live_executions
        if is_queued(a) and _is_undecided(job, a)
    ]


def is_queued(execution: Execution) -> bool:
    return execution.status is ExecutionStatus.QUEUED


def _is_undecided(job: JobState, execution: Execution) -> bool:
    decided = job.has_cancel_decision(execution.attempt_id) or job.decision_for(
        execution.attempt_id, HOLD_QUEUE_TIMEOUT
    )
    return not decided and not job.open_requests and not job.result
