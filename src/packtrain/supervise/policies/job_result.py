"""Decide the result of a job: succeeded, or failed."""

from __future__ import annotations

from packtrain.events import Failure
from packtrain.events.failure import CONFIRM_ELSEWHERE, FAIL_JOB, RETRY, STOP_RUN
from packtrain.formatting import format_duration
from packtrain.state import Execution, JobState, JobStatus, RunState
from packtrain.state.outcomes import failure_signature
from packtrain.state.timing import slot_seconds
from packtrain.supervise.decisions import ChangedJobs, Decision, EndJob, Policy
from packtrain.supervise.policies.config import PolicyConfig

_CHEAP_FAILURE_S = 1800.0  # a failure that takes longer is not confirmed at another site


def job_result_policy(config: PolicyConfig) -> Policy:
    """Return the policy that ends jobs. An attempt that requeued itself and made progress does not count."""

    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        unfinished = (job for job_id in changed_jobs if not (job := state.jobs[job_id]).result)
        return [decision for job in unfinished if (decision := _decide_result(state, job, config))]

    return policy


def _decide_result(state: RunState, job: JobState, config: PolicyConfig) -> EndJob | None:
    winner = job.winning_execution
    if winner:
        return EndJob(job.id, JobStatus.SUCCEEDED, f"execution {winner.number} passed all checks", winner.emitter)
    failures = list(job.counted_failures)
    tried = [e for e in job.recent_executions if not job.has_cancel_decision(e.attempt_id)]
    if job.live_executions or not failures:
        return None
    # While no supervisor was running, the pool may have used up the budget before an execution that does not count.
    permanent_reason = _permanent_reason(state, failures, config) if failures[-1] is tried[-1] else ""
    reason = permanent_reason or exhausted_budget(job, config)
    failure = failures[-1].failure or _no_progress_failure(failures[-1])
    return EndJob(job.id, JobStatus.FAILED, reason, failure=failure) if reason else None


def _permanent_reason(state: RunState, counted_failures: list[Execution], config: PolicyConfig) -> str:
    """Return why another attempt cannot help; "" if it may."""
    failure = counted_failures[-1].failure
    if failure is None:
        return ""
    if _would_fail_again(failure, config):
        return "another attempt would fail in the same way"
    return _confirmation_reason(state, counted_failures, config) if failure.action == CONFIRM_ELSEWHERE else ""


def exhausted_budget(job: JobState, config: PolicyConfig) -> str:
    """Return which budget of a job is used up; "" if none is."""
    limits, failures = config.limits(job.id), job.counted_failures
    if len(failures) >= limits.max_attempts:
        return f"{len(failures)} of {limits.max_attempts} attempts failed"
    if limits.max_wasted_time_s is None:
        return ""
    wasted_s = sum(slot_seconds(job, execution) for execution in failures)
    if wasted_s >= limits.max_wasted_time_s:
        wasted, limit = format_duration(wasted_s), format_duration(limits.max_wasted_time_s)
        return f"failed attempts of the job wasted {wasted} (limit {limit})"
    return ""


def _would_fail_again(failure: Failure, config: PolicyConfig) -> bool:
    """Return whether a failure is permanent. On a single site, every failure that is not transient is permanent."""
    if failure.action == CONFIRM_ELSEWHERE:
        return not config.can_move
    return failure.action in (FAIL_JOB, STOP_RUN) or (
        not failure.transient and not (failure.action == RETRY and config.has_multiple_sites)
    )


def _confirmation_reason(state: RunState, counted_failures: list[Execution], config: PolicyConfig) -> str:
    """Return why a user error needs no confirmation at another site; "" if it does."""
    last = counted_failures[-1]
    assert last.failure is not None
    signature = failure_signature(last.failure)
    n_identical = sum(e.failure is not None and failure_signature(e.failure) == signature for e in counted_failures)
    outcomes = state.stats_stale_ok.user_errors.get(signature, ())
    sites = {outcome.site for outcome in outcomes if outcome.site}
    if len(sites) >= config.sites_to_confirm:
        return f"it failed in the same way at {len(sites)} sites"
    if n_identical > 1:
        return f"{n_identical} attempts failed in the same way"
    if last.agent_duration_s > _CHEAP_FAILURE_S:
        return "it ran for a long time before it failed, and another attempt would most likely fail in the same way"
    return ""


def _no_progress_failure(execution: Execution) -> Failure:
    """Return the failure of an execution that requeued itself without progress."""
    detail = f"execution {execution.number} exited without a newer checkpoint than the one before it"
    return Failure.from_kind("step_failed", "steps", detail)
