"""The statuses of executions and jobs, and the table of transitions between them.

Theory of operation
===================

A *job* is one point of the user's matrix. It succeeds if one of its attempts succeeds.

An *attempt* is what packtrain submits for a job. The supervisor first stores the decision to submit it, then calls the
engine, then stores the engine's confirmation. An attempt whose confirmation is missing was decided by a supervisor that
died; the next supervisor asks the engine whether it has the attempt before it submits it again.

An *execution* is one start of an attempt. The local engine starts an attempt once. HTCondor and Slurm may start it
again, for example after an eviction. An attempt that has not been started is shown as one execution without a start.

An *agent* is the process that runs during an execution. It reports how far it is and how it ended. An agent that exits
with 85 asks the pool to start it again in the same sandbox, so one start may have several agents. Each agent of a start
is shown as an execution of its own.

Three sources report about the same execution, and any of them may be late or silent:

* the supervisor: the attempt was submitted;
* the agent: it started, and it ended with an outcome;
* the engine: the pool started or interrupted an execution, holds the attempt, or no longer has it.

Clocks of different machines are never compared, so events are not sorted by time. Instead the triggers of an execution
are applied in a fixed order: the supervisor's, then the start that the engine reported, then the agent's in the order
of their sequence numbers, then the end that the engine reported. Because of this order the agent's own report of its
end wins over the engine's, and an execution becomes LOST only if its agent did not report an end. One exception: a
success does not count if the pool interrupted the execution before it had transferred the outputs.

No transition leads back. An attempt that the pool queues again does not return to QUEUED: its execution has ended, and
another execution begins. SUCCEEDED, FAILED, REQUEUED and LOST are final.

The status of a job follows from its executions until a supervisor stores its result.
"""

from __future__ import annotations

from enum import Enum


class ExecutionStatus(str, Enum):
    """The status of one execution."""

    SUBMITTING = "submitting"  # decided, not yet confirmed by the engine
    QUEUED = "queued"  # the engine has the attempt
    RUNNING = "running"  # an agent reported, or the engine reported a start
    HELD = "held"  # the pool holds the attempt until packtrain releases it or gives it up
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REQUEUED = "requeued"  # the agent saved a checkpoint and exited; another execution resumes
    LOST = "lost"  # the execution has ended, and its agent did not report why


class JobStatus(str, Enum):
    """The status of one job."""

    WAITING = "waiting"  # no execution is live, and the job has no result
    QUEUED = "queued"
    HELD = "held"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Trigger(str, Enum):
    """The events that change the status of an execution."""

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

# A trigger that a row does not list does not change the status.
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
FINAL_STATUSES = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)

# A job without a result has the status of the first row that one of its executions matches.
JOB_STATUS_PRECEDENCE: tuple[tuple[ExecutionStatus, JobStatus], ...] = (
    (A.RUNNING, JobStatus.RUNNING),
    (A.HELD, JobStatus.HELD),
    (A.QUEUED, JobStatus.QUEUED),
    (A.SUBMITTING, JobStatus.QUEUED),
    (A.SUCCEEDED, JobStatus.RUNNING),  # its outputs are being published
)
