"""Classifies how executions and jobs of a packtrain run ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from packtrain.condor.hold_codes import HOLD_CODES
from packtrain.events import FAILURE_KINDS, Event, Failure, kinds
from packtrain.report.history import FailureCategory, Outcome
from packtrain.state import Execution, ExecutionStatus, JobState, JobStatus
from packtrain.state.slot_time import SlotSession


class EndStatus(NamedTuple):
    """The outcome of an execution or job, its failure category and a message."""

    outcome: Outcome
    category: FailureCategory
    reason: str = ""


_OUTPUT_KINDS = ("output_missing", "output_empty", "output_invalid")
_TIME_LIMIT_KINDS = ("pool_time_limit", "wall_time")
_CATEGORY_BY_KIND = {
    **dict.fromkeys(_OUTPUT_KINDS, FailureCategory.WRONG_OUTPUT),
    **dict.fromkeys(_TIME_LIMIT_KINDS, FailureCategory.TIME_LIMIT),
    **dict.fromkeys(("evicted", "terminated", "agent_lost"), FailureCategory.EVICTION),
    **dict.fromkeys(("access_denied", "transfer_failed", "transfer_too_large"), FailureCategory.TRANSFER),
    "cancelled": FailureCategory.USER,
    "held": FailureCategory.POOL,
    "out_of_memory": FailureCategory.PROGRAM,  # it used more than it requested
}
_CATEGORY_BY_BLAME = {
    "user": FailureCategory.PROGRAM,
    "data": FailureCategory.TRANSFER,
    "site": FailureCategory.NODE,
    "pool": FailureCategory.POOL,
}
_OUTCOME_BY_KIND = {
    **dict.fromkeys(_OUTPUT_KINDS, Outcome.WRONG_OUTPUT),
    **dict.fromkeys(_TIME_LIMIT_KINDS, Outcome.TIME_LIMIT),
    "evicted": Outcome.EVICTED,
    "terminated": Outcome.EVICTED,
    "agent_lost": Outcome.LOST,
    "lease_expired": Outcome.LOST,
    "cancelled": Outcome.REMOVED,
    "held": Outcome.HELD,
    "policy_hold": Outcome.HELD,
}
RUNNING = EndStatus(Outcome.RUNNING, FailureCategory.NONE)
UNLOGGED_END = EndStatus(Outcome.LOST, FailureCategory.UNKNOWN, "the log does not record how it ended")


def category_of(kind: str) -> FailureCategory:
    """Return the category of a failure kind."""
    blame = FAILURE_KINDS[kind].blame if kind in FAILURE_KINDS else ""
    return _CATEGORY_BY_KIND.get(kind) or _CATEGORY_BY_BLAME.get(blame, FailureCategory.UNKNOWN)


def classify_failure_kind(kind: str, reason: str, default: Outcome) -> EndStatus:
    """Classify a failure kind. `default` is the outcome of kinds that do not determine one."""
    return EndStatus(_OUTCOME_BY_KIND.get(kind, default), category_of(kind), reason)


def classify_failure(failure: Failure | None, default: Outcome) -> EndStatus:
    """Classify a failure; None is a failure of unknown category."""
    if failure is None:
        return EndStatus(default, FailureCategory.UNKNOWN)
    return classify_failure_kind(failure.kind, failure.detail, default)


def classify_agent_exit(exit_data: Mapping[str, Any]) -> EndStatus | None:
    """Classify the data of an agent.ended event; None if the engine's own record is as good."""
    if exit_data.get("outcome") == "requeued":
        return EndStatus(Outcome.CHECKPOINTED, FailureCategory.NONE, str(exit_data.get("reason") or ""))
    failure = exit_data.get("failure")
    return classify_failure(Failure.from_data(failure), Outcome.FAILED) if isinstance(failure, dict) else None


def classify_execution(execution: Execution) -> EndStatus:
    if execution.status is ExecutionStatus.SUCCEEDED:
        return EndStatus(Outcome.SUCCEEDED, FailureCategory.NONE)
    if execution.status is ExecutionStatus.REQUEUED:
        return classify_agent_exit(execution.agent_result) or EndStatus(Outcome.CHECKPOINTED, FailureCategory.NONE)
    if execution.hold is not None:
        return _classify_pool_event(execution.hold.event)
    if execution.is_live:
        return RUNNING
    return classify_failure(
        execution.failure, Outcome.FAILED if execution.status is ExecutionStatus.FAILED else Outcome.LOST
    )


def classify_session(session: SlotSession) -> EndStatus:
    """Classify a session by the engine's event that ended it. What an agent reports is more accurate."""
    event: Event | None = session.end_cause
    if event is None:
        return UNLOGGED_END
    if event.kind == kinds.ATTEMPT_GONE:
        return EndStatus(Outcome.LOST, FailureCategory.UNKNOWN)
    return _classify_pool_event(event)


def _classify_pool_event(event: Event) -> EndStatus:
    """Classify the end of an execution by the engine's event: interrupted or held."""
    default = Outcome.HELD if event.kind == kinds.ATTEMPT_HELD else Outcome.EVICTED
    kind = str(event.data.get("kind", ""))
    status = classify_failure_kind(kind, str(event.data.get("detail", "")), default)
    hold = HOLD_CODES.get(event.data.get("code", 0))
    has_own_category = hold is not None and hold.failure_kind == kind and hold.category
    return status._replace(category=FailureCategory(hold.category)) if hold and has_own_category else status


def classify_job(job: JobState) -> EndStatus:
    result = job.result
    if result is None:
        last = job.latest_execution
        return classify_execution(last) if last is not None and job.status is JobStatus.HELD else RUNNING
    if result.status is JobStatus.SUCCEEDED:
        return EndStatus(Outcome.SUCCEEDED, FailureCategory.NONE)
    if result.status is JobStatus.CANCELLED:
        return EndStatus(Outcome.REMOVED, FailureCategory.USER, result.reason)
    return classify_failure(result.failure, Outcome.FAILED)
