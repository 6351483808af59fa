"""What a pool is like, from what happened in it: any history that `report` can read. docs/how-to/simulate.md says how.

A job's way is seen as visits: a transfer (with those before it that came to nothing), then computing. Chances are
shares of visits, durations are fitted to those that were seen, site by site.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from packtrain.errors import UsageError
from packtrain.report.analysis.input_transfers import moves_of
from packtrain.report.history import Attempt, Category, History, Job, Move, Outcome, Phase
from packtrain.simulate.empirical import NOTHING, Fitted
from packtrain.simulate.pool_model import DATA, MACHINE, PROGRAM, Bursts, Fault, Site, World

_SPARE = 1.25  # slots beyond those that a table shows as used: it does not tell which were used at once
_CENSORED = 1.25  # how much longer than the time limit a job would have taken that reached it
_TIMER_S, _BURST_S, _MATCH_S = 3600.0, 90.0, 60.0  # where nothing tells
_LEAST_SLOTS = 1
_SOON = 2.0  # times the usual wait: one that waited for longer had no slot
_OPEN = (Outcome.RUNNING, Outcome.LOST, Outcome.REMOVED)
_FOR_GOOD = (Outcome.HELD, Outcome.TIME_LIMIT, Outcome.WRONG_OUTPUT)
_DAMAGED = ("tar", "archive", "corrupt", "truncat", "checksum", "digest")
_FAILED = (Outcome.WRONG_OUTPUT, Outcome.FAILED)


@dataclass(frozen=True)
class _Slot:
    """In use by an attempt whose job had waited since then."""

    since: float
    start: float
    end: float


@dataclass
class _Seen:
    """Of one site."""

    visits: int = 0
    seconds: float = 0.0
    evictions: int = 0
    slots: list[_Slot] = field(default_factory=list)
    compute: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    episodes: list[float] = field(default_factory=list)
    overhead: list[float] = field(default_factory=list)
    faults: defaultdict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))


def calibrate(history: History) -> World:
    """Raises UsageError if there is nothing to learn from."""
    known = [job for job in history.jobs if job.attempts and not _is_open(job)]
    if not any(attempt.of(Phase.EXECUTE) for job in known for attempt in job.attempts):
        raise UsageError(f"{history.name}: no job of it ever ran to an end; there is nothing to calibrate from")
    return _Calibration(history, known).world()


class _Calibration:
    def __init__(self, history: History, jobs: Sequence[Job]) -> None:
        self._history, self._jobs = history, jobs
        self._sites: defaultdict[str, _Seen] = defaultdict(_Seen)
        self._limit_s = _limit(jobs)
        self._warm_from = _first_arrivals(jobs) if history.absolute else {}
        self._known = {attempt.site for job in jobs for attempt in job.attempts if _came(attempt)}
        for job in jobs:
            self._take(job)
        self._turns = {name: _Turns.of(seen.slots) for name, seen in self._sites.items()}
        self._match = self._usual_match()

    def world(self) -> World:
        broken = [m.seconds for j in self._jobs for a in j.attempts if not _is_struck(j, a) for m in _broken(a)]
        compute = [value for seen in self._sites.values() for value in seen.compute]
        cold = [value for seen in self._sites.values() for value in (*seen.cold, *seen.warm)]
        usual = Fitted.to(compute), Fitted.to(cold) if cold else NOTHING
        visited = [name for name, seen in self._sites.items() if seen.visits]
        names = [name for name in visited if name] or visited
        return World(
            self._history.name,
            len(self._history.jobs),
            tuple(self._site(name, usual) for name in sorted(names)),
            _bursts(self._history, self._jobs, sum(seen.visits for seen in self._sites.values())),
            self._match,
            statistics.median(broken) if broken else _TIMER_S,
            self._limit_s,
            shares_warmth=self._history.absolute,
            lost=1 - len(self._jobs) / len(self._history.jobs),
        )

    # Visits

    def _take(self, job: Job) -> None:
        """A log names no site of what never ran: then the next one's counts."""
        before: list[Attempt] = []
        been: set[str] = set()
        slots = dict(_slots(job))
        for attempt in (one for one in job.attempts if not _is_struck(job, one)):
            seen = self._sites[attempt.site]
            seen.seconds += attempt.seconds
            seen.evictions += attempt.outcome is Outcome.EVICTED
            before.append(attempt)
            if _came(attempt):
                for one in (one for one in before if one.spans):
                    (self._sites[one.site] if one.site in self._known else seen).slots.append(slots[one.number])
                stalled = (one for one in before if one is attempt or one.outcome is not Outcome.EVICTED)
                episode = sum(move.seconds for one in stalled for move in _broken(one))
                self._visit(attempt, seen, episode, attempt.site in been)
                been.add(attempt.site)
                before = []

    def _visit(self, attempt: Attempt, seen: _Seen, episode: float, been: bool) -> None:
        seen.visits += 1
        seen.episodes += [episode] if episode else []
        for move in moves_of(attempt):
            if move.whole:
                first = self._warm_from.get(attempt.site)
                warm = move.start >= first if first is not None else been or episode > 0
                (seen.warm if warm else seen.cold).append(move.seconds)
        seen.overhead.append(attempt.of(Phase.START))
        self._computed(attempt, seen)

    def _computed(self, attempt: Attempt, seen: _Seen) -> None:
        executed = attempt.of(Phase.EXECUTE)
        if attempt.outcome is Outcome.SUCCEEDED:
            seen.compute.append(executed)
        elif attempt.outcome is Outcome.TIME_LIMIT:
            seen.compute.append(executed * _CENSORED)
        elif attempt.outcome in _FAILED and attempt.category is not Category.TRANSFER:
            seen.faults[_kind(attempt)].append((executed, attempt.reason))

    # Sites

    def _site(self, name: str, usual: tuple[Fitted, Fitted]) -> Site:
        seen = self._sites[name]
        cold = Fitted.to(seen.cold or seen.warm) if seen.cold or seen.warm else usual[1]
        slots = self._slots(name)
        return Site(
            name or "somewhere",
            slots,
            Fitted.to(seen.compute) if seen.compute else usual[0],
            cold,
            Fitted.to(seen.warm) if seen.warm else cold,
            len(seen.episodes) / seen.visits,
            Fitted.to(seen.episodes) if seen.episodes else NOTHING,
            seen.evictions / seen.seconds if seen.seconds else 0.0,
            Fitted.to(seen.overhead) if seen.overhead else NOTHING,
            tuple(_fault(kind, found, seen.visits) for kind, found in sorted(seen.faults.items())),
            streams=slots,
            opens=self._opens(name),
        )

    def _slots(self, name: str) -> int:
        """As many as were ever in use at once; of a table, which does not tell that, its share of the jobs."""
        if not self._history.absolute:
            visits = sum(seen.visits for seen in self._sites.values())
            return max(_LEAST_SLOTS, round(self._sites[name].visits / visits * len(self._jobs) * _SPARE))
        return max(_LEAST_SLOTS, len(self._turns[name].openings))

    def _opens(self, name: str) -> Fitted:
        """When its slots came. What a job got as soon as it asked may have been there before."""
        begins, usual = min((job.submitted or 0.0 for job in self._jobs), default=0.0), self._match.mean
        times = [0.0]
        for slot in self._turns[name].openings if self._history.absolute else ():
            waited = slot.start - slot.since > _SOON * usual
            times.append(max(times[-1], slot.start - begins - usual if waited else 0.0))
        return Fitted.to(times[1:]) if times[-1] else NOTHING

    def _usual_match(self) -> Fitted:
        """The shorter half of the waits for slots that had been in use: for the longer ones there was none free."""
        again = [wait for turns in self._turns.values() for wait in turns.waits] if self._history.absolute else []
        waits = sorted(again or (s.seconds for job in self._jobs for s in job.waits if s.phase is Phase.QUEUED))
        short = waits[: (len(waits) + 1) // 2]
        return Fitted.to(short) if short else Fitted.to([_MATCH_S])


def _slots(job: Job) -> Iterator[tuple[int, _Slot]]:
    """By the number of the attempt that had it."""
    since = job.submitted or 0.0
    for attempt in job.attempts:
        yield attempt.number, _Slot(since, attempt.start, attempt.end)
        since = attempt.end


@dataclass
class _Turns:
    """Of one site's slots: those that came to those that were there, and how long it took to get one that was free."""

    openings: list[_Slot] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, slots: Iterable[_Slot]) -> _Turns:
        """The one that has been free for the longest time is taken first."""
        turns, free = cls(), deque[float]()
        edges = (edge for slot in slots for edge in ((slot.start, 1, slot), (slot.end, 0, slot)))
        for _, begins, slot in sorted(edges, key=itemgetter(0, 1)):
            if not begins:
                free.append(slot.end)
            elif free:
                turns.waits.append(slot.start - max(slot.since, free.popleft()))
            else:
                turns.openings.append(slot)
        return turns


