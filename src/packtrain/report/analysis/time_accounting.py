"""Classifies every second of every slot. The accounting is exact: time is counted in whole microseconds.

A second is classified by the phase of the slot and by the outcome of its execution and job: compute is useful if the
job succeeded and built on it. docs/formats/report.md describes the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from packtrain.report.history import (
    ExecutionRecord,
    FailureCategory,
    InputTransfer,
    JobHistory,
    JobRecord,
    Outcome,
    Phase,
    PhaseSpan,
)

US_PER_S = 1_000_000


class TimeUse(str, Enum):
    """The classification of slot time by its result. Each second has exactly one."""

    USEFUL_COMPUTE = "useful compute"
    USEFUL_TRANSFER = "useful transfer"
    WASTED_TRANSFER = "wasted transfer"
    LOST_TO_EVICTION = "compute lost to eviction"
    LOST_TO_TIME_LIMIT = "compute lost to the time limit"
    LOST_TO_WRONG_OUTPUT = "compute lost to wrong output"
    LOST_TO_FAILURE = "compute lost to failure"
    CHECKPOINT_RESTART = "checkpoint and restart"
    OVERHEAD = "overhead"
    IN_PROGRESS = "in progress"  # of executions that have not ended, or of unfinished jobs that may still use it


USEFUL = (TimeUse.USEFUL_COMPUTE, TimeUse.USEFUL_TRANSFER)
LOST_COMPUTE = (
    TimeUse.LOST_TO_EVICTION,
    TimeUse.LOST_TO_TIME_LIMIT,
    TimeUse.LOST_TO_WRONG_OUTPUT,
    TimeUse.LOST_TO_FAILURE,
)
WASTED = (TimeUse.WASTED_TRANSFER, *LOST_COMPUTE, TimeUse.CHECKPOINT_RESTART, TimeUse.OVERHEAD)
TRANSFER_PHASES = frozenset({Phase.TRANSFER_IN, Phase.UNPACK, Phase.TRANSFER_OUT})  # unpacking counts as transfer

UNFINISHED_OUTCOMES = frozenset({Outcome.RUNNING, Outcome.QUEUED, Outcome.CHECKPOINTED})  # of jobs that have not ended

_LOSS_BY_OUTCOME = {
    Outcome.EVICTED: TimeUse.LOST_TO_EVICTION,
    Outcome.TIME_LIMIT: TimeUse.LOST_TO_TIME_LIMIT,
    Outcome.WRONG_OUTPUT: TimeUse.LOST_TO_WRONG_OUTPUT,
}
_LOSS_BY_CATEGORY = {
    FailureCategory.EVICTION: TimeUse.LOST_TO_EVICTION,
    FailureCategory.TIME_LIMIT: TimeUse.LOST_TO_TIME_LIMIT,
    FailureCategory.WRONG_OUTPUT: TimeUse.LOST_TO_WRONG_OUTPUT,
}

TimeUseUs = Mapping[TimeUse, int]
IntervalUs = tuple[int, int]  # (start, end) in microseconds


class ClassifiedInterval(NamedTuple):
    """An interval of slot time with its phase and time use."""

    start_us: int  # microseconds, with the same origin as the spans
    end_us: int
    phase: Phase
    use: TimeUse

    @property
    def start(self) -> float:
        return self.start_us / US_PER_S

    @property
    def end(self) -> float:
        return self.end_us / US_PER_S


@dataclass(frozen=True)
class ExecutionTimeUse:
    """The time use of one execution."""

    execution: ExecutionRecord
    time_use_us: TimeUseUs  # microseconds; time uses without any are absent


@dataclass(frozen=True)
class JobTimeUse:
    """The time use of one job."""

    job: JobRecord
    executions: tuple[ExecutionTimeUse, ...]
    time_use_us: TimeUseUs  # sum over its executions


def account_history(history: JobHistory) -> tuple[JobTimeUse, ...]:
    return tuple(account_job(job) for job in history.jobs)


def account_job(job: JobRecord) -> JobTimeUse:
    classifier = _TimeClassifier(job)
    executions = tuple(
        ExecutionTimeUse(execution, _sum_intervals(classifier.classify(execution))) for execution in job.executions
    )
    return JobTimeUse(job, executions, sum_time_use(execution.time_use_us for execution in executions))


def classify_job_time(job: JobRecord) -> tuple[tuple[ClassifiedInterval, ...], ...]:
    """Return the classified intervals of each execution, in order. `account_job` returns their sums."""
    classifier = _TimeClassifier(job)
    return tuple(tuple(classifier.classify(execution)) for execution in job.executions)


def seconds_to_us(seconds: float) -> int:
    return round(seconds * US_PER_S)


def sum_time_use(time_uses: Iterable[TimeUseUs]) -> dict[TimeUse, int]:
    total: dict[TimeUse, int] = {}
    for time_use_us in time_uses:
        for use, duration_us in time_use_us.items():
            total[use] = total.get(use, 0) + duration_us
    return total


def _sum_intervals(intervals: Iterable[ClassifiedInterval]) -> dict[TimeUse, int]:
    total: dict[TimeUse, int] = {}
    for start_us, end_us, _, use in intervals:
        total[use] = total.get(use, 0) + end_us - start_us
    return total


class _TimeClassifier:
    """Classifies the time of one job's executions."""

    def __init__(self, job: JobRecord) -> None:
        self._job_outcome = job.outcome
        self._successful_execution = _first_successful_execution(job)
        contributing = (execution for execution in job.executions if self._contributes(execution))
        self._transfer_execution = next((execution for execution in contributing if _has_transfer(execution)), None)

    def classify(self, execution: ExecutionRecord) -> Iterator[ClassifiedInterval]:
        retained_us = self._retained_compute_us(execution)
        for span in execution.spans:
            # Rounding the edges instead of the durations makes the spans add up to the total exactly.
            start_us, end_us = seconds_to_us(span.start), seconds_to_us(span.end)
            if span.phase is Phase.EXECUTE:
                cut_us = min(end_us, start_us + retained_us)
                retained_us -= cut_us - start_us
                parts = (
                    (start_us, cut_us, self._unless_job_unfinished(TimeUse.USEFUL_COMPUTE)),
                    (cut_us, end_us, self._classify_loss(execution)),
                )
                yield from (ClassifiedInterval(start, end, span.phase, use) for start, end, use in parts if end > start)
            elif span.phase is Phase.TRANSFER_IN and execution.input_transfers:
                yield from self._classify_transfer_in(execution, span, start_us, end_us)
            elif end_us > start_us:
                yield ClassifiedInterval(start_us, end_us, span.phase, self._classify_phase(span.phase, execution))

    def _classify_transfer_in(
        self, execution: ExecutionRecord, span: PhaseSpan, start_us: int, end_us: int
    ) -> Iterator[ClassifiedInterval]:
        """Separate failed tries of a transfer from the one that completed."""
        use, running = self._classify_transfer(execution), execution.outcome is Outcome.RUNNING
        now_us = start_us
        for start, end in () if running else _wasted_intervals(start_us, end_us, execution.input_transfers):
            if start > now_us:
                yield ClassifiedInterval(now_us, start, span.phase, use)
            yield ClassifiedInterval(start, end, span.phase, TimeUse.WASTED_TRANSFER)
            now_us = end
        if end_us > now_us:
            yield ClassifiedInterval(now_us, end_us, span.phase, use)

    def _classify_phase(self, phase: Phase, execution: ExecutionRecord) -> TimeUse:
        """Classify a span that has a single time use."""
        if phase in TRANSFER_PHASES:
            return self._classify_transfer(execution)
        if execution.outcome is Outcome.RUNNING:
            return TimeUse.IN_PROGRESS
        if phase is Phase.CHECKPOINT:
            return TimeUse.CHECKPOINT_RESTART
        if phase is Phase.DISCONNECTED and not self._contributes(execution):
            return self._classify_loss(execution)
        return TimeUse.OVERHEAD

    def _classify_transfer(self, execution: ExecutionRecord) -> TimeUse:
        """Classify a transfer. A job needs one; those after a resume on another slot are restart costs."""
        if execution.outcome is Outcome.RUNNING:
            return TimeUse.IN_PROGRESS
        if not self._contributes(execution):
            return TimeUse.WASTED_TRANSFER
        return self._unless_job_unfinished(
            TimeUse.USEFUL_TRANSFER if execution is self._transfer_execution else TimeUse.CHECKPOINT_RESTART
        )

    def _unless_job_unfinished(self, use: TimeUse) -> TimeUse:
        """Return IN_PROGRESS if the job has not ended, because it may still fail."""
        return TimeUse.IN_PROGRESS if self._job_outcome in UNFINISHED_OUTCOMES else use

    def _contributes(self, execution: ExecutionRecord) -> bool:
        """Return whether the job used the work of this execution."""
        if self._job_outcome is not Outcome.SUCCEEDED and self._job_outcome not in UNFINISHED_OUTCOMES:
            return False
        return execution is self._successful_execution or _was_resumed(execution)

    def _retained_compute_us(self, execution: ExecutionRecord) -> int:
        """Return how much of its compute, from the beginning, the job used."""
        if not self._contributes(execution):
            return 0
        if execution is self._successful_execution:
            return sum(
                seconds_to_us(span.end) - seconds_to_us(span.start)
                for span in execution.spans
                if span.phase is Phase.EXECUTE
            )
        return seconds_to_us(execution.retained_compute_s)

    def _classify_loss(self, execution: ExecutionRecord) -> TimeUse:
        if execution.outcome is Outcome.RUNNING:
            return TimeUse.IN_PROGRESS
        return (
            _LOSS_BY_OUTCOME.get(execution.outcome)
            or _LOSS_BY_CATEGORY.get(execution.category)
            or self._classify_loss_by_job_outcome(execution)
        )

    def _classify_loss_by_job_outcome(self, execution: ExecutionRecord) -> TimeUse:
        """Classify the loss of an execution that did not fail itself by the outcome of the job."""
        if execution.outcome in (Outcome.SUCCEEDED, Outcome.CHECKPOINTED) and self._job_outcome in _LOSS_BY_OUTCOME:
            return _LOSS_BY_OUTCOME[self._job_outcome]
        if execution.outcome is Outcome.CHECKPOINTED and self._contributes(execution):
            return TimeUse.CHECKPOINT_RESTART
        return TimeUse.LOST_TO_FAILURE


