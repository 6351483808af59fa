"""Submit attempts: the first one of each job, and retries with increasing delays."""

from __future__ import annotations

from packtrain.backoff import Backoff
from packtrain.events import Failure
from packtrain.events.failure import CONFIRM_ELSEWHERE, MORE_MEMORY, RETRY
from packtrain.state import Execution, JobState, RunState
from packtrain.supervise.decisions import ChangedJobs, Decision, Policy, Submit
from packtrain.supervise.policies.config import PolicyConfig
from packtrain.supervise.policies.overrides import make_overrides
from packtrain.supervise.policies.site_avoidance import find_avoided_locations

_BACKOFF_FACTOR = 3.0
_POOL_REPORT_TIMEOUT_S = 120.0  # how long the pool may take to report that it has ended an execution


def submit_policy(config: PolicyConfig) -> Policy:
    """Return the policy that submits attempts."""

    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        ready = [job for job_id in changed_jobs if _is_ready(job := state.jobs[job_id], config, now)]
        avoid = find_avoided_locations(state, config, now) if ready else ((), ())
        return [
            Submit(job.id, f"{job.id}-{job.n_attempts + 1}", _submit_reason(job), make_overrides(job, config, avoid))
            for job in ready
        ]

    return policy


def _is_ready(job: JobState, config: PolicyConfig, now: float) -> bool:
    return (
        not job.result
        and not job.live_executions
        and not job.winning_execution  # its outputs are being published
        and not job.open_requests
        and now >= job.changed_at + retry_delay_s(job, config)
    )


def retry_delay_s(job: JobState, config: PolicyConfig) -> float:
    """Return the delay between the end of the last execution and the next attempt, in seconds.

    A failing server needs time; after a preemption there is no reason to wait. Until the pool reports that it has ended
    the execution, it may start the attempt again by itself: then another attempt would do the same work.
    """
    last = job.recent_executions[-1] if job.recent_executions else None
    if last is None or job.has_cancel_decision(last.attempt_id):
        return 0.0
    timeline = job.attempts[last.attempt_id].timeline
    is_in_pool = timeline is not None and timeline.session is not None
    return max(_backoff_s(job, last, config), _POOL_REPORT_TIMEOUT_S if is_in_pool else 0.0)


def _backoff_s(job: JobState, last: Execution, config: PolicyConfig) -> float:
    if last.failure is None or _needs_no_delay(last.failure):
        return 0.0
    n_failed = sum(execution.failure is not None for execution in job.recent_executions)
    return Backoff(config.recovery.retry_delay_s, config.recovery.max_wait_s, _BACKOFF_FACTOR).delay_s(n_failed)


def _needs_no_delay(failure: Failure) -> bool:
    """Return whether waiting does not help: after a preemption, or if the next attempt gets other overrides."""
    is_preemption = failure.blame == "pool" and failure.action != RETRY
    return is_preemption or failure.action in (CONFIRM_ELSEWHERE, MORE_MEMORY)


def _submit_reason(job: JobState) -> str:
    last = job.recent_executions[-1] if job.recent_executions else None
    if last is None:
        return "first attempt" if not job.executions else "the job was reopened"
    return f"execution {last.number} ended: {last.failure.kind if last.failure else last.status.value}"
