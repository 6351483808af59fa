"""The transitions, as a literal table. What is not listed changes nothing."""

from __future__ import annotations

from enum import Enum


class ExecutionStatus(str, Enum):
    __hash__ = str.__hash__  # not Enum's, which is slow: they are looked up for every event

    SUBMITTING = "submitting"  # written down, not yet taken by the engine
    QUEUED = "queued"  # the engine has it
    RUNNING = "running"  # an agent spoke, or the engine says that it runs
    HELD = "held"  # the engine keeps it back; a decision follows
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REQUEUED = "requeued"  # went away on purpose, another attempt goes on
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

    SUBMITTED = "submitted"
    EXECUTION_STARTED = "execution started"
    AGENT_STARTED = "agent started"
    AGENT_SUCCEEDED = "agent succeeded"
    AGENT_FAILED = "agent failed"
    AGENT_REQUEUED = "agent requeued"
    EXECUTION_INTERRUPTED = "execution interrupted"
    HELD = "held"
    GONE = "gone"


A, T = ExecutionStatus, Trigger

_END_TRANSITIONS = {
    T.AGENT_SUCCEEDED: A.SUCCEEDED,
    T.AGENT_FAILED: A.FAILED,
    T.AGENT_REQUEUED: A.REQUEUED,
    T.GONE: A.LOST,
    T.EXECUTION_INTERRUPTED: A.LOST,
}

_START_TRANSITIONS = {T.EXECUTION_STARTED: A.RUNNING, T.AGENT_STARTED: A.RUNNING, T.HELD: A.HELD}

# Triggers of one attempt are applied in the order: the supervisor's, the agent's by seq, the engine's.
EXECUTION_TRANSITIONS: dict[ExecutionStatus, dict[Trigger, ExecutionStatus]] = {
    A.SUBMITTING: {T.SUBMITTED: A.QUEUED, **_START_TRANSITIONS, **_END_TRANSITIONS},
    A.QUEUED: {**_START_TRANSITIONS, **_END_TRANSITIONS},
    A.RUNNING: {T.HELD: A.HELD, **_END_TRANSITIONS},
    A.HELD: {**_END_TRANSITIONS},
    A.SUCCEEDED: {},
    A.FAILED: {},
    A.REQUEUED: {},
    A.LOST: {},
}

LIVE_STATUSES = frozenset({A.SUBMITTING, A.QUEUED, A.RUNNING, A.HELD})

# The status of a job without a verdict: the first that one of its attempts has.
JOB_STATUS_PRECEDENCE: tuple[tuple[ExecutionStatus, JobStatus], ...] = (
    (A.RUNNING, JobStatus.RUNNING),
    (A.HELD, JobStatus.HELD),
    (A.QUEUED, JobStatus.QUEUED),
    (A.SUBMITTING, JobStatus.QUEUED),
)
