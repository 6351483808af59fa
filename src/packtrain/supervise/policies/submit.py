"""Making attempts: the first one, and another after a failure that may pass."""

from __future__ import annotations

from packtrain.events import Failure
from packtrain.events.failure import CONFIRM_ELSEWHERE, MORE_MEMORY, RETRY
from packtrain.state import JobState, RunState
from packtrain.supervise.decisions import ChangedJobs, Decision, Policy, Submit
from packtrain.supervise.policies.config import PolicyConfig
from packtrain.supervise.policies.overrides import make_overrides
from packtrain.supervise.policies.site_avoidance import find_avoided_locations

_BACKOFF_FACTOR, _MAX_BACKOFF_STEPS = 3.0, 10


def submit_policy(config: PolicyConfig) -> Policy:
    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        ready = [job for name in changed_jobs if _is_ready(job := state.jobs[name], config, now)]
        places = find_avoided_locations(state, config, now) if ready else ((), ())
        return [
            Submit(job.id, f"{job.id}-{job.n_attempts + 1}", _submit_reason(job), make_overrides(job, config, places))
            for job in ready
        ]

    return policy


def _is_ready(job: JobState, config: PolicyConfig, now: float) -> bool:
    return (
        not job.result
        and not job.live_executions
        and not job.open_requests
        and now >= job.changed_at + retry_delay_s(job, config)
    )


def retry_delay_s(job: JobState, config: PolicyConfig) -> float:
    """Seconds after the last attempt's end. What the pool did needs no wait; a failing service does."""
    last = job.recent_executions[-1] if job.recent_executions else None
    if (
        last is None
        or last.failure is None
        or _needs_no_delay(last.failure)
        or job.has_cancel_decision(last.attempt_id)
    ):
        return 0.0
    failed = sum(attempt.failure is not None for attempt in job.recent_executions)
    waits = config.recovery.retry_delay_s * _BACKOFF_FACTOR ** min(failed - 1, _MAX_BACKOFF_STEPS)
    return float(min(config.recovery.max_wait_s, waits))


def _needs_no_delay(failure: Failure) -> bool:
    """Where waiting changes nothing: what the pool did, and what is done otherwise next time."""
    return (failure.blame == "pool" and failure.action != RETRY) or failure.action in (CONFIRM_ELSEWHERE, MORE_MEMORY)


def _submit_reason(job: JobState) -> str:
    last = job.recent_executions[-1] if job.recent_executions else None
    if last is None:
        return "not tried yet" if not job.executions else "opened again"
    return f"attempt {last.number} ended: {last.failure.kind if last.failure else last.status.value}"
