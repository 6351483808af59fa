"""Give up attempts that no node has taken for a long time: most likely no node of the pool matches them.

This policy checks all waiting jobs, not only those that changed, so the supervisor calls it less often than others.
"""

from __future__ import annotations

from packtrain.formatting import format_duration
from packtrain.state import Execution, ExecutionStatus, JobState, RunState
from packtrain.state.job import HOLD_QUEUE_TIMEOUT
from packtrain.supervise.decisions import ChangedJobs, Decision, GiveUp, Policy
from packtrain.supervise.policies.config import PolicyConfig


def queue_timeout_policy(config: PolicyConfig) -> Policy:
    """Return the policy that gives up attempts after the maximum queue time."""
    max_queue_s = config.recovery.max_queue_time_s

    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        timing = state.stats_stale_ok.timing
        if not config.has_multiple_sites or timing.running_jobs:
            return []
        waiting = (state.jobs[job_id] for job_id in timing.waiting_jobs)
        overdue = [job for job in waiting if now >= job.changed_at + max_queue_s]
        if not overdue:
            return []
        timed_out = [job for job in overdue if now >= queue_deadline_at(state, job, config)]
        return [d for job in sorted(timed_out, key=lambda job: job.id) for d in _give_up(job, max_queue_s)]

    return policy


def queue_deadline_at(state: RunState, job: JobState, config: PolicyConfig) -> float:
    """Return when a waiting job is given up (by the store's clock).

    As long as other jobs of the run start or end, the job may only have to wait for its turn.
    """
    return max(job.waiting_since, state.stats.timing.last_change_at) + config.recovery.max_queue_time_s


def _give_up(job: JobState, max_queue_s: float) -> list[Decision]:
    reason = f"no node of the pool took any job of the run for {format_duration(max_queue_s)}"
    return [
        GiveUp(job.id, execution.attempt_id, reason, HOLD_QUEUE_TIMEOUT)
        for execution in job.live_executions
        if is_queued(execution) and _is_undecided(job, execution)
    ]


def is_queued(execution: Execution) -> bool:
    """Return whether an execution waits in the engine's queue."""
    return execution.status is ExecutionStatus.QUEUED


def _is_undecided(job: JobState, execution: Execution) -> bool:
    is_given_up = job.decision_for(execution.attempt_id, HOLD_QUEUE_TIMEOUT)
    is_decided = job.has_cancel_decision(execution.attempt_id) or is_given_up
    return not is_decided and not job.open_requests and not job.result
