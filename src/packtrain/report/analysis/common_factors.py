"""What some jobs have in common and others have not: a site, cache, machine, hour, value of the matrix. Pure."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from packtrain.report.analysis.time_accounting import ExecutionTimeUse, JobTimeUse, TimeUse

_MIN_LOSS_FRACTION = 0.8  # of what a job lost: a trait of those attempts is one of the job
_MIN_FRACTION_OF_JOBS = 0.75  # of the jobs that have it
_MIN_FRACTION_DIFFERENCE = 0.3  # so much more than among the other jobs
_MIN_OTHER_JOBS = 3  # others, to say what is usual
_HOUR_S = 3600


@dataclass(frozen=True)
class CommonFactor:
    text: str  # at SITE, from CACHE, …
    count: int  # of the jobs that were asked about
    total: int
    fraction_of_others: float  # how common it is among the others

    @property
    def fraction(self) -> float:
        return self.count / self.total

    @property
    def message(self) -> str:
        """all of them at SITE"""
        every = "both" if self.total == 2 else "all"
        return f"{every if self.count == self.total else self.count} of them {self.text}"


def find_common_factor(
    selected: Sequence[JobTimeUse], others: Sequence[JobTimeUse], uses: Iterable[TimeUse]
) -> CommonFactor | None:
    """What tells the chosen from the others best, judged by the attempts that had these shares."""
    if len(selected) < 2 or len(others) < _MIN_OTHER_JOBS:
        return None
    wanted = tuple(uses)
    found = Counter(words for account in selected for words in _job_factors(account, wanted))
    common = {words: count for words, count in found.items() if count >= _MIN_FRACTION_OF_JOBS * len(selected)}
    if not common:
        return None
    usual = Counter(words for account in others for words in _all_factors(account) if words in common)
    traits = (CommonFactor(words, count, len(selected), usual[words] / len(others)) for words, count in common.items())
    telling = [one for one in traits if one.fraction - one.fraction_of_others >= _MIN_FRACTION_DIFFERENCE]
    return max(telling, key=lambda one: one.fraction - one.fraction_of_others, default=None)


def _job_factors(job_time: JobTimeUse, uses: Sequence[TimeUse]) -> Iterator[str]:
    """Traits of most of what it lost."""
    whole = 0
    weights: Counter[str] = Counter()
    for stay in job_time.executions:
        lost = sum(stay.time_use_us.get(share, 0) for share in uses)
        whole += lost
        for words in dict.fromkeys(_execution_factors(stay)) if lost else ():
            weights[words] += lost
    yield from (words for words, weight in weights.items() if weight >= _MIN_LOSS_FRACTION * whole)
    yield from _point_factors(job_time)


def _all_factors(job_time: JobTimeUse) -> set[str]:
    return {*(words for stay in job_time.executions for words in _execution_factors(stay)), *_point_factors(job_time)}


def _execution_factors(execution_time: ExecutionTimeUse) -> Iterator[str]:
    attempt = execution_time.execution
    if attempt.site:
        yield f"at {attempt.site}"
    if attempt.node:
        yield f"on {attempt.node}"
    yield from (f"from {move.source}" for move in attempt.input_transfers if move.source)
    if attempt.spans and attempt.start > _HOUR_S * 24 * 365:
        yield _format_hour(int(attempt.start // _HOUR_S))


@functools.cache
def _format_hour(number: int) -> str:
    begin = datetime.fromtimestamp(number * _HOUR_S, timezone.utc)
    return f"begun between {begin:%H:%M} and {(begin.hour + 1) % 24:02}:00 UTC on {begin:%Y-%m-%d}"


def _point_factors(job_time: JobTimeUse) -> Iterator[str]:
    cluster, dot, process = job_time.job.id.rpartition(".")
    if dot and cluster.isdigit() and process.isdigit():
        yield f"of cluster {cluster}"
    yield from (f"with {key} {value}" for key, value in job_time.job.point.items())
