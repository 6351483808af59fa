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
from packtrain.report.analysis.input_transfers import input_transfers_of
from packtrain.report.history import (
    ExecutionRecord,
    FailureCategory,
    InputTransfer,
    JobHistory,
    JobRecord,
    Outcome,
    Phase,
)
from packtrain.simulate.empirical import ZERO, EmpiricalDistribution
from packtrain.simulate.pool_model import DATA, NODE, PROGRAM, Fault, OutageModel, PoolModel, SiteModel

_SLOT_MARGIN = 1.25  # slots beyond those that a table shows as used: it does not tell which were used at once
_CENSORED_FACTOR = 1.25  # how much longer than the time limit a job would have taken that reached it
_DEFAULT_TRANSFER_TIMEOUT_S, _DEFAULT_OUTAGE_S, _DEFAULT_MATCH_DELAY_S = 3600.0, 90.0, 60.0  # where nothing tells
_MIN_SLOTS = 1
_MAX_PROMPT_WAIT_FACTOR = 2.0  # times the usual wait: one that waited for longer had no slot
_UNKNOWN_OUTCOMES = (Outcome.RUNNING, Outcome.LOST, Outcome.REMOVED)
_FINAL_OUTCOMES = (Outcome.HELD, Outcome.TIME_LIMIT, Outcome.WRONG_OUTPUT)
_DAMAGE_MARKERS = ("tar", "archive", "corrupt", "truncat", "checksum", "digest")
_FAILED_OUTCOMES = (Outcome.WRONG_OUTPUT, Outcome.FAILED)


@dataclass(frozen=True)
class _SlotUse:
    """In use by an attempt whose job had waited since then."""

    queued_at: float
    started_at: float
    ended_at: float


@dataclass
class _SiteSamples:
    """Of one site."""

    n_visits: int = 0
    slot_s: float = 0.0
    n_evictions: int = 0
    slot_uses: list[_SlotUse] = field(default_factory=list)
    compute_s: list[float] = field(default_factory=list)
    cold_transfer_s: list[float] = field(default_factory=list)
    warm_transfer_s: list[float] = field(default_factory=list)
    stall_s: list[float] = field(default_factory=list)
    overhead_s: list[float] = field(default_factory=list)
    faults: defaultdict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))


def calibrate(history: JobHistory) -> PoolModel:
    """Raises UsageError if there is nothing to learn from."""
    known = [job for job in history.jobs if job.executions and not _has_unknown_end(job)]
    if not any(attempt.seconds_in(Phase.EXECUTE) for job in known for attempt in job.executions):
        raise UsageError(f"{history.name}: no job of it ever ran to an end; there is nothing to calibrate from")
    return _Calibrator(history, known).build_model()


