"""Where every second of every slot went. Pure, and exact: seconds are counted in whole microseconds.

A second is judged by what the slot was doing (the span's phase) and by what became of it (the attempt, and the job it
belongs to): compute is useful if the job succeeded and went on from it. docs/formats/report.md has the rules in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from packtrain.report.history import Attempt, Category, History, Job, Move, Outcome, Phase, Span

MICRO = 1_000_000


class Share(str, Enum):
    """What a second of a slot was worth. Each belongs to exactly one."""

    COMPUTE = "useful compute"
    TRANSFER = "useful transfer"
    THROWN_AWAY = "transfer thrown away"
    EVICTION = "compute lost to eviction"
    TIME_LIMIT = "compute lost to the time limit"
    OUTPUT = "compute lost to wrong output"
    FAILURE = "compute lost to failure"
    RESTART = "checkpoint and restart"
    OVERHEAD = "overhead"
    UNDER_WAY = "under way"  # of attempts that have not ended, or of jobs that may still need what they did


USEFUL = (Share.COMPUTE, Share.TRANSFER)
LOST_COMPUTE = (Share.EVICTION, Share.TIME_LIMIT, Share.OUTPUT, Share.FAILURE)
WASTE = (Share.THROWN_AWAY, *LOST_COMPUTE, Share.RESTART, Share.OVERHEAD)
TRANSFERS = frozenset({Phase.TRANSFER_IN, Phase.UNPACK, Phase.TRANSFER_OUT})  # unpacking belongs to its transfer

OPEN = frozenset({Outcome.RUNNING, Outcome.CONTINUES})  # of jobs: it has not ended

_COSTS = {
    Outcome.EVICTED: Share.EVICTION,
    Outcome.TIME_LIMIT: Share.TIME_LIMIT,
    Outcome.WRONG_OUTPUT: Share.OUTPUT,
}
_CAUSES = {
    Category.EVICTION: Share.EVICTION,
    Category.TIME_LIMIT: Share.TIME_LIMIT,
    Category.OUTPUT: Share.OUTPUT,
}

Micros = Mapping[Share, int]
Piece = tuple[int, int]  # from, to: microseconds


class Charge(NamedTuple):
    """A stretch of a slot's time, judged."""

    low: int  # microseconds, since when the spans' seconds are
    high: int
    phase: Phase
    share: Share

    @property
    def start(self) -> float:
        return self.low / MICRO

    @property
    def end(self) -> float:
        return self.high / MICRO


@dataclass(frozen=True)
class AttemptAccount:
    attempt: Attempt
    micros: Micros  # by share; those without any are left out


@dataclass(frozen=True)
class JobAccount:
    job: Job
    attempts: tuple[AttemptAccount, ...]
    micros: Micros  # of all its attempts


def accounts_of(history: History) -> tuple[JobAccount, ...]:
    return tuple(account_of(job) for job in history.jobs)


def account_of(job: Job) -> JobAccount:
    worth = _Worth(job)
    attempts = tuple(AttemptAccount(attempt, _added(worth.judge(attempt))) for attempt in job.attempts)
    return JobAccount(job, attempts, summed(account.micros for account in attempts))


def judged(job: Job) -> tuple[tuple[Charge, ...], ...]:
    """Every attempt's time in its order. Accounts are sums of these."""
    worth = _Worth(job)
    return tuple(tuple(worth.judge(attempt)) for attempt in job.attempts)


def micros(seconds: float) -> int:
    return round(seconds * MICRO)


def summed(parts: Iterable[Micros]) -> dict[Share, int]:
    total: dict[Share, int] = {}
    for part in parts:
        for share, count in part.items():
            total[share] = total.get(share, 0) + count
    return total


def _added(charges: Iterable[Charge]) -> dict[Share, int]:
    found: dict[Share, int] = {}
    for low, high, _, share in charges:
        found[share] = found.get(share, 0) + high - low
    return found


