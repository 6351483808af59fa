"""What policies return. A decision is stored before it is acted upon, and its id travels with the act."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from packtrain.engines.api import AS_PLANNED, Amendment
from packtrain.events import Failure, kinds
from packtrain.state import JobStatus, RunState


@dataclass(frozen=True)
class Submit:
    """Make another attempt. The id names the attempt for ever."""

    job: str
    id: str
    reason: str
    amendment: Amendment = AS_PLANNED
    copy_of: str = ""  # the decision whose attempt is late


@dataclass(frozen=True)
class Accept:
    """These outputs and no others, before they are put in their place: after a crash another attempt may have ended."""

    job: str
    target: str
    reason: str


@dataclass(frozen=True)
class Cancel:
    """End a living attempt."""

    job: str
    target: str  # the decision that started it
    reason: str


@dataclass(frozen=True)
class Move:
    """End a living attempt that is late: the next one goes on from its checkpoint, at another place."""

    job: str
    target: str
    reason: str
    avoid_sites: tuple[str, ...] = ()
    avoid_machines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Release:
    """Let an attempt go again that the engine keeps back."""

    job: str
    target: str
    reason: str
    hold: int  # which one


@dataclass(frozen=True)
class GiveUp:
    """End an attempt that the engine keeps back: waiting longer brings nothing. It counts as failed."""

    job: str
    target: str
    reason: str
    hold: int


@dataclass(frozen=True)
class Reopen:
    """Forget the verdict and start with a fresh budget. What was asked before is over, too."""

    job: str
    reason: str
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class End:
    """The verdict on a job."""

    job: str
    verdict: JobStatus
    reason: str
    emitter: str = ""
    failure: Failure | None = None
    requests: tuple[str, ...] = ()


Decision = Submit | Accept | Cancel | Move | Release | GiveUp | Reopen | End
Changed = Collection[str]
Policy = Callable[[RunState, Changed, float], Sequence[Decision]]


def event_of(decision: Decision) -> tuple[str, dict[str, Any]]:
    """The kind and data of the event that records it."""
    if isinstance(decision, End):
        failure = decision.failure.to_data() if decision.failure else None
        return kinds.JOB_ENDED, {
            "verdict": decision.verdict.value,
            "reason": decision.reason,
            "emitter": decision.emitter,
            "failure": failure,
            "requests": list(decision.requests),
        }
    if isinstance(decision, Submit):
        amended = decision.amendment.to_data()
        more: dict[str, Any] = {"amendment": amended} if amended else {}
        more |= {"copy_of": decision.copy_of} if decision.copy_of else {}
        return kinds.DECIDED, {"action": "submit", "id": decision.id, "reason": decision.reason, **more}
    if isinstance(decision, (Cancel, Accept)):
        action = "cancel" if isinstance(decision, Cancel) else "accept"
        return kinds.DECIDED, {"action": action, "target": decision.target, "reason": decision.reason}
    if isinstance(decision, Move):
        avoid = {"avoid_sites": list(decision.avoid_sites), "avoid_machines": list(decision.avoid_machines)}
        return kinds.DECIDED, {"action": "move", "target": decision.target, "reason": decision.reason, **avoid}
    if isinstance(decision, (Release, GiveUp)):
        action = "release" if isinstance(decision, Release) else "give_up"
        about = {"target": decision.target, "reason": decision.reason, "hold": decision.hold}
        return kinds.DECIDED, {"action": action, **about}
    return kinds.DECIDED, {"action": "reopen", "reason": decision.reason, "requests": list(decision.requests)}
