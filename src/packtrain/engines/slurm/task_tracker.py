"""Folds the status log to updates of attempts. Pure: it reads no files and calls no commands."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from packtrain.engines.slurm.status_log import LOST, REJECTED, StatusRecord
from packtrain.engines.slurm.submissions import ArraySubmission, Task
from packtrain.engines.updates import (
    AttemptUpdate,
    ExecutionInterrupted,
    ExecutionStarted,
    Gone,
    Held,
    Queued,
    Released,
)
from packtrain.slurm.job_states import JobPhase, reason_meaning, state_meaning
from packtrain.slurm.squeue import TaskStatus

_UPDATES_PER_RECORD = 8  # positions in the log are this far apart as sequence numbers
_LOST_DETAIL = "Slurm lost the job, and its agent did not report its end"


@dataclass
class TrackedTask:
    """What is known about one attempt."""

    task: Task
    submission: str
    index: int
    status: TaskStatus | None = None  # the newest one
    started_execution: int = 0  # number of the execution that runs; 0 if none
    is_held: bool = False
    wait_reason: str | None = None  # the last one reported
    is_cancelled: bool = False
    gone: Gone | None = None
    updates: list[AttemptUpdate] = field(default_factory=list)  # everything that happened to it

    @property
    def is_running(self) -> bool:
        return self.started_execution > 0 and self.gone is None


class TaskTracker:
    """All tasks of a run."""

    def __init__(self) -> None:
        self.by_attempt_id: dict[str, TrackedTask] = {}
        self._by_key: dict[tuple[str, int], TrackedTask] = {}

    def add_submission(self, submission: ArraySubmission) -> None:
        """Track the attempts of a submission."""
        for index, task in enumerate(submission.tasks):
            tracked = TrackedTask(task, submission.name, index)
            self._by_key[submission.name, index] = tracked
            self.by_attempt_id[task.attempt_id] = tracked

    def remove_submission(self, submission: ArraySubmission) -> None:
        """Forget a submission that Slurm refused."""
        for index, task in enumerate(submission.tasks):
            del self._by_key[submission.name, index], self.by_attempt_id[task.attempt_id]

    def unfinished_names(self) -> list[str]:
        """Return the names of the submissions that have unfinished tasks."""
        return sorted({tracked.submission for tracked in self.by_attempt_id.values() if tracked.gone is None})

    def unfinished(self) -> list[TrackedTask]:
        """Return the tasks that have not ended."""
        return [tracked for tracked in self.by_attempt_id.values() if tracked.gone is None]

    def find(self, name: str, index: int) -> TrackedTask | None:
        """Return the task of a submission, or None if it is unknown."""
        return self._by_key.get((name, index))

    def apply(self, record: StatusRecord) -> list[AttemptUpdate]:
        """Apply a record of the status log and return the updates that follow from it."""
        tracked = self.find(record.name, record.index)
        if tracked is None or tracked.gone is not None:
            return []
        if record.status is None:
            tracked.is_cancelled = True
            return []
        updates = list(_updates_from_status(tracked, record.status, record))
        tracked.status = record.status
        tracked.updates += updates
        return updates


def _updates_from_status(tracked: TrackedTask, status: TaskStatus, record: StatusRecord) -> Iterator[AttemptUpdate]:
    base_seq = record.position * _UPDATES_PER_RECORD
    ids = tracked.task.attempt_id, tracked.task.job_id
    native_id = status.native_id if status.array_job else ""
    execution = status.restarts + 1
    phase = JobPhase.ENDED if status.state in (LOST, REJECTED) else state_meaning(status.state).phase
    if tracked.started_execution and (tracked.started_execution < execution or phase is JobPhase.PENDING):
        detail = f"Slurm ended the execution on {_node(tracked)} and requeued the job"
        yield ExecutionInterrupted(
            *ids, execution=tracked.started_execution, failure_kind="evicted", detail=detail,
            native_id=native_id, seq=base_seq, occurred_at=record.observed_at,
        )  # fmt: skip
        tracked.started_execution = 0
    if phase is JobPhase.PENDING:
        yield from _updates_from_pending(tracked, status, record, base_seq)
        return
    if phase is JobPhase.COMPLETING:
        return  # the restart count may already be that of the next execution
    has_started = phase is JobPhase.RUNNING or bool(status.node)
    if tracked.is_held and has_started:
        tracked.is_held = False
        yield Released(*ids, native_id=native_id, seq=base_seq + 1, occurred_at=record.observed_at)
    if not tracked.started_execution and has_started:
        tracked.started_execution = execution
        yield ExecutionStarted(
            *ids, execution=execution, host=status.node, site=status.node, native_id=native_id,
            seq=base_seq + 2, occurred_at=status.started_at or record.observed_at,
        )  # fmt: skip
    if phase is JobPhase.ENDED:
        tracked.gone = _gone(tracked, status, native_id, record.observed_at)
        yield tracked.gone


def _updates_from_pending(
    tracked: TrackedTask, status: TaskStatus, record: StatusRecord, base_seq: int
) -> Iterator[AttemptUpdate]:
    ids, native_id = (tracked.task.attempt_id, tracked.task.job_id), status.native_id
    meaning = reason_meaning(status.reason)
    if meaning.hold_action and not tracked.is_held:
        tracked.is_held = True
        yield Held(
            *ids, action=meaning.hold_action, failure_kind=meaning.failure_kind, detail=meaning.message,
            native_id=native_id, seq=base_seq + 3, occurred_at=record.observed_at,
        )  # fmt: skip
    elif tracked.is_held and not meaning.hold_action:
        tracked.is_held = False
        yield Released(*ids, native_id=native_id, seq=base_seq + 4, occurred_at=record.observed_at)
    reason = meaning.message + _format_estimate(status)
    if reason != tracked.wait_reason:
        tracked.wait_reason = reason
        yield Queued(*ids, reason=reason, native_id=native_id)


def _format_estimate(status: TaskStatus) -> str:
    if status.started_at is None or status.reason == "BeginTime":  # that is when it may start
        return ""
    return time.strftime("; Slurm expects to start it on %d %b at %H:%M", time.localtime(status.started_at))


def _gone(tracked: TrackedTask, status: TaskStatus, native_id: str, observed_at: float) -> Gone:
    ids = tracked.task.attempt_id, tracked.task.job_id
    if tracked.is_cancelled and not tracked.started_execution:
        return Gone(*ids, detail="the attempt was cancelled before it started", native_id=native_id)
    if status.state == REJECTED:
        return Gone(*ids, failure_kind="submit_rejected", detail=status.reason)
    if status.state == LOST:
        exit_code = status.exit_code
        detail = _LOST_DETAIL if exit_code is None else f"the agent ended with exit code {exit_code}"
        return Gone(*ids, exit_code=exit_code, detail=detail, native_id=native_id, occurred_at=observed_at)
    meaning = state_meaning(status.state)
    detail = meaning.message
    if not meaning.failure_kind and status.exit_code is not None:
        detail = _exit_detail(status.exit_code)
    elif status.reason and status.reason != "None":
        detail += f" ({status.reason})"
    # The exit code of a job that Slurm ended differs between squeue and sacct, which says 0.
    exit_code = None if meaning.failure_kind and status.exit_code == 0 else status.exit_code
    return Gone(
        *ids, exit_code=exit_code, failure_kind=meaning.failure_kind, detail=detail,
        native_id=native_id, occurred_at=observed_at,
    )  # fmt: skip


def _exit_detail(exit_code: int) -> str:
    if exit_code < 0:
        known_signals = {number.value: number.name for number in signal.Signals}
        return f"the agent was killed by {known_signals.get(-exit_code, f'signal {-exit_code}')}"
    return f"the agent ended with exit code {exit_code}"


def _node(tracked: TrackedTask) -> str:
    return (tracked.status.node if tracked.status else "") or "its node"
