"""What an engine reports about attempts: one small class for each thing that can happen.

`supervise.collector` turns updates into events. An update that becomes an event of its own needs a `seq`, because the
same update may be read several times, by several processes, and must be stored once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from packtrain.events import Event


@dataclass(frozen=True)
class AttemptUpdate:
    """The base of all updates: which attempt they are about."""

    attempt_id: str
    job_id: str
    _: KW_ONLY
    native_id: str = ""  # the engine's own name for the attempt, if known
    site: str = ""  # where it runs or ran, if known
    seq: int = 0  # position in the engine's log, unique within the job, the same for every reader; 0: not from a log
    occurred_at: float = 0.0  # Unix time from the engine's log; 0: now


@dataclass(frozen=True, kw_only=True)
class Queued(AttemptUpdate):
    """The attempt waits to be started."""

    reason: str | None = None  # why, for the user; "": an earlier reason no longer applies; None: nothing new


@dataclass(frozen=True, kw_only=True)
class Running(AttemptUpdate):
    """The attempt runs. It may be reported repeatedly."""


@dataclass(frozen=True, kw_only=True)
class ExecutionStarted(AttemptUpdate):
    """The pool started an execution. Needs a `seq`."""

    execution: int  # its number within the attempt, from 1
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class _ExecutionEnded(AttemptUpdate):
    execution: int = 0  # its number; 0: the attempt was not running
    failure_kind: str = ""  # from `events.failure`
    detail: str = ""  # a message for the user
    emitters: tuple[str, ...] = ()  # the agents whose events came through the engine during the execution


@dataclass(frozen=True, kw_only=True)
class ExecutionInterrupted(_ExecutionEnded):
    """The pool ended an execution and put the attempt back into the queue. Needs a `seq`."""


@dataclass(frozen=True, kw_only=True)
class Held(_ExecutionEnded):
    """The pool holds the attempt in the queue, and ended its execution if it was running. Needs a `seq`."""

    action: str  # what may help: `release` it, `wait` for a user, or `give_up` and submit another attempt
    code: int = 0  # the pool's number for the reason
    subcode: int = 0


@dataclass(frozen=True, kw_only=True)
class Released(AttemptUpdate):
    """The pool no longer holds the attempt; it is queued again. Needs a `seq`."""


@dataclass(frozen=True, kw_only=True)
class TransferChanged(AttemptUpdate):
    """The pool transfers files of the attempt. Needs a `seq`."""

    execution: int  # the one that the files are for; inputs are transferred before it starts
    direction: str  # `in` to the node, or `out` of it
    state: str  # `queued`, `started` or `finished`


@dataclass(frozen=True, kw_only=True)
class Gone(AttemptUpdate):
    """The engine no longer has the attempt. This is its last update."""

    exit_code: int | None = None  # of the agent, or minus the signal that killed it; None: unknown
    failure_kind: str = ""  # if the engine knows it; the agent's own end event takes precedence
    detail: str = ""  # a message for the user


@dataclass(frozen=True, kw_only=True)
class ProgressReported(AttemptUpdate):
    """A snapshot of the attempt's progress, which replaces the one before. It is not stored as an event."""

    progress: Mapping[str, Any]  # stage, step, metrics, …, as agents publish them


@dataclass(frozen=True, kw_only=True)
class AgentEventsReceived(AttemptUpdate):
    """Events that the agent sent through the engine, with the agent's own emitter and seq. Stored as they are."""

    events: tuple[Event, ...]
