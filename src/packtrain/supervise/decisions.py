"""The decisions that policies return.

A decision is stored as an event before it is carried out, so that after a crash the next supervisor knows about it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packtrain.engines.api import NO_OVERRIDES, Overrides
from packtrain.events import Failure, kinds
from packtrain.state import JobStatus, RunState


@dataclass(frozen=True)
class _AttemptDecision:
    job: str
    attempt_id: str
    reason: str


@dataclass(frozen=True)
class Submit(_AttemptDecision):
    """Submit another attempt. Its id is unique within the run and never reused."""

    overrides: Overrides = NO_OVERRIDES
    copy_of: str = ""  # id of the straggling attempt that this one copies


@dataclass(frozen=True)
class Accept(_AttemptDecision):
    """Accept the outputs of this attempt and of no other.

    This is stored before the outputs are published, because after a crash another attempt may have succeeded, too.
    """

    emitter: str = ""  # the agent of the attempt that succeeded


@dataclass(frozen=True)
class Cancel(_AttemptDecision):
    """End a live attempt."""


@dataclass(frozen=True)
class Move(_AttemptDecision):
    """End a live attempt that is too slow. The next attempt resumes from its checkpoint somewhere else."""

    avoid_sites: tuple[str, ...] = ()
    avoid_nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Release(_AttemptDecision):
    """Release an attempt that the pool holds."""

    hold_seq: int  # identifies the hold


@dataclass(frozen=True)
class GiveUp(_AttemptDecision):
    """End an attempt that the pool holds or does not start. It counts as a failure."""

    hold_seq: int  # identifies the hold


@dataclass(frozen=True)
class Reopen:
    """Discard the result of a job and start with a new budget. Earlier requests are discarded, too."""

    job: str
    reason: str
    requests: tuple[str, ...] = ()  # the discarded requests


@dataclass(frozen=True)
class EndJob:
    """Set the result of a job."""

    job: str
    result: JobStatus
    reason: str
    emitter: str = ""  # of a succeeded job: the agent whose outputs are accepted
    failure: Failure | None = None
    requests: tuple[str, ...] = ()  # the requests that this handles
    published: Mapping[str, Any] = field(default_factory=dict)  # where an http server has the outputs


Decision = Submit | Accept | Cancel | Move | Release | GiveUp | Reopen | EndJob
ChangedJobs = Collection[str]
Policy = Callable[[RunState, ChangedJobs, float], Sequence[Decision]]


def event_from_decision(decision: Decision) -> tuple[str, dict[str, Any]]:
    """Return the kind and the data of the event that stores a decision."""
    if isinstance(decision, EndJob):
        failure = decision.failure.to_data() if decision.failure else None
        return kinds.JOB_ENDED, {
            "result": decision.result.value,
            "reason": decision.reason,
            "emitter": decision.emitter,
            "failure": failure,
            "requests": list(decision.requests),
            **({"published": dict(decision.published)} if decision.published else {}),
        }
    if isinstance(decision, Reopen):
        return kinds.DECISION_MADE, {
            "action": "reopen",
            "reason": decision.reason,
            "requests": list(decision.requests),
        }
    data: dict[str, Any] = {
        "action": _ACTIONS[type(decision)],
        "attempt": decision.attempt_id,
        "reason": decision.reason,
    }
    if isinstance(decision, Submit):
        overrides = decision.overrides.to_data()
        data |= {"overrides": overrides} if overrides else {}
        data |= {"copy_of": decision.copy_of} if decision.copy_of else {}
    elif isinstance(decision, Accept):
        data["emitter"] = decision.emitter
    elif isinstance(decision, Move):
        data |= {"avoid_sites": list(decision.avoid_sites), "avoid_nodes": list(decision.avoid_nodes)}
    elif isinstance(decision, (Release, GiveUp)):
        data["hold"] = decision.hold_seq
    return kinds.DECISION_MADE, data


_ACTIONS: dict[type, str] = {
    Submit: "submit",
    Accept: "accept",
    Cancel: "cancel",
    Move: "move",
    Release: "release",
    GiveUp: "give_up",
}