class _Calibrator:
    def __init__(self, history: JobHistory, jobs: Sequence[JobRecord]) -> None:
        self._history, self._jobs = history, jobs
        self._sites: defaultdict[str, _SiteSamples] = defaultdict(_SiteSamples)
        self._time_limit_s = _time_limit_s(jobs)
        self._warm_at = _first_arrivals(jobs) if history.has_timestamps else {}
        self._sites_with_data = {attempt.site for job in jobs for attempt in job.executions if _has_data(attempt)}
        for job in jobs:
            self._add_job(job)
        self._turnover = {name: _SlotTurnover.from_slot_uses(seen.slot_uses) for name, seen in self._sites.items()}
        self._match_delay = self._estimate_match_delay()

    def build_model(self) -> PoolModel:
        broken = [
            m.duration_s
            for j in self._jobs
            for a in j.executions
            if not _is_hit_by_outage(j, a)
            for m in _failed_transfers(a)
        ]
        compute = [value for seen in self._sites.values() for value in seen.compute_s]
        cold = [value for seen in self._sites.values() for value in (*seen.cold_transfer_s, *seen.warm_transfer_s)]
        usual = EmpiricalDistribution.from_values(compute), EmpiricalDistribution.from_values(cold) if cold else ZERO
        visited = [name for name, seen in self._sites.items() if seen.n_visits]
        names = [name for name in visited if name] or visited
        return PoolModel(
            self._history.name,
            len(self._history.jobs),
            tuple(self._build_site(name, usual) for name in sorted(names)),
            _estimate_outages(self._history, self._jobs, sum(seen.n_visits for seen in self._sites.values())),
            self._match_delay,
            statistics.median(broken) if broken else _DEFAULT_TRANSFER_TIMEOUT_S,
            self._time_limit_s,
            has_shared_caches=self._history.has_timestamps,
            lost_share=1 - len(self._jobs) / len(self._history.jobs),
        )

    # Visits

    def _add_job(self, job: JobRecord) -> None:
        """A log names no site of what never ran: then the next one's counts."""
        before: list[ExecutionRecord] = []
        been: set[str] = set()
        slots = dict(_slot_uses(job))
        for attempt in (one for one in job.executions if not _is_hit_by_outage(job, one)):
            seen = self._sites[attempt.site]
            seen.slot_s += attempt.duration_s
            seen.n_evictions += attempt.outcome is Outcome.EVICTED
            before.append(attempt)
            if _has_data(attempt):
                for one in (one for one in before if one.spans):
                    (self._sites[one.site] if one.site in self._sites_with_data else seen).slot_uses.append(
                        slots[one.number]
                    )
                stalled = (one for one in before if one is attempt or one.outcome is not Outcome.EVICTED)
                episode = sum(move.duration_s for one in stalled for move in _failed_transfers(one))
                self._add_visit(attempt, seen, episode, attempt.site in been)
                been.add(attempt.site)
                before = []

    def _add_visit(self, attempt: ExecutionRecord, samples: _SiteSamples, stall_s: float, is_repeat: bool) -> None:
        samples.n_visits += 1
        samples.stall_s += [stall_s] if stall_s else []
        for move in input_transfers_of(attempt):
            if move.complete:
                first = self._warm_at.get(attempt.site)
                warm = move.start >= first if first is not None else is_repeat or stall_s > 0
                (samples.warm_transfer_s if warm else samples.cold_transfer_s).append(move.duration_s)
        samples.overhead_s.append(attempt.seconds_in(Phase.SETUP))
        self._add_compute(attempt, samples)

    def _add_compute(self, attempt: ExecutionRecord, samples: _SiteSamples) -> None:
        executed = attempt.seconds_in(Phase.EXECUTE)
        if attempt.outcome is Outcome.SUCCEEDED:
            samples.compute_s.append(executed)
        elif attempt.outcome is Outcome.TIME_LIMIT:
            samples.compute_s.append(executed * _CENSORED_FACTOR)
        elif attempt.outcome in _FAILED_OUTCOMES and attempt.category is not FailureCategory.TRANSFER:
            samples.faults[_fault_kind(attempt)].append((executed, attempt.reason))

    # Sites

    def _build_site(self, name: str, defaults: tuple[EmpiricalDistribution, EmpiricalDistribution]) -> SiteModel:
        seen = self._sites[name]
        cold = (
            EmpiricalDistribution.from_values(seen.cold_transfer_s or seen.warm_transfer_s)
            if seen.cold_transfer_s or seen.warm_transfer_s
            else defaults[1]
        )
        slots = self._count_slots(name)
        return SiteModel(
            name or "somewhere",
            slots,
            EmpiricalDistribution.from_values(seen.compute_s) if seen.compute_s else defaults[0],
            cold,
            EmpiricalDistribution.from_values(seen.warm_transfer_s) if seen.warm_transfer_s else cold,
            len(seen.stall_s) / seen.n_visits,
            EmpiricalDistribution.from_values(seen.stall_s) if seen.stall_s else ZERO,
            seen.n_evictions / seen.slot_s if seen.slot_s else 0.0,
            EmpiricalDistribution.from_values(seen.overhead_s) if seen.overhead_s else ZERO,
            tuple(_estimate_fault(kind, found, seen.n_visits) for kind, found in sorted(seen.faults.items())),
            max_streams=slots,
            slots_open_at=self._slot_openings(name),
        )

    def _count_slots(self, name: str) -> int:
        """As many as were ever in use at once; of a table, which does not tell that, its share of the jobs."""
        if not self._history.has_timestamps:
            visits = sum(seen.n_visits for seen in self._sites.values())
            return max(_MIN_SLOTS, round(self._sites[name].n_visits / visits * len(self._jobs) * _SLOT_MARGIN))
        return max(_MIN_SLOTS, len(self._turnover[name].openings))

    def _slot_openings(self, name: str) -> EmpiricalDistribution:
        """When its slots came. What a job got as soon as it asked may have been there before."""
        begins, usual = min((job.submitted_at or 0.0 for job in self._jobs), default=0.0), self._match_delay.mean
        times = [0.0]
        for slot in self._turnover[name].openings if self._history.has_timestamps else ():
            waited = slot.started_at - slot.queued_at > _MAX_PROMPT_WAIT_FACTOR * usual
            times.append(max(times[-1], slot.started_at - begins - usual if waited else 0.0))
        return EmpiricalDistribution.from_values(times[1:]) if times[-1] else ZERO

    def _estimate_match_delay(self) -> EmpiricalDistribution:
        """The shorter half of the waits for slots that had been in use: for the longer ones there was none free."""
        again = (
            [wait for turns in self._turnover.values() for wait in turns.waits] if self._history.has_timestamps else []
        )
        waits = sorted(again or (s.duration_s for job in self._jobs for s in job.waits if s.phase is Phase.QUEUED))
        short = waits[: (len(waits) + 1) // 2]
        return (
            EmpiricalDistribution.from_values(short)
            if short
            else EmpiricalDistribution.from_values([_DEFAULT_MATCH_DELAY_S])
        )


def _slot_uses(job: JobRecord) -> Iterator[tuple[int, _SlotUse]]:
    """By the number of the attempt that had it."""
    since = job.submitted_at or 0.0
    for attempt in job.executions:
        yield attempt.number, _SlotUse(since, attempt.start, attempt.end)
        since = attempt.end


@dataclass
class _SlotTurnover:
    """Of one site's slots: those that came to those that were there, and how long it took to get one that was free."""

    openings: list[_SlotUse] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    @classmethod
    def from_slot_uses(cls, slot_uses: Iterable[_SlotUse]) -> _SlotTurnover:
        """The one that has been free for the longest time is taken first."""
        turns, free = cls(), deque[float]()
        edges = (edge for slot in slot_uses for edge in ((slot.started_at, 1, slot), (slot.ended_at, 0, slot)))
        for _, begins, slot in sorted(edges, key=itemgetter(0, 1)):
            if not begins:
                free.append(slot.ended_at)
            elif free:
                turns.waits.append(slot.started_at - max(slot.queued_at, free.popleft()))
            else:
                turns.openings.append(slot)
        return turns


def _has_unknown_end(job: JobRecord) -> bool:
    """Nobody knows how it would have ended. One that was removed when it was held had ended."""
    return job.outcome in _UNKNOWN_OUTCOMES and not (
        job.outcome is Outcome.REMOVED and job.executions[-1].outcome in _FINAL_OUTCOMES
    )


def _time_limit_s(jobs: Iterable[JobRecord]) -> float | None:
    """What jobs ran that reached it."""
    stopped = [a.seconds_in(Phase.EXECUTE) for job in jobs for a in job.executions if a.outcome is Outcome.TIME_LIMIT]
    return min(stopped) if stopped else None


def _first_arrivals(jobs: Iterable[JobRecord]) -> dict[str, float]:
    """When each site's cache had the data."""
    first: dict[str, float] = {}
    for attempt in (attempt for job in jobs for attempt in job.executions):
        for move in input_transfers_of(attempt):
            if move.complete:
                end = move.start + move.duration_s
                first[attempt.site] = min(end, first.get(attempt.site, end))
    return first


def _has_data(attempt: ExecutionRecord) -> bool:
    """Whether its data did."""
    return attempt.seconds_in(Phase.EXECUTE) > 0 or any(move.complete for move in input_transfers_of(attempt))


def _failed_transfers(attempt: ExecutionRecord) -> list[InputTransfer]:
    return [move for move in input_transfers_of(attempt) if not move.complete]


def _estimate_fault(kind: str, samples: list[tuple[float, str]], n_visits: int) -> Fault:
    return Fault(
        kind,
        len(samples) / n_visits,
        EmpiricalDistribution.from_values(seconds for seconds, _ in samples),
        samples[0][1],
    )


def _fault_kind(attempt: ExecutionRecord) -> str:
    if attempt.category is FailureCategory.PROGRAM:
        return PROGRAM
    return DATA if any(word in attempt.reason.lower() for word in _DAMAGE_MARKERS) else NODE


# Bursts


def _is_hit_by_outage(job: JobRecord, attempt: ExecutionRecord) -> bool:
    """It was refused, and its job is held for good because of it, or was removed since."""
    held = attempt.outcome is Outcome.HELD and attempt.category is FailureCategory.TRANSFER
    last = attempt is job.executions[-1] and job.outcome is not Outcome.SUCCEEDED
    return held and last and not attempt.seconds_in(Phase.EXECUTE)


def _estimate_outages(history: JobHistory, jobs: Sequence[JobRecord], n_visits: int) -> OutageModel:
    """Transfers in the order in which they began (of a table: of its lines); those in a row that were struck."""
    begun = [(attempt, _is_hit_by_outage(job, attempt)) for job in jobs for attempt in job.executions]
    ordered = sorted(begun, key=lambda one: one[0].start) if history.has_timestamps else begun
    rows = [[a for a, _ in some] for struck, some in groupby(ordered, key=lambda one: one[1]) if struck]
    if not rows:
        return OutageModel()
    lasted = [_outage_duration_s(row) for row in rows] if history.has_timestamps else [_DEFAULT_OUTAGE_S]
    return OutageModel(
        len(rows) / (n_visits + len(rows)),
        EmpiricalDistribution.from_values(map(len, rows)),
        EmpiricalDistribution.from_values(lasted),
    )


def _outage_duration_s(attempts: Sequence[ExecutionRecord]) -> float:
    return max(1.0, max(a.end for a in attempts) - min(a.start for a in attempts))
