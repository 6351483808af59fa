"""Stop a run early if its jobs keep failing in the same way, or if a budget of the run is used up.

Executions that run continue to their own end. Jobs that have not been started are not started.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from packtrain.events import Failure
from packtrain.events.failure import CONFIRM_ELSEWHERE, FAILURE_KINDS, STOP_RUN
from packtrain.formatting import format_duration
from packtrain.state import ExecutionOutcome, ExecutionStatus, JobState, JobStatus, OutcomeIndex, RunState
from packtrain.state.timing import RunningExecution
from packtrain.supervise.decisions import Cancel, ChangedJobs, Decision, EndJob, Policy
from packtrain.supervise.policies.config import PolicyConfig

# A broken image or a mistyped URL causes these site faults at every site.
_POSSIBLE_USER_ERRORS = frozenset({"container_failed", "host_unknown", "python_missing", "certificate_invalid"})


def stop_run_policy(config: PolicyConfig) -> Policy:
    """Return the policy that stops a run early."""

    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        if all(state.jobs[job_id].live_executions for job_id in changed_jobs):
            return []  # nothing failed, and no attempt is about to be submitted
        kind, reason = find_stop_reason(state, config)
        if not reason:
            return []
        unfinished = (
            job for job in state.jobs.values() if not (job.result or job.open_requests or job.winning_execution)
        )
        return [decision for job in unfinished for decision in _end_decisions(job, kind, reason)]

    return policy


def find_stop_reason(state: RunState, config: PolicyConfig) -> tuple[str, str]:
    """Return the failure kind and the reason to stop the run; two empty strings if there is none."""
    index, recovery = state.stats_stale_ok, config.recovery
    identical = _find_common_failure(state, config)
    if identical:
        location = _describe_location(identical, config)
        return "run_stopped", f"stopped after {len(identical)} identical failures {location}"
    if recovery.max_failures is not None and index.n_failures >= recovery.max_failures:
        return "budget_exceeded", f"{index.n_failures} attempts of the run failed (limit {recovery.max_failures})"
    if recovery.max_wasted_time_s is not None and index.wasted_s >= recovery.max_wasted_time_s:
        wasted, limit = format_duration(index.wasted_s), format_duration(recovery.max_wasted_time_s)
        return "budget_exceeded", f"failed attempts of the run wasted {wasted} (limit {limit})"
    return "", ""


def _find_common_failure(state: RunState, config: PolicyConfig) -> set[ExecutionOutcome]:
    """Return identical failures of enough jobs at enough sites, if no other job got past that point."""
    min_jobs = config.recovery.stop_after_identical_failures
    if not min_jobs or state.stats_stale_ok.n_successes:
        return set()
    for outcomes in (*_user_error_groups(state.stats_stale_ok), *_site_fault_groups(state)):
        jobs = {outcome.job for outcome in outcomes}
        is_confirmed = len(jobs) >= min_jobs and len(_sites_of(outcomes)) >= config.sites_to_confirm
        if is_confirmed and not _has_other_job_progressed(state.stats, jobs):
            return outcomes
    return set()


def _sites_of(outcomes: Collection[ExecutionOutcome]) -> set[str]:
    """Return the sites of outcomes. Executions that never ran have none."""
    return {outcome.site for outcome in outcomes if outcome.site}


def _user_error_groups(index: OutcomeIndex) -> Iterator[set[ExecutionOutcome]]:
    for (kind, _, _), outcomes in index.user_errors.items():
        if kind in FAILURE_KINDS and FAILURE_KINDS[kind].action in (CONFIRM_ELSEWHERE, STOP_RUN):
            yield outcomes


def _site_fault_groups(state: RunState) -> Iterator[set[ExecutionOutcome]]:
    """Yield apparent site faults of jobs that failed because of them, if no job at another site is in its steps."""
    for (kind, _, _), outcomes in state.stats_stale_ok.site_faults.items():
        if kind not in _POSSIBLE_USER_ERRORS:
            continue
        final = {outcome for outcome in outcomes if _has_failed(state.jobs[outcome.job])}
        if final and not any(running.is_in_steps for running in _running_outside(state, _sites_of(final))):
            yield final


def _running_outside(state: RunState, sites: set[str]) -> Iterator[RunningExecution]:
    return (running for running in state.stats.timing.running_jobs.values() if running and running.site not in sites)


def _has_failed(job: JobState) -> bool:
    return job.result is not None and job.result.status is JobStatus.FAILED


def _has_other_job_progressed(index: OutcomeIndex, failed_jobs: set[str]) -> bool:
    """Return whether the training of another job is further than that of any failed job."""
    furthest = max(index.furthest_steps.get(job, -1) for job in failed_jobs)
    return any(step > furthest for job, step in index.furthest_steps.items() if job not in failed_jobs)


def _describe_location(outcomes: set[ExecutionOutcome], config: PolicyConfig) -> str:
    return f"on {len(_sites_of(outcomes))} sites" if config.has_multiple_sites else "on this machine"


def _end_decisions(job: JobState, kind: str, reason: str) -> Iterator[Decision]:
    """Yield the decisions that end a job: cancel attempts that never ran, or set the result if no attempt is live."""
    ran = [
        e
        for e in job.recent_executions
        if (e.emitter or e.execution_number) and not job.has_cancel_decision(e.attempt_id)
    ]
    started_ids = {execution.attempt_id for execution in ran}  # includes attempts that the pool queued again
    for execution in job.live_executions:
        is_idle = execution.status is not ExecutionStatus.RUNNING and execution.attempt_id not in started_ids
        if is_idle and not job.has_cancel_decision(execution.attempt_id):
            yield Cancel(job.id, execution.attempt_id, reason)
    if not job.live_executions:
        # The failure of an execution that started while it was being cancelled shows nothing about the job.
        failure = next((e.failure for e in reversed(ran) if e.failure), None)
        detail = f"{reason}; this job was not {'finished' if has_ever_run(job) else 'started'}"
        yield EndJob(job.id, JobStatus.FAILED, reason, failure=failure or Failure.from_kind(kind, "startup", detail))


def has_ever_run(job: JobState) -> bool:
    """Return whether any recent execution of a job ran."""
    return any(execution.emitter or execution.execution_number for execution in job.recent_executions)
