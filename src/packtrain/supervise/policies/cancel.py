"""Ending attempts, because a person asked for it or the supervisor leaves."""

from __future__ import annotations

from packtrain.state import JobState, JobStatus, RunState
from packtrain.supervise.decisions import Cancel, Changed, Decision, End


def cancel_requested(state: RunState, changed: Changed, now: float) -> list[Decision]:
    """First the living attempts are ended; when none is left, the job is cancelled."""
    asked = [job for name in changed if (job := state.jobs[name]).open_requests]
    return [decision for job in asked for decision in _answer(job)]


def _answer(job: JobState) -> list[Decision]:
    requests = tuple(job.open_requests)
    reason = next((str(r["reason"]) for r in job.open_requests.values() if r.get("reason")), "a person asked for it")
    if job.verdict:  # too late: the verdict stands, the request is answered by saying it again
        known = job.verdict
        return [End(job.id, known.status, known.reason, known.emitter, known.failure, requests)]
    if job.live:
        return _cancels(job, reason)
    return [End(job.id, JobStatus.CANCELLED, reason, requests=requests)]


def cancel_everything(state: RunState, changed: Changed, now: float) -> list[Decision]:
    """The supervisor leaves: no attempt stays behind. The jobs keep their chance."""
    return [decision for job in state.jobs.values() for decision in _cancels(job, "the supervisor was interrupted")]


def _cancels(job: JobState, reason: str) -> list[Decision]:
    return [Cancel(job.id, a.decision, reason) for a in job.live if not job.cancel_decided(a.decision)]
