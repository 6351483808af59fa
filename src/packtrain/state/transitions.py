"""The transitions, as a literal table. What is not listed changes nothing."""

from __future__ import annotations

from enum import Enum


class AttemptStatus(str, Enum):
    __hash__ = str.__hash__  # not Enum's, which is slow: they are looked up for every event

    DECIDED = "decided"  # written down, not yet taken by the engine
    QUEUED = "queued"  # the engine has it
    RUNNING = "running"  # an agent spoke, or the engine says that it runs
    HELD = "held"  # the engine keeps it back; a decision follows
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LEFT = "left"  # went away on purpose, another attempt goes on
    LOST = "lost"  # the engine no longer has it, and its agent did not say why


class JobStatus(str, Enum):
    __hash__ = str.__hash__

    WAITING = "waiting"  # no attempt is alive, no verdict is given
    QUEUED = "queued"
    HELD = "held"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Trigger(str, Enum):
    __hash__ = str.__hash__

    CONFIRMED = "confirmed"
    PLACED = "placed"
    STARTED = "started"
    SUCCEEDED = "ended: succeeded"
    FAILED = "ended: failed"
    LEFT = "ended: continue"
    STOPPED = "stopped"
    HELD = "held"
    GONE = "gone"


A, T = AttemptStatus, Trigger

_ENDINGS = {T.SUCCEEDED: A.SUCCEEDED, T.FAILED: A.FAILED, T.LEFT: A.LEFT, T.GONE: A.LOST, T.STOPPED: A.LOST}

_BEGINNINGS = {T.PLACED: A.RUNNING, T.STARTED: A.RUNNING, T.HELD: A.HELD}

# Triggers of one attempt are applied in the order: the supervisor's, the agent's by seq, the engine's.
ATTEMPT_TRANSITIONS: dict[AttemptStatus, dict[Trigger, AttemptStatus]] = {
    A.DECIDED: {T.CONFIRMED: A.QUEUED, **_BEGINNINGS, **_ENDINGS},
    A.QUEUED: {**_BEGINNINGS, **_ENDINGS},
    A.RUNNING: {T.HELD: A.HELD, **_ENDINGS},
    A.HELD: {**_ENDINGS},
    A.SUCCEEDED: {},
    A.FAILED: {},
    A.LEFT: {},
    A.LOST: {},
}

LIVE = frozenset({A.DECIDED, A.QUEUED, A.RUNNING, A.HELD})

# The status of a job without a verdict: the first that one of its attempts has.
JOB_STATUS: tuple[tuple[AttemptStatus, JobStatus], ...] = (
    (A.RUNNING, JobStatus.RUNNING),
    (A.HELD, JobStatus.HELD),
    (A.QUEUED, JobStatus.QUEUED),
    (A.DECIDED, JobStatus.QUEUED),
)
