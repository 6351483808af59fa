"""Making attempts: the first one, and another after a failure that may pass."""

from __future__ import annotations

from packtrain.events import Failure
from packtrain.events.failure import CONFIRM, MORE_MEMORY, RETRY
from packtrain.state import JobState, RunState
from packtrain.supervise.decisions import Changed, Decision, Policy, Submit
from packtrain.supervise.policies.config import Rules
from packtrain.supervise.policies.overrides import amendment
from packtrain.supervise.policies.site_avoidance import avoided

_FACTOR, _MOST_FAILURES = 3.0, 10


def start(rules: Rules) -> Policy:
    def policy(state: RunState, changed: Changed, now: float) -> list[Decision]:
        ready = [job for name in changed if _is_ready(job := state.jobs[name], rules, now)]
        places = avoided(state, rules, now) if ready else ((), ())
        return [
            Submit(job.id, f"{job.id}-{job.submissions + 1}", _reason(job), amendment(job, rules, places))
            for job in ready
        ]

    return policy


def _is_ready(job: JobState, rules: Rules, now: float) -> bool:
    return not job.verdict and not job.live and not job.open_requests and now >= job.changed_at + wait_of(job, rules)


def wait_of(job: JobState, rules: Rules) -> float:
    """Seconds after the last attempt's end. What the pool did needs no wait; a failing service does."""
    last = job.recent[-1] if job.recent else None
    if last is None or last.failure is None or _at_once(last.failure) or job.cancel_decided(last.decision):
        return 0.0
    failed = sum(attempt.failure is not None for attempt in job.recent)
    waits = rules.recovery.wait_s * _FACTOR ** min(failed - 1, _MOST_FAILURES)
    return float(min(rules.recovery.longest_wait_s, waits))


def _at_once(failure: Failure) -> bool:
    """Where waiting changes nothing: what the pool did, and what is done otherwise next time."""
    return (failure.blame == "pool" and failure.action != RETRY) or failure.action in (CONFIRM, MORE_MEMORY)


def _reason(job: JobState) -> str:
    last = job.recent[-1] if job.recent else None
    if last is None:
        return "not tried yet" if not job.attempts else "opened again"
    return f"attempt {last.number} ended: {last.failure.kind if last.failure else last.status.value}"
