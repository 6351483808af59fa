"""What an engine reports about attempts: one small class for each thing that can happen.

`supervise.collector` turns updates into events. An update that becomes an event of its own needs a `seq`, because the
same update may be read several times, by several processes, and must be stored once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from packtrain.events import Event


@dataclass(frozen=True)
class AttemptUpdate:
    """The base of all updates: which attempt they are about.

    Attributes:
        attempt_id: The attempt.
        job_id: Its job.
        native_id: The engine's own name for the attempt, if known.
        site: Where it runs or ran, if known.
        seq: Position in the engine's log, unique within the job and the same for every reader; 0: not from a log.
        occurred_at: Unix time from the engine's log; 0: now.
    """

    attempt_id: str
    job_id: str
    _: KW_ONLY
    native_id: str = ""
    site: str = ""
    seq: int = 0
    occurred_at: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Queued(AttemptUpdate):
    """The attempt waits to be started.

    Attributes:
        reason: A message for the user: why it waits. "" if an earlier reason no longer applies; None: nothing new.
    """

    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Running(AttemptUpdate):
    """The attempt runs. It may be reported repeatedly."""


@dataclass(frozen=True, kw_only=True)
class ExecutionStarted(AttemptUpdate):
    """The pool started an execution. Needs a `seq`.

    Attributes:
        execution: Number of the execution within the attempt, from 1.
        host: The node.
    """

    execution: int
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class ExecutionInterrupted(AttemptUpdate):
    """The pool ended an execution and put the attempt back into the queue. Needs a `seq`.

    Attributes:
        execution: Number of the execution; 0 if it was interrupted before it started.
        failure_kind: The kind of failure, from `events.failure`.
        detail: A message for the user.
        emitters: The agents whose events came through the engine during the execution.
    """

    execution: int = 0
    failure_kind: str = ""
    detail: str = ""
    emitters: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TransferChanged(AttemptUpdate):
    """The pool transfers files of the attempt. Needs a `seq`.

    Attributes:
        execution: Number of the execution that the files are for; inputs are transferred before it starts.
        direction: `in` to the node, or `out` of it.
        state: `queued`, `started` or `finished`.
    """

    execution: int
    direction: str
    state: str


@dataclass(frozen=True, kw_only=True)
class Held(AttemptUpdate):
    """The pool holds the attempt in the queue. Needs a `seq`.

    Attributes:
        action: What may help: `release` it, `wait` for a user, or `give_up` and submit another attempt.
        execution: Number of the execution that the hold ended; 0 if the attempt was queued.
        code: The pool's number for the reason.
        subcode: The pool's number for the reason in detail.
        failure_kind: The kind of failure, from `events.failure`.
        detail: A message for the user.
        emitters: The agents whose events came through the engine during the execution.
    """

    action: str
    execution: int = 0
    code: int = 0
    subcode: int = 0
    failure_kind: str = ""
    detail: str = ""
    emitters: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Released(AttemptUpdate):
    """The pool no longer holds the attempt; it is queued again. Needs a `seq`."""


@dataclass(frozen=True, kw_only=True)
class Gone(AttemptUpdate):
    """The engine no longer has the attempt. This is its last update.

    Attributes:
        exit_code: The exit code of the agent, or minus the signal that killed it; None if unknown.
        failure_kind: The kind of failure, if the engine knows it; the agent's own end event takes precedence.
        detail: A message for the user.
    """

    exit_code: int | None = None
    failure_kind: str = ""
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class ProgressReported(AttemptUpdate):
    """A snapshot of the attempt's progress, which replaces the one before. It is not stored as an event.

    Attributes:
        progress: Stage, step, metrics, …, as agents publish them.
    """

    progress: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AgentEventsReceived(AttemptUpdate):
    """Events that the agent sent through the engine. They are stored as they are.

    Attributes:
        events: The events, which have the agent's own emitter and seq.
    """

    events: tuple[Event, ...]
