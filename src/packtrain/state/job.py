"""The state of one job: its attempts, their executions, and its result.

A `JobState` never changes. `job_log.JobLog` collects the events of a job and builds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any

from packtrain.events import Event, Failure
from packtrain.state.execution import Attempt, EventOrder, Execution
from packtrain.state.pool_events import Hold
from packtrain.state.transitions import JOB_STATUS_PRECEDENCE, ExecutionStatus, JobStatus

HOLD_QUEUE_TIMEOUT = -1  # used as the hold number of a decision to give up an attempt that no node has taken


def event_order(event: Event) -> EventOrder:
    """Return the position of a supervisor's event in the order of all supervisors' events."""
    return (int(event.data.get("epoch", 0)), event.seq)


@dataclass(frozen=True)
class JobResult:
    """The result of a job, as a supervisor decided it."""

    status: JobStatus
    order: EventOrder
    emitter: str = ""  # of a succeeded job: the agent whose outputs were accepted
    failure: Failure | None = None
    reason: str = ""

    @classmethod
    def from_event(cls, event: Event) -> JobResult:
        """Read the result from a `job.ended` event."""
        data = event.data
        failure = Failure.from_data(data["failure"]) if data.get("failure") else None
        return cls(
            JobStatus(data["result"]), event_order(event), data.get("emitter", ""), failure, data.get("reason", "")
        )


@dataclass(frozen=True)
class JobState:
    """The state of one job."""

    id: str
    point: Mapping[str, str] = field(default_factory=dict)  # of the matrix
    attempts: Mapping[str, Attempt] = field(default_factory=dict)  # by id, in the order of decisions
    executions: tuple[Execution, ...] = ()  # sorted by attempt, then by execution or by the agents' clocks
    result: JobResult | None = None  # None if there is none, or if the job was reopened since
    reopened_order: EventOrder | None = None
    accepted_attempt_id: str = ""  # the attempt whose outputs a supervisor accepted; "" if there was no choice to make
    accepted_emitter: str = ""  # the agent of that attempt whose outputs they are
    open_requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of users, not handled yet
    changed_at: float = 0.0  # when the newest lifecycle event was received, by the store's clock

    @cached_property
    def status(self) -> JobStatus:
        """The status of the result, or the status that follows from the executions."""
        if self.result:
            return self.result.status
        statuses = {execution.status for execution in self.executions}
        return next((job for status, job in JOB_STATUS_PRECEDENCE if status in statuses), JobStatus.WAITING)

    @cached_property
    def recent_executions(self) -> tuple[Execution, ...]:
        """The executions since the job was last reopened. Only these count against its budget."""
        since = self.reopened_order
        return tuple(e for e in self.executions if since is None or self.attempts[e.attempt_id].order > since)

    @cached_property
    def live_executions(self) -> tuple[Execution, ...]:
        """The executions that have not ended."""
        return tuple(execution for execution in self.executions if execution.is_live)

    @cached_property
    def counted_failures(self) -> tuple[Execution, ...]:
        """The executions that count against the maximum number of attempts.

        An execution counts if it failed or was lost. One that requeued itself, or that the pool ended, counts only if
        it made no progress. One that the pool itself started again does not count.
        """
        counted, best_step = [], -1
        first_best_step: dict[str, int] = {}  # by attempt id: the best step when the attempt was first started
        for execution, successor in zip_longest(self.recent_executions, self.recent_executions[1:]):
            has_failed = not execution.is_live and execution.status is not ExecutionStatus.SUCCEEDED
            attempt_progressed = best_step > first_best_step.setdefault(execution.attempt_id, best_step)
            is_free = _was_restarted_by_pool(execution, successor) or (
                attempt_progressed and _is_restart_loop(execution)
            )
            if has_failed and _counts_as_failure(execution, best_step) and not is_free:
                counted.append(execution)
            best_step = max(best_step, execution.checkpoint_step)
        # An execution that a supervisor ended does not show anything about the job.
        return tuple(execution for execution in counted if not self.has_cancel_decision(execution.attempt_id))

    @property
    def latest_execution(self) -> Execution | None:
        """The execution to show: the accepted one, else a running one, else the last one."""
        if self.result and self.result.emitter:
            winner = next((e for e in self.executions if e.emitter == self.result.emitter), None)
            return winner or self.executions[-1]
        running = [e for e in self.executions if e.status is ExecutionStatus.RUNNING]
        return running[0] if running else self.executions[-1] if self.executions else None

    @property
    def winning_execution(self) -> Execution | None:
        """The execution whose outputs are the job's: the accepted one, else the first that succeeded."""
        succeeded = [e for e in self.executions if e.status is ExecutionStatus.SUCCEEDED]
        accepted = [e for e in succeeded if e.attempt_id == self.accepted_attempt_id]
        accepted = [e for e in accepted if e.emitter == self.accepted_emitter] or accepted
        return min(accepted or succeeded, key=lambda e: (e.ended_at, e.number), default=None)

    @property
    def waiting_since(self) -> float:
        """When the job began to wait for a node, if it does."""
        return max(self.changed_at, *(execution.ended_at for execution in self.executions), 0.0)

    @property
    def log_tail(self) -> Mapping[str, Any]:
        """The end of the current step's log, as the pool reported it: `file`, `end`, `text`."""
        latest = self.latest_execution
        tail = self.attempts[latest.attempt_id].progress.get("log_tail") if latest else None
        return tail if isinstance(tail, dict) else {}

    # Attempts

    @property
    def n_attempts(self) -> int:
        """The number of attempts."""
        return len(self.attempts)

    @cached_property
    def moves(self) -> Mapping[str, Mapping[str, Any]]:
        """The decisions to move an attempt, by attempt id: the sites and nodes to avoid, and the reason."""
        recent_ids = {execution.attempt_id for execution in self.recent_executions}
        return {a.id: a.move for a in self.attempts.values() if a.move is not None and a.id in recent_ids}

    def has_cancel_decision(self, attempt_id: str) -> bool:
        """Return whether a supervisor decided to end this attempt."""
        return attempt_id in self.attempts and self.attempts[attempt_id].cancel_order is not None

    def cancel_reason(self, attempt_id: str) -> str:
        """Return why a supervisor ended this attempt, or ""."""
        return self.attempts[attempt_id].cancel_reason if attempt_id in self.attempts else ""

    def overrides_for(self, attempt_id: str) -> Mapping[str, Any]:
        """Return the resources and sites of an attempt that differ from the plan."""
        return self.attempts[attempt_id].overrides if attempt_id in self.attempts else {}

    # Holds

    def hold_decision(self, hold: Hold) -> str:
        """Return what a supervisor decided about a hold: `release`, `give_up`, or "" if it has not decided."""
        return self.decision_for(str(hold.event.data["attempt"]), hold.seq)

    def decision_for(self, attempt_id: str, hold_seq: int) -> str:
        """Return the decision about a hold of an attempt, by the hold's number."""
        return self.attempts[attempt_id].hold_decisions.get(hold_seq, "") if attempt_id in self.attempts else ""

    def count_releases(self, attempt_id: str, except_kind: str = "") -> int:
        """Return how often a supervisor released an attempt.

        Args:
            attempt_id: The attempt.
            except_kind: Releases of holds with this failure kind are not counted.
        """
        attempt = self.attempts[attempt_id]
        ignored = {hold.seq for hold in attempt.holds if except_kind and hold.failure_kind == except_kind}
        return sum(action == "release" and seq not in ignored for seq, action in attempt.hold_decisions.items())

    def has_progressed_since(self, hold: Hold) -> bool:
        """Return whether the training progressed between the previous hold with the same failure kind and this one."""
        attempt = self.attempts[str(hold.event.data["attempt"])]
        same_kind = (h.seq for h in attempt.holds if h.seq < hold.seq and h.failure_kind == hold.failure_kind)
        since_seq = max(same_kind, default=0)
        starts = {e.number: e.start_event.seq for e in attempt.pool_executions if e.start_event}
        steps_since: list[int] = []
        steps_before: list[int] = []
        for execution in self.executions:
            start_seq = starts.get(execution.execution_number, 0) if execution.attempt_id == attempt.id else 0
            (steps_since if since_seq < start_seq < hold.seq else steps_before).append(execution.checkpoint_step)
        return max(steps_since, default=-1) > max(steps_before, default=-1)


def _was_restarted_by_pool(execution: Execution, successor: Execution | None) -> bool:
    """Return whether the pool ended an execution and started the same attempt again."""
    is_same_attempt = successor is not None and successor.attempt_id == execution.attempt_id
    return is_same_attempt and execution.failure is not None and execution.failure.blame == "pool"


def _is_restart_loop(execution: Execution) -> bool:
    """Return whether the attempt was given up while queued, because the pool had started it too often."""
    return execution.failure is not None and execution.failure.kind == "restart_loop" and not execution.execution_number


def _counts_as_failure(execution: Execution, best_step: int) -> bool:
    ended_by_pool = execution.failure is not None and execution.failure.blame == "pool"
    return execution.checkpoint_step <= best_step or not (ended_by_pool or execution.status is ExecutionStatus.REQUEUED)
