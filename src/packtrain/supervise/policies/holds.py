"""Attempts that the engine keeps back: let go again where that may help, given up where it does not. Each hold has an
answer from the moment it is known, and a time at which that is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from packtrain.events import FAILURE_KINDS
from packtrain.events.failure import REDELIVER
from packtrain.state import Attempt, AttemptStatus, JobState, RunState
from packtrain.supervise.decisions import Changed, Decision, GiveUp, Policy, Release
from packtrain.supervise.policies.config import Rules

_MOST_RELEASES = 3
_FIRST_WAIT_S, _FACTOR = 10.0, 6.0
_WORN_OUT = "never_starts"  # the pool started it many times
NO_HOLD = 0  # an answer to starts that fail alike, not to a hold
_PEOPLE_S = 24 * 3600.0  # somebody held it on purpose: that is respected, but not for ever


@dataclass(frozen=True)
class Answer:
    """What will be done about a hold, when, and why."""

    release: bool
    at: float  # by the store's clock
    reason: str


def holds(rules: Rules) -> Policy:
    def policy(state: RunState, changed: Changed, now: float) -> list[Decision]:
        jobs = (state.jobs[name] for name in changed if not state.jobs[name].verdict)
        return [decision for job in jobs for decision in _of(job, rules, now)]

    return policy


def _of(job: JobState, rules: Rules, now: float) -> Iterator[Decision]:
    for attempt in job.live:
        if attempt.hold and not job.answer_to(attempt.hold):
            answer = answer_for(job, attempt, rules)
            if now >= answer.at:
                kind = Release if answer.release else GiveUp
                yield kind(job.id, attempt.decision, answer.reason, attempt.hold.seq)
        elif _is_futile(job, attempt, rules.limits(job.id).attempts):
            yield GiveUp(job.id, attempt.decision, "the pool starts it again and again, and it fails alike", NO_HOLD)


def _is_futile(job: JobState, attempt: Attempt, allowed: int) -> bool:
    """It waits for its next start, but its starts so far failed as often as attempts may."""
    waits = attempt.status is AttemptStatus.QUEUED and not job.answer(attempt.decision, NO_HOLD)
    return waits and len(job.spent) >= allowed


def answer_for(job: JobState, attempt: Attempt, rules: Rules) -> Answer:
    assert attempt.hold is not None
    hold, data = attempt.hold, attempt.hold.event.data
    action, released = data.get("action"), job.releases(attempt.decision, besides=_WORN_OUT)
    if hold.kind == _WORN_OUT and job.got_further(hold):
        return Answer(True, hold.arrived, "its training got further since it was last held")
    if action == "wait":
        return Answer(False, hold.arrived + _PEOPLE_S, "it was held for a day")
    if action != "release":
        return Answer(False, hold.arrived, str(data.get("detail", "")))
    if released and _can_switch(job, str(data.get("kind", "")), rules):
        return Answer(False, hold.arrived, "the pool's plugins failed to bring its data again; the agent fetches them")
    if released >= _MOST_RELEASES:
        return Answer(False, hold.arrived, f"it was let go {released} times and is held again")
    if len(job.spent) >= rules.limits(job.id).attempts:
        return Answer(False, hold.arrived, "its last attempt ended with it")
    wait = _FIRST_WAIT_S * _FACTOR**released
    return Answer(True, hold.arrived + wait, "what kept it back may have passed")


def _can_switch(job: JobState, kind: str, rules: Rules) -> bool:
    redeliver = kind in FAILURE_KINDS and FAILURE_KINDS[kind].action == REDELIVER
    return redeliver and rules.recovery.switch_delivery and rules.uses_plugins(job.id)
