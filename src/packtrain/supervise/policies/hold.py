"""Attempts that the engine keeps back: let go again where that may help, given up where it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packtrain.state import Attempt, AttemptStatus, JobState, RunState
from packtrain.supervise.decisions import Changed, Decision, GiveUp, Policy, Release

_MOST_RELEASES = 3
_FIRST_WAIT_S, _FACTOR = 10.0, 6.0
_NO_HOLD = 0
_PEOPLE_S = 24 * 3600.0  # somebody held it on purpose: that is respected, but not for ever


def holds(budget: Mapping[str, int]) -> Policy:
    """`budget`: how many attempts may fail, by job."""

    def policy(state: RunState, changed: Changed, now: float) -> list[Decision]:
        jobs = (state.jobs[name] for name in changed if not state.jobs[name].verdict)
        return [decision for job in jobs for decision in _of(job, budget.get(job.id, 1), now)]

    return policy


def _of(job: JobState, allowed: int, now: float) -> Iterator[Decision]:
    for attempt in job.live:
        if attempt.hold and not job.answer_to(attempt.hold):
            decision = _answer(job, attempt, now)
            if decision:
                yield decision
        elif _is_futile(job, attempt, allowed):
            yield GiveUp(job.id, attempt.decision, "the pool starts it again and again, and it fails alike", _NO_HOLD)


def _is_futile(job: JobState, attempt: Attempt, allowed: int) -> bool:
    """It waits for its next start, but its starts so far failed as often as attempts may."""
    waits = attempt.status is AttemptStatus.QUEUED and not job.has_answer(attempt.decision, _NO_HOLD)
    return waits and sum(one.decision == attempt.decision for one in job.spent) >= allowed


def _answer(job: JobState, attempt: Attempt, now: float) -> Decision | None:
    assert attempt.hold is not None
    hold, data = attempt.hold, attempt.hold.event.data
    action, released = data.get("action"), job.releases(attempt.decision)
    if action == "wait":
        waited = now >= hold.arrived + _PEOPLE_S
        return GiveUp(job.id, attempt.decision, "it was held for a day", hold.seq) if waited else None
    if action != "release":
        return GiveUp(job.id, attempt.decision, str(data.get("detail", "")), hold.seq)
    if released >= _MOST_RELEASES:
        return GiveUp(job.id, attempt.decision, f"it was let go {released} times and is held again", hold.seq)
    if now < hold.arrived + _FIRST_WAIT_S * _FACTOR**released:
        return None
    return Release(job.id, attempt.decision, "what kept it back may have passed", hold.seq)
