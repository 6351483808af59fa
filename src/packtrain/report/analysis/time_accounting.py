"""Where every second of every slot went. Pure, and exact: seconds are counted in whole microseconds.

A second is judged by what the slot was doing (the span's phase) and by what became of it (the attempt, and the job it
belongs to): compute is useful if the job succeeded and went on from it. docs/formats/report.md has the rules in words.
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
    """What a second of a slot was worth. Each belongs to exactly one."""

    USEFUL_COMPUTE = "useful compute"
    USEFUL_TRANSFER = "useful transfer"
    WASTED_TRANSFER = "transfer thrown away"
    LOST_TO_EVICTION = "compute lost to eviction"
    LOST_TO_TIME_LIMIT = "compute lost to the time limit"
    LOST_TO_WRONG_OUTPUT = "compute lost to wrong output"
    LOST_TO_FAILURE = "compute lost to failure"
    CHECKPOINT_RESTART = "checkpoint and restart"
    OVERHEAD = "overhead"
    IN_PROGRESS = "under way"  # of attempts that have not ended, or of jobs that may still need what they did


USEFUL = (TimeUse.USEFUL_COMPUTE, TimeUse.USEFUL_TRANSFER)
LOST_COMPUTE = (
    TimeUse.LOST_TO_EVICTION,
    TimeUse.LOST_TO_TIME_LIMIT,
    TimeUse.LOST_TO_WRONG_OUTPUT,
    TimeUse.LOST_TO_FAILURE,
)
WASTED = (TimeUse.WASTED_TRANSFER, *LOST_COMPUTE, TimeUse.CHECKPOINT_RESTART, TimeUse.OVERHEAD)
TRANSFER_PHASES = frozenset({Phase.TRANSFER_IN, Phase.UNPACK, Phase.TRANSFER_OUT})  # unpacking belongs to its transfer

UNFINISHED_OUTCOMES = frozenset({Outcome.RUNNING, Outcome.CHECKPOINTED})  # of jobs: it has not ended

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
IntervalUs = tuple[int, int]  # from, to: microseconds


class ClassifiedInterval(NamedTuple):
    """A stretch of a slot's time, judged."""

    start_us: int  # microseconds, since when the spans' seconds are
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
    execution: ExecutionRecord
    time_use_us: TimeUseUs  # by share; those without any are left out


@dataclass(frozen=True)
class JobTimeUse:
    job: JobRecord
    executions: tuple[ExecutionTimeUse, ...]
    time_use_us: TimeUseUs  # of all its attempts


def account_history(history: JobHistory) -> tuple[JobTimeUse, ...]:
    return tuple(account_job(job) for job in history.jobs)


def account_job(job: JobRecord) -> JobTimeUse:
    worth = _TimeClassifier(job)
    attempts = tuple(ExecutionTimeUse(attempt, _sum_intervals(worth.classify(attempt))) for attempt in job.executions)
    return JobTimeUse(job, attempts, sum_time_use(account.time_use_us for account in attempts))


def classify_job_time(job: JobRecord) -> tuple[tuple[ClassifiedInterval, ...], ...]:
    """Every attempt's time in its order. Accounts are sums of these."""
    worth = _TimeClassifier(job)
    return tuple(tuple(worth.classify(attempt)) for attempt in job.executions)


def seconds_to_us(seconds: float) -> int:
    return round(seconds * US_PER_S)


def sum_time_use(time_uses: Iterable[TimeUseUs]) -> dict[TimeUse, int]:
    total: dict[TimeUse, int] = {}
    for part in time_uses:
        for share, count in part.items():
            total[share] = total.get(share, 0) + count
    return total


def _sum_intervals(intervals: Iterable[ClassifiedInterval]) -> dict[TimeUse, int]:
    found: dict[TimeUse, int] = {}
    for low, high, _, share in intervals:
        found[share] = found.get(share, 0) + high - low
    return found


