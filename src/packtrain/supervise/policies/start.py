"""Making attempts: the first one, and another after a failure that may pass."""

from __future__ import annotations

from packtrain.state import JobState, RunState
from packtrain.supervise.decisions import Changed, Decision, Submit

_FIRST_WAIT_S, _FACTOR, _LONGEST_WAIT_S = 2.0, 3.0, 120.0


def start(state: RunState, changed: Changed, now: float) -> list[Decision]:
    ready = (job for name in changed if _is_ready(job := state.jobs[name], now))
    return [Submit(job.id, f"{job.id}-{job.submissions + 1}", _reason(job)) for job in ready]


def _is_ready(job: JobState, now: float) -> bool:
    return not job.verdict and not job.live and not job.open_requests and now >= job.changed_at + wait_of(job)


def wait_of(job: JobState) -> float:
    """Seconds after the last attempt's end. What the pool did needs no wait; a failing service does."""
    last = job.recent[-1] if job.recent else None
    if last is None or last.failure is None or last.failure.blame == "pool":
        return 0.0
    failed = sum(attempt.failure is not None for attempt in job.recent)
    return float(min(_LONGEST_WAIT_S, _FIRST_WAIT_S * _FACTOR ** min(failed - 1, 10)))


def _reason(job: JobState) -> str:
    last = job.recent[-1] if job.recent else None
    if last is None:
        return "not tried yet" if not job.attempts else "opened again"
    return f"attempt {last.number} ended: {last.failure.kind if last.failure else last.status.value}"
