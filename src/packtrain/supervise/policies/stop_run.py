"""Ending a whole run early: the same mistake again and again, or a budget that is used up. What runs goes on to its own
end; what has not been started is not."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from packtrain.events import Failure
from packtrain.events.failure import CONFIRM_ELSEWHERE, FAILURE_KINDS, STOP_RUN
from packtrain.state import ExecutionOutcome, ExecutionStatus, JobState, JobStatus, OutcomeIndex, RunState
from packtrain.state.timing import RunningExecution
from packtrain.supervise.decisions import Cancel, ChangedJobs, Decision, EndJob, Policy
from packtrain.supervise.policies.config import PolicyConfig

# What a broken image or a mistyped address causes at every site.
_POSSIBLE_USER_ERRORS = frozenset({"container_failed", "host_unknown", "python_missing", "certificate_invalid"})


def stop_run_policy(config: PolicyConfig) -> Policy:
    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        if all(
            state.jobs[name].live_executions for name in changed_jobs
        ):  # nothing failed, and nothing is about to be started
            return []
        kind, reason = find_stop_reason(state, config)
        if not reason:
            return []
        left = (job for job in state.jobs.values() if not job.result and not job.open_requests)
        return [decision for job in left for decision in _end_decisions(job, kind, reason)]

    return policy


def find_stop_reason(state: RunState, config: PolicyConfig) -> tuple[str, str]:
    """The kind of failure and the reason, or nothing."""
    record, recovery = state.stats_stale_ok, config.recovery
    alike = _find_common_failure(state, config)
    if alike:
        return "run_stopped", f"stopped after {len(alike)} identical failures {_describe_location(alike, config)}"
    if recovery.max_failures is not None and record.n_failures >= recovery.max_failures:
        return "budget_exceeded", f"{record.n_failures} of the {recovery.max_failures} failures that the run may have"
    if recovery.max_wasted_time_s is not None and record.wasted_s >= recovery.max_wasted_time_s:
        spent, allowed = record.wasted_s / 3600, recovery.max_wasted_time_s / 3600
        return "budget_exceeded", f"failed attempts took {spent:.1f} h of the {allowed:.1f} h that they may in this run"
    return "", ""


def _find_common_failure(state: RunState, config: PolicyConfig) -> set[ExecutionOutcome]:
    """Failures that are alike, of enough jobs at enough sites, where no job got past that point."""
    enough = config.recovery.stop_after_identical_failures
    if not enough or state.stats_stale_ok.n_successes:
        return set()
    for found in (*_user_error_groups(state.stats_stale_ok), *_site_fault_groups(state)):
        jobs, sites = {one.job for one in found}, _sites_of(found)
        if (
            len(jobs) >= enough
            and len(sites) >= config.sites_to_confirm
            and not _has_other_job_progressed(state.stats, jobs)
        ):
            return found
    return set()


def _sites_of(outcomes: Collection[ExecutionOutcome]) -> set[str]:
    """Without those that never ran anywhere."""
    return {one.site for one in outcomes if one.site}


def _user_error_groups(index: OutcomeIndex) -> Iterator[set[ExecutionOutcome]]:
    for (kind, _, _), found in index.user_errors.items():
        if kind in FAILURE_KINDS and FAILURE_KINDS[kind].action in (CONFIRM_ELSEWHERE, STOP_RUN):
            yield found


def _site_fault_groups(state: RunState) -> Iterator[set[ExecutionOutcome]]:
    """What looked like a fault of places, of jobs that used up their attempts so, while no other got to its steps."""
    for (kind, _, _), found in state.stats_stale_ok.site_faults.items():
        lost = {one for one in found if _has_failed(state.jobs[one.job])} if kind in _POSSIBLE_USER_ERRORS else set()
        if lost and not any(under.is_in_steps for under in _running_outside(state, _sites_of(lost))):
            yield lost


def _running_outside(state: RunState, sites: set[str]) -> Iterator[RunningExecution]:
    return (under for under in state.stats.timing.running_jobs.values() if under and under.site not in sites)


def _has_failed(job: JobState) -> bool:
    return job.result is not None and job.result.status is JobStatus.FAILED


def _has_other_job_progressed(index: OutcomeIndex, failed_jobs: set[str]) -> bool:
    """Whether the training of another job is further than that of any that failed so."""
    furthest = max(index.furthest_steps.get(job, -1) for job in failed_jobs)
    return any(step > furthest for job, step in index.furthest_steps.items() if job not in failed_jobs)


def _describe_location(outcomes: set[ExecutionOutcome], config: PolicyConfig) -> str:
    return f"on {len(_sites_of(outcomes))} sites" if config.many_sites else "on this machine"


def _end_decisions(job: JobState, kind: str, reason: str) -> Iterator[Decision]:
    """An attempt that starts just when it is cancelled was not given its chance: it tells nothing of the job."""
    own = [
        a
        for a in job.recent_executions
        if (a.emitter or a.execution_number) and not job.has_cancel_decision(a.attempt_id)
    ]
    ran = {attempt.attempt_id for attempt in own}  # what the pool itself starts again goes on, too
    for attempt in job.live_executions:
        idle = attempt.status is not ExecutionStatus.RUNNING and attempt.attempt_id not in ran
        if idle and not job.has_cancel_decision(attempt.attempt_id):
            yield Cancel(job.id, attempt.attempt_id, reason)
    if not job.live_executions:
        last = next((a.failure for a in reversed(own) if a.failure), None)
        detail = f"{reason}; this job was not {'started' if not has_ever_run(job) else 'brought to its end'}"
        yield EndJob(job.id, JobStatus.FAILED, reason, failure=last or Failure.from_kind(kind, "startup", detail))


def has_ever_run(job: JobState) -> bool:
    """Whether an attempt of it ever ran."""
    return any(attempt.emitter or attempt.execution_number for attempt in job.recent_executions)
