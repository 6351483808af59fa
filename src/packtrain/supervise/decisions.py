"""What policies return. A decision is stored before it is acted upon, and its id travels with the act."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from packtrain.engines.api import NO_OVERRIDES, Overrides
from packtrain.events import Failure, kinds
from packtrain.state import JobStatus, RunState


@dataclass(frozen=True)
class Submit:
    """Make another attempt. The id names the attempt for ever."""

    job: str
    attempt_id: str
    reason: str
    overrides: Overrides = NO_OVERRIDES
    copy_of: str = ""  # the decision whose attempt is late


@dataclass(frozen=True)
class Accept:
    """These outputs and no others, before they are put in their place: after a crash another attempt may have ended."""

    job: str
    attempt_id: str
    reason: str


@dataclass(frozen=True)
class Cancel:
    """End a living attempt."""

    job: str
    attempt_id: str  # the decision that started it
    reason: str


@dataclass(frozen=True)
class Move:
    """End a living attempt that is late: the next one goes on from its checkpoint, at another place."""

    job: str
    attempt_id: str
    reason: str
    avoid_sites: tuple[str, ...] = ()
    avoid_nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Release:
    """Let an attempt go again that the engine keeps back."""

    job: str
    attempt_id: str
    reason: str
    hold_seq: int  # which one


@dataclass(frozen=True)
class GiveUp:
    """End an attempt that the engine keeps back: waiting longer brings nothing. It counts as failed."""

    job: str
    attempt_id: str
    reason: str
    hold_seq: int


@dataclass(frozen=True)
class Reopen:
    """Forget the verdict and start with a fresh budget. What was asked before is over, too."""

    job: str
    reason: str
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class EndJob:
    """The verdict on a job."""

    job: str
    result: JobStatus
    reason: str
    emitter: str = ""
    failure: Failure | None = None
    requests: tuple[str, ...] = ()


Decision = Submit | Accept | Cancel | Move | Release | GiveUp | Reopen | EndJob
ChangedJobs = Collection[str]
Policy = Callable[[RunState, ChangedJobs, float], Sequence[Decision]]


def event_from_decision(decision: Decision) -> tuple[str, dict[str, Any]]:
    """The kind and data of the event that records it."""
    if isinstance(decision, EndJob):
        failure = decision.failure.to_data() if decision.failure else None
        return kinds.JOB_ENDED, {
            "result": decision.result.value,
            "reason": decision.reason,
            "emitter": decision.emitter,
            "failure": failure,
            "requests": list(decision.requests),
        }
    if isinstance(decision, Submit):
        amended = decision.overrides.to_data()
        more: dict[str, Any] = {"overrides": amended} if amended else {}
        more |= {"copy_of": decision.copy_of} if decision.copy_of else {}
        return kinds.DECISION_MADE, {
            "action": "submit",
            "attempt": decision.attempt_id,
            "reason": decision.reason,
            **more,
        }
    if isinstance(decision, (Cancel, Accept)):
        action = "cancel" if isinstance(decision, Cancel) else "accept"
        return kinds.DECISION_MADE, {"action": action, "attempt": decision.attempt_id, "reason": decision.reason}
    if isinstance(decision, Move):
        avoid = {"avoid_sites": list(decision.avoid_sites), "avoid_nodes": list(decision.avoid_nodes)}
        return kinds.DECISION_MADE, {
            "action": "move",
            "attempt": decision.attempt_id,
            "reason": decision.reason,
            **avoid,
        }
    if isinstance(decision, (Release, GiveUp)):
        action = "release" if isinstance(decision, Release) else "give_up"
        about = {"attempt": decision.attempt_id, "reason": decision.reason, "hold": decision.hold_seq}
        return kinds.DECISION_MADE, {"action": action, **about}
    return kinds.DECISION_MADE, {"action": "reopen", "reason": decision.reason, "requests": list(decision.requests)}