class _TimeClassifier:
    """What the seconds of one job's attempts were worth."""

    def __init__(self, job: JobRecord) -> None:
        self._job_outcome = job.outcome
        self._successful_execution = _first_successful_execution(job)
        counting = (attempt for attempt in job.executions if self._contributes(attempt))
        self._transfer_execution = next((attempt for attempt in counting if _has_transfer(attempt)), None)

    def classify(self, execution: ExecutionRecord) -> Iterator[ClassifiedInterval]:
        kept = self._retained_compute_us(execution)
        for span in execution.spans:
            # By the edges, not by the difference: neighbours share an edge, so that all spans add up to the whole.
            low, high = seconds_to_us(span.start), seconds_to_us(span.end)
            if span.phase is Phase.EXECUTE:
                cut = min(high, low + kept)
                kept -= cut - low
                pieces = (
                    (low, cut, self._unless_job_unfinished(TimeUse.USEFUL_COMPUTE)),
                    (cut, high, self._classify_loss(execution)),
                )
                yield from (
                    ClassifiedInterval(start, end, span.phase, share) for start, end, share in pieces if end > start
                )
            elif span.phase is Phase.TRANSFER_IN and execution.input_transfers:
                yield from self._classify_transfer_in(execution, span, low, high)
            elif high > low:
                yield ClassifiedInterval(low, high, span.phase, self._classify_phase(span.phase, execution))

    def _classify_transfer_in(
        self, execution: ExecutionRecord, span: PhaseSpan, start_us: int, end_us: int
    ) -> Iterator[ClassifiedInterval]:
        """A transfer that came may have been begun several times."""
        share, running = self._classify_transfer(execution), execution.outcome is Outcome.RUNNING
        at = start_us
        for start, end in () if running else _wasted_intervals(start_us, end_us, execution.input_transfers):
            if start > at:
                yield ClassifiedInterval(at, start, span.phase, share)
            yield ClassifiedInterval(start, end, span.phase, TimeUse.WASTED_TRANSFER)
            at = end
        if end_us > at:
            yield ClassifiedInterval(at, end_us, span.phase, share)

    def _classify_phase(self, phase: Phase, execution: ExecutionRecord) -> TimeUse:
        """Of spans that have one share."""
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
        """The one that the job needed is useful; going on elsewhere takes another one."""
        if execution.outcome is Outcome.RUNNING:
            return TimeUse.IN_PROGRESS
        if not self._contributes(execution):
            return TimeUse.WASTED_TRANSFER
        return self._unless_job_unfinished(
            TimeUse.USEFUL_TRANSFER if execution is self._transfer_execution else TimeUse.CHECKPOINT_RESTART
        )

    def _unless_job_unfinished(self, use: TimeUse) -> TimeUse:
        """What a job did that has not ended may come to something yet."""
        return TimeUse.IN_PROGRESS if self._job_outcome in UNFINISHED_OUTCOMES else use

    def _contributes(self, execution: ExecutionRecord) -> bool:
        """Whether the job used what this attempt did."""
        if self._job_outcome is not Outcome.SUCCEEDED and self._job_outcome not in UNFINISHED_OUTCOMES:
            return False
        return execution is self._successful_execution or _was_resumed(execution)

    def _retained_compute_us(self, execution: ExecutionRecord) -> int:
        """How much of its compute, from the beginning, the job used."""
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
        """Of an attempt that was fine itself, what spoilt it is what became of the job."""
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
    """Of several copies that succeeded, the first to end."""
    ended = [attempt for attempt in job.executions if attempt.outcome is Outcome.SUCCEEDED]
    return min(ended, key=lambda attempt: attempt.end, default=None) if job.outcome is Outcome.SUCCEEDED else None


def _has_transfer(execution: ExecutionRecord) -> bool:
    return any(span.phase in TRANSFER_PHASES and span.end > span.start for span in execution.spans)


def _wasted_intervals(start_us: int, end_us: int, transfers: Iterable[InputTransfer]) -> list[IntervalUs]:
    """The pieces in which only moves were under way that came to nothing."""
    edges: list[tuple[int, int, int]] = []  # when, how many more (or fewer) in vain, how many more whole ones
    for move in transfers:
        start, end = max(start_us, seconds_to_us(move.start)), min(end_us, seconds_to_us(move.start + move.duration_s))
        vain, whole = (0, 1) if move.complete else (1, 0)
        edges += [(start, vain, whole), (end, -vain, -whole)] if start < end else []
    found = []
    in_vain = good = at = 0
    for when, vain, whole in sorted(edges):
        if in_vain and not good and when > at:
            found.append((at, when))
        in_vain, good, at = in_vain + vain, good + whole, when
    return found
