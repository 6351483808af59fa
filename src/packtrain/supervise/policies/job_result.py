"""The verdict on a job: succeeded, or failed for good."""

from __future__ import annotations

from packtrain.events import Failure
from packtrain.events.failure import CONFIRM_ELSEWHERE, FAIL_JOB, RETRY, STOP_RUN
from packtrain.state import Execution, JobState, JobStatus, RunState
from packtrain.state.outcomes import failure_signature
from packtrain.state.timing import slot_seconds
from packtrain.supervise.decisions import ChangedJobs, Decision, EndJob, Policy
from packtrain.supervise.policies.config import PolicyConfig

_CHEAP_FAILURE_S = 1800.0  # a mistake that showed sooner is worth another look elsewhere


def job_result_policy(config: PolicyConfig) -> Policy:
    """An attempt that left in time and got further costs nothing of the budget."""

    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        undecided = (job for name in changed_jobs if not (job := state.jobs[name]).result)
        return [decision for job in undecided if (decision := _decide_result(state, job, config))]

    return policy


def _decide_result(state: RunState, job: JobState, config: PolicyConfig) -> EndJob | None:
    winner = job.winning_execution
    if winner:
        return EndJob(job.id, JobStatus.SUCCEEDED, f"attempt {winner.number} passed its checks", winner.emitter)
    spent, tried = (
        list(job.counted_failures),
        [a for a in job.recent_executions if not job.has_cancel_decision(a.attempt_id)],
    )
    if job.live_executions or not spent:
        return None
    # A pool may have spent all by itself while nobody looked, before one that was free.
    mistake = _permanent_reason(state, job, spent, config) if spent[-1] is tried[-1] else ""
    reason = mistake or exhausted_budget(job, config)
    failure = spent[-1].failure or _no_progress_failure(spent[-1])
    return EndJob(job.id, JobStatus.FAILED, reason, failure=failure) if reason else None


def _permanent_reason(state: RunState, job: JobState, counted_failures: list[Execution], config: PolicyConfig) -> str:
    """Why no other attempt can help; "": one may."""
    last = counted_failures[-1].failure
    if last is not None and _would_fail_again(last, config):
        return "another attempt would end alike"
    return (
        _confirmation_reason(state, job, counted_failures, config)
        if last is not None and last.action == CONFIRM_ELSEWHERE
        else ""
    )


def exhausted_budget(job: JobState, config: PolicyConfig) -> str:
    """Which of its budgets; "": none."""
    limits, spent = config.limits(job.id), job.counted_failures
    if len(spent) >= limits.max_attempts:
        return f"{len(spent)} of {limits.max_attempts} attempts were used up"
    wasted = sum(slot_seconds(job, attempt) for attempt in spent) if limits.max_wasted_time_s is not None else 0.0
    if limits.max_wasted_time_s is not None and wasted >= limits.max_wasted_time_s:
        return f"its failed attempts took {wasted / 3600:.1f} h of the {limits.max_wasted_time_s / 3600:.1f} h that they may"
    return ""


def _would_fail_again(failure: Failure, config: PolicyConfig) -> bool:
    """Where there is but one place, what is not transient is so in the next attempt, too."""
    if failure.action == CONFIRM_ELSEWHERE:
        return not config.can_move
    return failure.action in (FAIL_JOB, STOP_RUN) or (
        not failure.transient and not (failure.action == RETRY and config.many_sites)
    )


def _confirmation_reason(
    state: RunState, job: JobState, counted_failures: list[Execution], config: PolicyConfig
) -> str:
    """Why no other site need be asked whether it is a mistake of the user's."""
    last = counted_failures[-1]
    assert last.failure is not None
    like = failure_signature(last.failure)
    own = [attempt for attempt in counted_failures if attempt.failure and failure_signature(attempt.failure) == like]
    sites = {finding.site for finding in state.stats_stale_ok.user_errors.get(like, ()) if finding.site}
    if len(sites) >= config.sites_to_confirm:
        return f"it failed alike at {len(sites)} sites"
    if len(own) > 1:
        return f"{len(own)} attempts failed alike"
    return (
        "it ran for long before it failed, and another attempt would most likely end alike"
        if _is_expensive(last)
        else ""
    )


def _is_expensive(execution: Execution) -> bool:
    return execution.agent_duration_s > _CHEAP_FAILURE_S


def _no_progress_failure(execution: Execution) -> Failure:
    """Of an attempt that left in time, but for nothing."""
    detail = f"attempt {execution.number} left without a checkpoint that is further than the one before it"
    return Failure.from_kind("step_failed", "steps", detail)
