"""How attempts and jobs of packtrain ended, in the words of histories. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packtrain.events import FAILURE_KINDS, Failure
from packtrain.report.history import Category, Outcome
from packtrain.report.readers.condor_end_status import End
from packtrain.state import Attempt, AttemptStatus, JobState, JobStatus

_OUTPUTS = ("output_missing", "output_empty", "output_wrong")
_LIMITS = ("time_limit", "wall_time")
_CATEGORIES = {
    **dict.fromkeys(_OUTPUTS, Category.OUTPUT),
    **dict.fromkeys(_LIMITS, Category.TIME_LIMIT),
    **dict.fromkeys(("evicted", "terminated", "agent_lost"), Category.EVICTION),
    **dict.fromkeys(("token_refused", "delivery_failed", "delivery_too_large"), Category.TRANSFER),
    "cancelled": Category.PERSON,
    "held": Category.POOL,
}
_BY_BLAME = {"user": Category.PROGRAM, "data": Category.TRANSFER, "site": Category.MACHINE, "pool": Category.POOL}
_BY_KIND = {
    **dict.fromkeys(_OUTPUTS, Outcome.WRONG_OUTPUT),
    **dict.fromkeys(_LIMITS, Outcome.TIME_LIMIT),
    "evicted": Outcome.EVICTED,
    "terminated": Outcome.EVICTED,
    "agent_lost": Outcome.LOST,
    "lease_expired": Outcome.LOST,
    "cancelled": Outcome.REMOVED,
    "held": Outcome.HELD,
    "policy_hold": Outcome.HELD,
}
_RUNNING = End(Outcome.RUNNING, Category.NONE)


def end_of_kind(kind: str, reason: str, otherwise: Outcome) -> End:
    """Of a kind of failure; `otherwise` where it does not say how it ended."""
    blame = FAILURE_KINDS[kind].blame if kind in FAILURE_KINDS else ""
    category = _CATEGORIES.get(kind) or _BY_BLAME.get(blame, Category.UNKNOWN)
    return End(_BY_KIND.get(kind, otherwise), category, reason)


def end_of_failure(failure: Failure | None, otherwise: Outcome) -> End:
    if failure is None:
        return End(otherwise, Category.UNKNOWN)
    return end_of_kind(failure.kind, failure.detail, otherwise)


def end_of_farewell(said: Mapping[str, Any]) -> End | None:
    """Of an agent's last word; None where the engine knows as much."""
    if said.get("outcome") == "continue":
        return End(Outcome.CONTINUES, Category.NONE, str(said.get("reason") or ""))
    failure = said.get("failure")
    return end_of_failure(Failure.from_data(failure), Outcome.FAILED) if isinstance(failure, dict) else None


def end_of_attempt(attempt: Attempt) -> End:
    if attempt.status is AttemptStatus.SUCCEEDED:
        return End(Outcome.SUCCEEDED, Category.NONE)
    if attempt.status is AttemptStatus.LEFT:
        return end_of_farewell(attempt.ended) or End(Outcome.CONTINUES, Category.NONE)
    if attempt.hold is not None:
        told = attempt.hold.event.data
        return end_of_kind(str(told.get("kind", "")), str(told.get("detail", "")), Outcome.HELD)
    if attempt.live:
        return _RUNNING
    return end_of_failure(attempt.failure, Outcome.FAILED if attempt.status is AttemptStatus.FAILED else Outcome.LOST)


def end_of_job(job: JobState) -> End:
    verdict = job.verdict
    if verdict is None:
        last = job.latest
        return end_of_attempt(last) if last is not None and job.status is JobStatus.HELD else _RUNNING
    if verdict.status is JobStatus.SUCCEEDED:
        return End(Outcome.SUCCEEDED, Category.NONE)
    if verdict.status is JobStatus.CANCELLED:
        return End(Outcome.REMOVED, Category.PERSON, verdict.reason)
    return end_of_failure(verdict.failure, Outcome.FAILED)