def _was_resumed(execution: ExecutionRecord) -> bool:
    if execution.outcome is Outcome.CHECKPOINTED:
        return True
    return execution.retained_compute_s > 0 and execution.outcome is not Outcome.SUCCEEDED


def _first_successful_execution(job: JobRecord) -> ExecutionRecord | None:
    """Return the successful execution that ended first; there may be several copies of a job."""
    succeeded = [execution for execution in job.executions if execution.outcome is Outcome.SUCCEEDED]
    return min(succeeded, key=lambda item: item.end, default=None) if job.outcome is Outcome.SUCCEEDED else None


def _has_transfer(execution: ExecutionRecord) -> bool:
    return any(span.phase in TRANSFER_PHASES and span.end > span.start for span in execution.spans)


def _wasted_intervals(start_us: int, end_us: int, transfers: Iterable[InputTransfer]) -> list[IntervalUs]:
    """Return the intervals in which all active transfers were ones that did not complete."""
    edges: list[tuple[int, int, int]] = []  # (time, change of the failed count, change of the complete count)
    for transfer in transfers:
        start = max(start_us, seconds_to_us(transfer.start))
        end = min(end_us, seconds_to_us(transfer.start + transfer.duration_s))
        failed, complete = (0, 1) if transfer.complete else (1, 0)
        edges += [(start, failed, complete), (end, -failed, -complete)] if start < end else []
    intervals = []
    n_failed = n_complete = now_us = 0
    for edge_us, failed, complete in sorted(edges):
        if n_failed and not n_complete and edge_us > now_us:
            intervals.append((now_us, edge_us))
        n_failed, n_complete, now_us = n_failed + failed, n_complete + complete, edge_us
    return intervals