def _is_open(job: Job) -> bool:
    """Nobody knows how it would have ended. One that was removed when it was held had ended."""
    return job.outcome in _OPEN and not (job.outcome is Outcome.REMOVED and job.attempts[-1].outcome in _FOR_GOOD)


def _limit(jobs: Iterable[Job]) -> float | None:
    """What jobs ran that reached it."""
    stopped = [a.of(Phase.EXECUTE) for job in jobs for a in job.attempts if a.outcome is Outcome.TIME_LIMIT]
    return min(stopped) if stopped else None


def _first_arrivals(jobs: Iterable[Job]) -> dict[str, float]:
    """When each site's cache had the data."""
    first: dict[str, float] = {}
    for attempt in (attempt for job in jobs for attempt in job.attempts):
        for move in moves_of(attempt):
            if move.whole:
                end = move.start + move.seconds
                first[attempt.site] = min(end, first.get(attempt.site, end))
    return first


def _came(attempt: Attempt) -> bool:
    """Whether its data did."""
    return attempt.of(Phase.EXECUTE) > 0 or any(move.whole for move in moves_of(attempt))


def _broken(attempt: Attempt) -> list[Move]:
    return [move for move in moves_of(attempt) if not move.whole]


def _fault(kind: str, found: list[tuple[float, str]], visits: int) -> Fault:
    return Fault(kind, len(found) / visits, Fitted.to(seconds for seconds, _ in found), found[0][1])


