"""What some jobs have in common and others have not: a site, cache, machine, hour, value of the matrix. Pure."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from packtrain.report.analysis.time_accounting import AttemptAccount, JobAccount, Share

_MOST_OF = 0.8  # of what a job lost: a trait of those attempts is one of the job
_COMMON = 0.75  # of the jobs that have it
_RARER = 0.3  # so much more than among the other jobs
_ENOUGH = 3  # others, to say what is usual
_HOUR = 3600


@dataclass(frozen=True)
class Trait:
    words: str  # at SITE, from CACHE, …
    count: int  # of the jobs that were asked about
    of: int
    elsewhere: float  # how common it is among the others

    @property
    def part(self) -> float:
        return self.count / self.of

    @property
    def sentence(self) -> str:
        """all of them at SITE"""
        every = "both" if self.of == 2 else "all"
        return f"{every if self.count == self.of else self.count} of them {self.words}"


def common_trait(chosen: Sequence[JobAccount], others: Sequence[JobAccount], shares: Iterable[Share]) -> Trait | None:
    """What tells the chosen from the others best, judged by the attempts that had these shares."""
    if len(chosen) < 2 or len(others) < _ENOUGH:
        return None
    wanted = tuple(shares)
    found = Counter(words for account in chosen for words in _of_job(account, wanted))
    common = {words: count for words, count in found.items() if count >= _COMMON * len(chosen)}
    if not common:
        return None
    usual = Counter(words for account in others for words in _anywhere(account) if words in common)
    traits = (Trait(words, count, len(chosen), usual[words] / len(others)) for words, count in common.items())
    telling = [one for one in traits if one.part - one.elsewhere >= _RARER]
    return max(telling, key=lambda one: one.part - one.elsewhere, default=None)


def _of_job(account: JobAccount, shares: Sequence[Share]) -> Iterator[str]:
    """Traits of most of what it lost."""
    whole = 0
    weights: Counter[str] = Counter()
    for stay in account.attempts:
        lost = sum(stay.micros.get(share, 0) for share in shares)
        whole += lost
        for words in dict.fromkeys(_of_attempt(stay)) if lost else ():
            weights[words] += lost
    yield from (words for words, weight in weights.items() if weight >= _MOST_OF * whole)
    yield from _of_point(account)


def _anywhere(account: JobAccount) -> set[str]:
    return {*(words for stay in account.attempts for words in _of_attempt(stay)), *_of_point(account)}


def _of_attempt(stay: AttemptAccount) -> Iterator[str]:
    attempt = stay.attempt
    if attempt.site:
        yield f"at {attempt.site}"
    if attempt.machine:
        yield f"on {attempt.machine}"
    yield from (f"from {move.source}" for move in attempt.moves if move.source)
    if attempt.spans and attempt.start > _HOUR * 24 * 365:
        yield _hour(int(attempt.start // _HOUR))


@functools.cache
def _hour(number: int) -> str:
    begin = datetime.fromtimestamp(number * _HOUR, timezone.utc)
    return f"begun between {begin:%H:%M} and {(begin.hour + 1) % 24:02}:00 UTC on {begin:%Y-%m-%d}"


def _of_point(account: JobAccount) -> Iterator[str]:
    cluster, dot, process = account.job.id.rpartition(".")
    if dot and cluster.isdigit() and process.isdigit():
        yield f"of cluster {cluster}"
    yield from (f"with {key} {value}" for key, value in account.job.point.items())
