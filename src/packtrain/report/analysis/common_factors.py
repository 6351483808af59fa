"""Finds what a group of jobs has in common and other jobs do not: a site, cache, node, hour or matrix parameter."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from packtrain.report.analysis.time_accounting import ExecutionTimeUse, JobTimeUse, TimeUse

_MIN_LOSS_FRACTION = 0.8  # a factor counts for a job if the executions with it caused this much of its loss
_MIN_FRACTION_OF_JOBS = 0.75  # of the selected jobs that have the factor
_MIN_FRACTION_DIFFERENCE = 0.3  # between the selected jobs and the others
_MIN_OTHER_JOBS = 3  # needed for a comparison
_HOUR_S = 3600


@dataclass(frozen=True)
class CommonFactor:
    """A property that most of the selected jobs share."""

    text: str  # at SITE, from CACHE, …
    count: int  # of the selected jobs that have it
    total: int  # of all selected jobs
    fraction_of_others: float  # of the other jobs that have it

    @property
    def fraction(self) -> float:
        return self.count / self.total

    @property
    def message(self) -> str:
        """A phrase for a finding: all of them at SITE."""
        every = "both" if self.total == 2 else "all"
        return f"{every if self.count == self.total else self.count} of them {self.text}"


def find_common_factor(
    selected: Sequence[JobTimeUse], others: Sequence[JobTimeUse], uses: Iterable[TimeUse]
) -> CommonFactor | None:
    """Find the factor that separates the selected jobs best from the others.

    Args:
        selected: The jobs to explain.
        others: The jobs to compare with.
        uses: Only executions with these time uses are considered for the selected jobs.
    """
    if len(selected) < 2 or len(others) < _MIN_OTHER_JOBS:
        return None
    considered_uses = tuple(uses)
    counts = Counter(factor for job_time in selected for factor in _job_factors(job_time, considered_uses))
    common = {factor: count for factor, count in counts.items() if count >= _MIN_FRACTION_OF_JOBS * len(selected)}
    if not common:
        return None
    counts_of_others = Counter(factor for job_time in others for factor in _all_factors(job_time) if factor in common)
    candidates = (
        CommonFactor(factor, count, len(selected), counts_of_others[factor] / len(others))
        for factor, count in common.items()
    )
    distinctive = [
        candidate
        for candidate in candidates
        if candidate.fraction - candidate.fraction_of_others >= _MIN_FRACTION_DIFFERENCE
    ]
    return max(distinctive, key=lambda candidate: candidate.fraction - candidate.fraction_of_others, default=None)


def _job_factors(job_time: JobTimeUse, uses: Sequence[TimeUse]) -> Iterator[str]:
    """Yield the factors of the executions that caused most of a job's loss."""
    total_us = 0
    loss_us: Counter[str] = Counter()
    for execution_time in job_time.executions:
        lost_us = sum(execution_time.time_use_us.get(use, 0) for use in uses)
        total_us += lost_us
        for factor in dict.fromkeys(_execution_factors(execution_time)) if lost_us else ():
            loss_us[factor] += lost_us
    yield from (factor for factor, lost_us in loss_us.items() if lost_us >= _MIN_LOSS_FRACTION * total_us)
    yield from _point_factors(job_time)


def _all_factors(job_time: JobTimeUse) -> set[str]:
    factors = {factor for execution_time in job_time.executions for factor in _execution_factors(execution_time)}
    return factors | set(_point_factors(job_time))


def _execution_factors(execution_time: ExecutionTimeUse) -> Iterator[str]:
    execution = execution_time.execution
    if execution.site:
        yield f"at {execution.site}"
    if execution.node:
        yield f"on {execution.node}"
    yield from (f"from {transfer.source}" for transfer in execution.input_transfers if transfer.source)
    if execution.spans and execution.start > _HOUR_S * 24 * 365:
        yield _format_hour(int(execution.start // _HOUR_S))


@functools.cache
def _format_hour(number: int) -> str:
    begin = datetime.fromtimestamp(number * _HOUR_S, timezone.utc)
    return f"started between {begin:%H:%M} and {(begin.hour + 1) % 24:02}:00 UTC on {begin:%Y-%m-%d}"


def _point_factors(job_time: JobTimeUse) -> Iterator[str]:
    cluster, dot, process = job_time.job.id.rpartition(".")
    if dot and cluster.isdigit() and process.isdigit():
        yield f"in cluster {cluster}"
    yield from (f"with {key} {value}" for key, value in job_time.job.point.items())