def _kind(attempt: Attempt) -> str:
    if attempt.category is Category.PROGRAM:
        return PROGRAM
    return DATA if any(word in attempt.reason.lower() for word in _DAMAGED) else MACHINE


# Bursts


def _is_struck(job: Job, attempt: Attempt) -> bool:
    """It was refused, and its job is held for good because of it, or was removed since."""
    held = attempt.outcome is Outcome.HELD and attempt.category is Category.TRANSFER
    last = attempt is job.attempts[-1] and job.outcome is not Outcome.SUCCEEDED
    return held and last and not attempt.of(Phase.EXECUTE)


def _bursts(history: History, jobs: Sequence[Job], visits: int) -> Bursts:
    """Transfers in the order in which they began (of a table: of its lines); those in a row that were struck."""
    begun = [(attempt, _is_struck(job, attempt)) for job in jobs for attempt in job.attempts]
    ordered = sorted(begun, key=lambda one: one[0].start) if history.absolute else begun
    rows = [[a for a, _ in some] for struck, some in groupby(ordered, key=lambda one: one[1]) if struck]
    if not rows:
        return Bursts()
    lasted = [_lasted(row) for row in rows] if history.absolute else [_BURST_S]
    return Bursts(len(rows) / (visits + len(rows)), Fitted.to(map(len, rows)), Fitted.to(lasted))


def _lasted(row: Sequence[Attempt]) -> float:
    return max(1.0, max(a.end for a in row) - min(a.start for a in row))