class _Worth:
    """What the seconds of one job's attempts were worth."""

    def __init__(self, job: Job) -> None:
        self._outcome = job.outcome
        self._winner = _winner(job)
        counting = (attempt for attempt in job.attempts if self._counts(attempt))
        self._carrier = next((attempt for attempt in counting if _transferred(attempt)), None)

    def judge(self, attempt: Attempt) -> Iterator[Charge]:
        kept = self._kept(attempt)
        for span in attempt.spans:
            # By the edges, not by the difference: neighbours share an edge, so that all spans add up to the whole.
            low, high = micros(span.start), micros(span.end)
            if span.phase is Phase.EXECUTE:
                cut = min(high, low + kept)
                kept -= cut - low
                pieces = (low, cut, self._promised(Share.COMPUTE)), (cut, high, self._lost(attempt))
                yield from (Charge(start, end, span.phase, share) for start, end, share in pieces if end > start)
            elif span.phase is Phase.TRANSFER_IN and attempt.moves:
                yield from self._transfer_in(attempt, span, low, high)
            elif high > low:
                yield Charge(low, high, span.phase, self._whole(span.phase, attempt))

    def _transfer_in(self, attempt: Attempt, span: Span, low: int, high: int) -> Iterator[Charge]:
        """A transfer that came may have been begun several times."""
        share, running = self._transfer(attempt), attempt.outcome is Outcome.RUNNING
        at = low
        for start, end in () if running else _in_vain(low, high, attempt.moves):
            if start > at:
                yield Charge(at, start, span.phase, share)
            yield Charge(start, end, span.phase, Share.THROWN_AWAY)
            at = end
        if high > at:
            yield Charge(at, high, span.phase, share)

    def _whole(self, phase: Phase, attempt: Attempt) -> Share:
        """Of spans that have one share."""
        if phase in TRANSFERS:
            return self._transfer(attempt)
        if attempt.outcome is Outcome.RUNNING:
            return Share.UNDER_WAY
        if phase is Phase.CHECKPOINT:
            return Share.RESTART
        if phase is Phase.DISCONNECTED and not self._counts(attempt):
            return self._lost(attempt)
        return Share.OVERHEAD

    def _transfer(self, attempt: Attempt) -> Share:
        """The one that the job needed is useful; going on elsewhere takes another one."""
        if attempt.outcome is Outcome.RUNNING:
            return Share.UNDER_WAY
        if not self._counts(attempt):
            return Share.THROWN_AWAY
        return self._promised(Share.TRANSFER if attempt is self._carrier else Share.RESTART)

    def _promised(self, share: Share) -> Share:
        """What a job did that has not ended may come to something yet."""
        return Share.UNDER_WAY if self._outcome in OPEN else share

    def _counts(self, attempt: Attempt) -> bool:
        """Whether the job used what this attempt did."""
        if self._outcome is not Outcome.SUCCEEDED and self._outcome not in OPEN:
            return False
        return attempt is self._winner or _gone_on_from(attempt)

    def _kept(self, attempt: Attempt) -> int:
        """How much of its compute, from the beginning, the job used."""
        if not self._counts(attempt):
            return 0
        if attempt is self._winner:
            return sum(micros(span.end) - micros(span.start) for span in attempt.spans if span.phase is Phase.EXECUTE)
        return micros(attempt.kept_s)

    def _lost(self, attempt: Attempt) -> Share:
        if attempt.outcome is Outcome.RUNNING:
            return Share.UNDER_WAY
        return _COSTS.get(attempt.outcome) or _CAUSES.get(attempt.category) or self._lost_later(attempt)

    def _lost_later(self, attempt: Attempt) -> Share:
        """Of an attempt that was fine itself, what spoilt it is what became of the job."""
        if attempt.outcome in (Outcome.SUCCEEDED, Outcome.CONTINUES) and self._outcome in _COSTS:
            return _COSTS[self._outcome]
        if attempt.outcome is Outcome.CONTINUES and self._counts(attempt):
            return Share.RESTART
        return Share.FAILURE


def _gone_on_from(attempt: Attempt) -> bool:
    if attempt.outcome is Outcome.CONTINUES:
        return True
    return attempt.kept_s > 0 and attempt.outcome is not Outcome.SUCCEEDED


def _winner(job: Job) -> Attempt | None:
    """Of several copies that succeeded, the first to end."""
    ended = [attempt for attempt in job.attempts if attempt.outcome is Outcome.SUCCEEDED]
    return min(ended, key=lambda attempt: attempt.end, default=None) if job.outcome is Outcome.SUCCEEDED else None


def _transferred(attempt: Attempt) -> bool:
    return any(span.phase in TRANSFERS and span.end > span.start for span in attempt.spans)


def _in_vain(low: int, high: int, moves: Iterable[Move]) -> list[Piece]:
    """The pieces in which only moves were under way that came to nothing."""
    edges: list[tuple[int, int, int]] = []  # when, how many more (or fewer) in vain, how many more whole ones
    for move in moves:
        start, end = max(low, micros(move.start)), min(high, micros(move.start + move.seconds))
        vain, whole = (0, 1) if move.whole else (1, 0)
        edges += [(start, vain, whole), (end, -vain, -whole)] if start < end else []
    found = []
    in_vain = good = at = 0
    for when, vain, whole in sorted(edges):
        if in_vain and not good and when > at:
            found.append((at, when))
        in_vain, good, at = in_vain + vain, good + whole, when
    return found
