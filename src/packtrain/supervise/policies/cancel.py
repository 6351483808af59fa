"""End attempts because a user requested it, or because the supervisor was interrupted."""

from __future__ import annotations

from packtrain.state import JobState, JobStatus, RunState
from packtrain.supervise.decisions import Cancel, ChangedJobs, Decision, EndJob


def cancel_requested(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
    """Handle requests: end the live attempts first, then set the result to cancelled."""
    requested = [job for job_id in changed_jobs if (job := state.jobs[job_id]).open_requests]
    return [decision for job in requested for decision in _handle_request(job)]


def _handle_request(job: JobState) -> list[Decision]:
    requests = tuple(job.open_requests)
    reasons = (str(r["reason"]) for r in job.open_requests.values() if r.get("reason"))
    reason = next(reasons, "requested by the user")
    if job.result:  # too late: storing the same result again marks the request as handled
        result = job.result
        return [EndJob(job.id, result.status, result.reason, result.emitter, result.failure, requests)]
    if job.live_executions:
        return _cancel_live(job, reason)
    return [EndJob(job.id, JobStatus.CANCELLED, reason, requests=requests)]


def cancel_all(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
    """End all live attempts. The jobs get no result, so the run can be resumed."""
    return [decision for job in state.jobs.values() for decision in _cancel_live(job, "the supervisor was interrupted")]


def _cancel_live(job: JobState, reason: str) -> list[Decision]:
    return [
        Cancel(job.id, e.attempt_id, reason) for e in job.live_executions if not job.has_cancel_decision(e.attempt_id)
    ]
