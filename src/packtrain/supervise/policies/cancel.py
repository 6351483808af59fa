"""Ending attempts, because a person asked for it or the supervisor leaves."""

from __future__ import annotations

from packtrain.state import JobState, JobStatus, RunState
from packtrain.supervise.decisions import Cancel, ChangedJobs, Decision, EndJob


def cancel_requested(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
    """First the living attempts are ended; when none is left, the job is cancelled."""
    asked = [job for name in changed_jobs if (job := state.jobs[name]).open_requests]
    return [decision for job in asked for decision in _handle_request(job)]


def _handle_request(job: JobState) -> list[Decision]:
    requests = tuple(job.open_requests)
    reason = next((str(r["reason"]) for r in job.open_requests.values() if r.get("reason")), "a person asked for it")
    if job.result:  # too late: the verdict stands, the request is answered by saying it again
        known = job.result
        return [EndJob(job.id, known.status, known.reason, known.emitter, known.failure, requests)]
    if job.live_executions:
        return _cancel_live(job, reason)
    return [EndJob(job.id, JobStatus.CANCELLED, reason, requests=requests)]


def cancel_all(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
    """The supervisor leaves: no attempt stays behind. The jobs keep their chance."""
    return [decision for job in state.jobs.values() for decision in _cancel_live(job, "the supervisor was interrupted")]


def _cancel_live(job: JobState, reason: str) -> list[Decision]:
    return [
        Cancel(job.id, a.attempt_id, reason) for a in job.live_executions if not job.has_cancel_decision(a.attempt_id)
    ]
