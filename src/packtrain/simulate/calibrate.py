"""Derive a pool model from any history that `report` can read (docs/how-to/simulate.md).

Each job is a series of visits to sites: a transfer, with the failed transfers before it, then computing. Probabilities
are shares of visits; durations are fitted to the observed ones, site by site.
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

_SLOT_MARGIN = 1.25  # extra slots, because a job table does not show which slots were used at the same time
_CENSORED_FACTOR = 1.25  # assumed run time of jobs that reached the time limit, as a multiple of the limit
_DEFAULT_TRANSFER_TIMEOUT_S, _DEFAULT_OUTAGE_S, _DEFAULT_MATCH_DELAY_S = 3600.0, 90.0, 60.0  # if the history has none
_MIN_SLOTS = 1
_MAX_PROMPT_WAIT_FACTOR = 2.0  # jobs that waited longer than this multiple of the usual wait had no slot
_UNKNOWN_OUTCOMES = (Outcome.RUNNING, Outcome.LOST, Outcome.REMOVED)
_FINAL_OUTCOMES = (Outcome.HELD, Outcome.TIME_LIMIT, Outcome.WRONG_OUTPUT)
_DAMAGE_MARKERS = ("tar", "archive", "corrupt", "truncat", "checksum", "digest")
_FAILED_OUTCOMES = (Outcome.WRONG_OUTPUT, Outcome.FAILED)


@dataclass(frozen=True)
class _SlotUse:
    """The use of a slot by one execution, whose job was queued since `queued_at`."""

    queued_at: float
    started_at: float
    ended_at: float


@dataclass
class _SiteSamples:
    """Observed values of one site."""

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
    """Return a model of the pool in the history. Raises UsageError if no job of it ran to its end."""
    jobs = [job for job in history.jobs if job.executions and not _has_unknown_end(job)]
    if not any(execution.seconds_in(Phase.EXECUTE) for job in jobs for execution in job.executions):
        raise UsageError(f"{history.name}: none of its jobs ran to the end, so there is nothing to calibrate from")
    return _Calibrator(history, jobs).build_model()


class _Calibrator:
    def __init__(self, history: JobHistory, jobs: Sequence[JobRecord]) -> None:
        self._history, self._jobs = history, jobs
        self._sites: defaultdict[str, _SiteSamples] = defaultdict(_SiteSamples)
        self._time_limit_s = _time_limit_s(jobs)
        self._warm_at = _first_arrivals(jobs) if history.has_timestamps else {}
        self._sites_with_data = {one.site for job in jobs for one in job.executions if _has_data(one)}
        for job in jobs:
            self._add_job(job)
        self._turnover = {
            name: _SlotTurnover.from_slot_uses(samples.slot_uses) for name, samples in self._sites.items()
        }
        self._match_delay = self._estimate_match_delay()

    def build_model(self) -> PoolModel:
        failed_transfers_s = [
            m.duration_s
            for j in self._jobs
            for a in j.executions
            if not _is_hit_by_outage(j, a)
            for m in _failed_transfers(a)
        ]
        sites = self._sites.values()
        compute = [value for samples in sites for value in samples.compute_s]
        transfers = [value for samples in sites for value in (*samples.cold_transfer_s, *samples.warm_transfer_s)]
        defaults = (
            EmpiricalDistribution.from_values(compute),
            EmpiricalDistribution.from_values(transfers) if transfers else ZERO,
        )
        visited = [name for name, samples in self._sites.items() if samples.n_visits]
        names = [name for name in visited if name] or visited
        return PoolModel(
            self._history.name,
            len(self._history.jobs),
            tuple(self._build_site(name, defaults) for name in sorted(names)),
            _estimate_outages(self._history, self._jobs, sum(samples.n_visits for samples in sites)),
            self._match_delay,
            statistics.median(failed_transfers_s) if failed_transfers_s else _DEFAULT_TRANSFER_TIMEOUT_S,
            self._time_limit_s,
            has_shared_caches=self._history.has_timestamps,
            lost_share=1 - len(self._jobs) / len(self._history.jobs),
        )

    # Visits of sites

    def _add_job(self, job: JobRecord) -> None:
        """Add the visits of a job. Logs name no site for executions that never ran; those count for the next site."""
        pending: list[ExecutionRecord] = []
        visited_sites: set[str] = set()
        slot_uses = dict(_slot_uses(job))
        for execution in (one for one in job.executions if not _is_hit_by_outage(job, one)):
            samples = self._sites[execution.site]
            samples.slot_s += execution.duration_s
            samples.n_evictions += execution.outcome is Outcome.EVICTED
            pending.append(execution)
            if _has_data(execution):
                for one in (one for one in pending if one.spans):
                    site = self._sites[one.site] if one.site in self._sites_with_data else samples
                    site.slot_uses.append(slot_uses[one.number])
                stalled = (one for one in pending if one is execution or one.outcome is not Outcome.EVICTED)
                stall_s = sum(transfer.duration_s for one in stalled for transfer in _failed_transfers(one))
                self._add_visit(execution, samples, stall_s, execution.site in visited_sites)
                visited_sites.add(execution.site)
                pending = []

    def _add_visit(self, execution: ExecutionRecord, samples: _SiteSamples, stall_s: float, is_repeat: bool) -> None:
        samples.n_visits += 1
        samples.stall_s += [stall_s] if stall_s else []
        for transfer in input_transfers_of(execution):
            if transfer.complete:
                warm_at = self._warm_at.get(execution.site)
                is_warm = transfer.start >= warm_at if warm_at is not None else is_repeat or stall_s > 0
                (samples.warm_transfer_s if is_warm else samples.cold_transfer_s).append(transfer.duration_s)
        samples.overhead_s.append(execution.seconds_in(Phase.SETUP))
        self._add_compute(execution, samples)

    def _add_compute(self, execution: ExecutionRecord, samples: _SiteSamples) -> None:
        compute_s = execution.seconds_in(Phase.EXECUTE)
        if execution.outcome is Outcome.SUCCEEDED:
            samples.compute_s.append(compute_s)
        elif execution.outcome is Outcome.TIME_LIMIT:
            samples.compute_s.append(compute_s * _CENSORED_FACTOR)
        elif execution.outcome in _FAILED_OUTCOMES and execution.category is not FailureCategory.TRANSFER:
            samples.faults[_fault_kind(execution)].append((compute_s, execution.reason))

    # Sites

    def _build_site(self, name: str, defaults: tuple[EmpiricalDistribution, EmpiricalDistribution]) -> SiteModel:
        samples = self._sites[name]
        cold = (
            EmpiricalDistribution.from_values(samples.cold_transfer_s or samples.warm_transfer_s)
            if samples.cold_transfer_s or samples.warm_transfer_s
            else defaults[1]
        )
        n_slots = self._count_slots(name)
        return SiteModel(
            name or "unknown",
            n_slots,
            EmpiricalDistribution.from_values(samples.compute_s) if samples.compute_s else defaults[0],
            cold,
            EmpiricalDistribution.from_values(samples.warm_transfer_s) if samples.warm_transfer_s else cold,
            len(samples.stall_s) / samples.n_visits,
            EmpiricalDistribution.from_values(samples.stall_s) if samples.stall_s else ZERO,
            samples.n_evictions / samples.slot_s if samples.slot_s else 0.0,
            EmpiricalDistribution.from_values(samples.overhead_s) if samples.overhead_s else ZERO,
            tuple(_estimate_fault(kind, faults, samples.n_visits) for kind, faults in sorted(samples.faults.items())),
            max_streams=n_slots,
            slots_open_at=self._slot_openings(name),
        )

    def _count_slots(self, name: str) -> int:
        """Return the maximum number of slots in use at once; for a job table, the site's share of all jobs."""
        if not self._history.has_timestamps:
            visits = sum(samples.n_visits for samples in self._sites.values())
            return max(_MIN_SLOTS, round(self._sites[name].n_visits / visits * len(self._jobs) * _SLOT_MARGIN))
        return max(_MIN_SLOTS, len(self._turnover[name].openings))

    def _slot_openings(self, name: str) -> EmpiricalDistribution:
        """Return when the site's slots became available; slots that were free at once count as open from the start."""
        first_submit_at, usual_s = (
            min((job.submitted_at or 0.0 for job in self._jobs), default=0.0),
            self._match_delay.mean,
        )
        times = [0.0]
        for slot in self._turnover[name].openings if self._history.has_timestamps else ():
            waited = slot.started_at - slot.queued_at > _MAX_PROMPT_WAIT_FACTOR * usual_s
            times.append(max(times[-1], slot.started_at - first_submit_at - usual_s if waited else 0.0))
        return EmpiricalDistribution.from_values(times[1:]) if times[-1] else ZERO

    def _estimate_match_delay(self) -> EmpiricalDistribution:
        """Fit the shorter half of the waits for reused slots; during longer waits no slot was free."""
        reuse_waits = (
            [wait for turnover in self._turnover.values() for wait in turnover.waits]
            if self._history.has_timestamps
            else []
        )
        waits = sorted(
            reuse_waits or (s.duration_s for job in self._jobs for s in job.waits if s.phase is Phase.QUEUED)
        )
        short = waits[: (len(waits) + 1) // 2]
        return (
            EmpiricalDistribution.from_values(short)
            if short
            else EmpiricalDistribution.from_values([_DEFAULT_MATCH_DELAY_S])
        )


def _slot_uses(job: JobRecord) -> Iterator[tuple[int, _SlotUse]]:
    """Yield (number of the execution, its slot use)."""
    queued_at = job.submitted_at or 0.0
    for execution in job.executions:
        yield execution.number, _SlotUse(queued_at, execution.start, execution.end)
        queued_at = execution.end


@dataclass
class _SlotTurnover:
    """How the slots of a site were opened and reused, and how long jobs waited for free ones."""

    openings: list[_SlotUse] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    @classmethod
    def from_slot_uses(cls, slot_uses: Iterable[_SlotUse]) -> _SlotTurnover:
        """Replay slot uses; the slot that has been free for the longest time is taken first."""
        turnover, free = cls(), deque[float]()
        edges = (edge for slot in slot_uses for edge in ((slot.started_at, 1, slot), (slot.ended_at, 0, slot)))
        for _, is_start, slot in sorted(edges, key=itemgetter(0, 1)):
            if not is_start:
                free.append(slot.ended_at)
            elif free:
                turnover.waits.append(slot.started_at - max(slot.queued_at, free.popleft()))
            else:
                turnover.openings.append(slot)
        return turnover


def _has_unknown_end(job: JobRecord) -> bool:
    """Return whether the job's end is unknown; a job that was removed while held had ended."""
    return job.outcome in _UNKNOWN_OUTCOMES and not (
        job.outcome is Outcome.REMOVED and job.executions[-1].outcome in _FINAL_OUTCOMES
    )


def _time_limit_s(jobs: Iterable[JobRecord]) -> float | None:
    """Return the shortest run time of the jobs that reached the time limit, or None."""
    stopped = [a.seconds_in(Phase.EXECUTE) for job in jobs for a in job.executions if a.outcome is Outcome.TIME_LIMIT]
    return min(stopped) if stopped else None


def _first_arrivals(jobs: Iterable[JobRecord]) -> dict[str, float]:
    """Return when the first complete transfer at each site ended, so its cache had the data."""
    first: dict[str, float] = {}
    for execution in (execution for job in jobs for execution in job.executions):
        for transfer in input_transfers_of(execution):
            if transfer.complete:
                end = transfer.start + transfer.duration_s
                first[execution.site] = min(end, first.get(execution.site, end))
    return first


def _has_data(execution: ExecutionRecord) -> bool:
    """Return whether the execution received its inputs."""
    transfers = input_transfers_of(execution)
    return execution.seconds_in(Phase.EXECUTE) > 0 or any(transfer.complete for transfer in transfers)


def _failed_transfers(execution: ExecutionRecord) -> list[InputTransfer]:
    return [transfer for transfer in input_transfers_of(execution) if not transfer.complete]


def _estimate_fault(kind: str, samples: list[tuple[float, str]], n_visits: int) -> Fault:
    return Fault(
        kind,
        len(samples) / n_visits,
        EmpiricalDistribution.from_values(seconds for seconds, _ in samples),
        samples[0][1],
    )


def _fault_kind(execution: ExecutionRecord) -> str:
    if execution.category is FailureCategory.PROGRAM:
        return PROGRAM
    return DATA if any(marker in execution.reason.lower() for marker in _DAMAGE_MARKERS) else NODE


# Outages


def _is_hit_by_outage(job: JobRecord, execution: ExecutionRecord) -> bool:
    """Return whether a rejected transfer put the job on hold permanently."""
    is_held = execution.outcome is Outcome.HELD and execution.category is FailureCategory.TRANSFER
    is_last = execution is job.executions[-1] and job.outcome is not Outcome.SUCCEEDED
    return is_held and is_last and not execution.seconds_in(Phase.EXECUTE)


def _estimate_outages(history: JobHistory, jobs: Sequence[JobRecord], n_visits: int) -> OutageModel:
    """Find outages as runs of failed transfers, in order of their start (for a job table: of its lines)."""
    transfers = [(execution, _is_hit_by_outage(job, execution)) for job in jobs for execution in job.executions]
    ordered = sorted(transfers, key=lambda one: one[0].start) if history.has_timestamps else transfers
    outages = [[one for one, _ in group] for is_hit, group in groupby(ordered, key=lambda one: one[1]) if is_hit]
    if not outages:
        return OutageModel()
    durations_s = [_outage_duration_s(one) for one in outages] if history.has_timestamps else [_DEFAULT_OUTAGE_S]
    return OutageModel(
        len(outages) / (n_visits + len(outages)),
        EmpiricalDistribution.from_values(map(len, outages)),
        EmpiricalDistribution.from_values(durations_s),
    )


def _outage_duration_s(executions: Sequence[ExecutionRecord]) -> float:
    return max(1.0, max(one.end for one in executions) - min(one.start for one in executions))
