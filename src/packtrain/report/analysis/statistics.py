"""The figures of a history: how much, how long, how fast, what was lost to what. Pure.

Seconds are those of slots unless said otherwise; quantiles are defined in `spread`. None means: it cannot be told.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packtrain.report.analysis.by_site import (
    SiteFigures,
    SpeedFigures,
    fastest_compute,
    fastest_transfer,
    in_seconds,
    sites_of,
    speeds_of,
)
from packtrain.report.analysis.distribution import Spread, spread_of
from packtrain.report.analysis.input_transfers import arrivals_of, stalls_of
from packtrain.report.analysis.time_accounting import MICRO, OPEN, USEFUL, JobAccount, Share, accounts_of, summed
from packtrain.report.history import Attempt, Category, History, Job, Outcome, Phase

__all__ = ["FailureFigures", "Figures", "JobFigures", "SiteFigures", "SpeedFigures", "Spread", "figures_of"]

FINE = OPEN | {Outcome.SUCCEEDED}
_MOVING = frozenset({Phase.TRANSFER_IN, Phase.UNPACK, Phase.TRANSFER_OUT})


@dataclass(frozen=True)
class FailureFigures:
    category: Category
    count: int
    fraction: float  # of all failures
    seconds: float  # of their slots
    reason: str  # the most frequent one
    reason_count: int  # how often


@dataclass(frozen=True)
class JobFigures:
    """One row of the table of jobs."""

    job: str
    outcome: Outcome
    category: Category
    reason: str
    sites: tuple[str, ...]  # in the order in which it came to them
    attempts: int
    stalls: int  # transfers of inputs that came to nothing
    completion_s: float | None  # first match to completion
    queued_s: float  # outside of slots
    held_s: float
    seconds: float  # of slots
    shares: Mapping[Share, float]  # seconds
    checked: bool | None  # whether somebody looked at its outputs


@dataclass(frozen=True)
class Figures:
    name: str
    kind: str  # run, log, table, simulation
    jobs: int
    attempts: int  # stays on slots
    outcomes: Mapping[Outcome, int]  # how many jobs ended so
    wallclock_s: float  # of all slots
    gpu_s: float | None  # seconds times GPUs
    makespan_s: float | None  # first submission to last end
    shares: Mapping[Share, float]  # seconds; they add up to the wallclock
    success_rate: float | None  # of jobs that ended
    compute_share: float | None  # useful compute, of the wallclock
    useful_share: float | None  # useful compute and useful transfer, of the wallclock
    transfer_overhead: float | None  # useful transfer, of useful compute
    lost_to_failed_s: float  # all seconds of jobs that ended without success
    held_in_transfer: int  # jobs held for good in transfer or unpacking
    held_in_compute: int  # the same, while the program ran
    held_elsewhere: int  # the same, while they waited for a slot, or where nobody can tell
    waiting: Spread | None  # submission to first match, seconds
    completion: Spread | None  # first match to completion, of jobs that succeeded
    tail_p95: float | None  # p95 / median of it
    tail_max: float | None  # longest / median of it
    retries: int  # attempts beyond the first of each job
    jobs_retried: int  # that had more than one attempt
    most_retries: int  # of one job
    stalls: int  # transfers of inputs that came to nothing
    unchecked: int  # jobs that succeeded, but nobody looked at their outputs
    failures: tuple[FailureFigures, ...]  # of jobs, the most frequent first
    troubles: tuple[FailureFigures, ...]  # of attempts
    sites: tuple[SiteFigures, ...]  # the one with most seconds first
    speeds: tuple[SpeedFigures, ...]
    fastest_transfer: str | None  # the site
    fastest_compute: str | None  # the same
    rows: tuple[JobFigures, ...]  # in the order of the history
    accounts: tuple[JobAccount, ...] = field(repr=False)  # the same, by attempt

    @property
    def ended(self) -> int:
        return self.jobs - sum(self.outcomes.get(outcome, 0) for outcome in OPEN)

    @property
    def succeeded(self) -> int:
        return self.outcomes.get(Outcome.SUCCEEDED, 0)

    @property
    def failed(self) -> int:
        """Ended, but not with success."""
        return self.ended - self.succeeded

    def part(self, *shares: Share) -> float | None:
        """Of the wallclock."""
        return _ratio(sum(self.shares.get(share, 0.0) for share in shares), self.wallclock_s)


def figures_of(history: History) -> Figures:
    accounts = accounts_of(history)
    micros = summed(account.micros for account in accounts)
    wallclock = sum(micros.values())
    outcomes = Counter(job.outcome for job in history.jobs)
    arrivals = arrivals_of(history)
    sites = sites_of(accounts, arrivals)
    completion = spread_of(found for job in history.jobs if (found := _completion(job)) is not None)
    retried = [len(job.attempts) - 1 for job in history.jobs if len(job.attempts) > 1]
    rows = tuple(_row(account) for account in accounts)
    held = [job.held_in for job in history.jobs if _is_held(job)]
    return Figures(
        name=history.name,
        kind=history.kind,
        jobs=len(history.jobs),
        attempts=sum(len(job.attempts) for job in history.jobs),
        outcomes=outcomes,
        wallclock_s=wallclock / MICRO,
        gpu_s=_gpu_seconds(history.attempts()),
        makespan_s=_makespan(history),
        shares=in_seconds(micros),
        success_rate=_ratio(outcomes[Outcome.SUCCEEDED], sum(job.outcome not in OPEN for job in history.jobs)),
        compute_share=_ratio(micros.get(Share.COMPUTE, 0), wallclock),
        useful_share=_ratio(sum(micros.get(share, 0) for share in USEFUL), wallclock),
        transfer_overhead=_ratio(micros.get(Share.TRANSFER, 0), micros.get(Share.COMPUTE, 0)),
        lost_to_failed_s=math.fsum(row.seconds for row in rows if row.outcome not in FINE),
        held_in_transfer=sum(phase in _MOVING for phase in held),
        held_in_compute=sum(phase is Phase.EXECUTE for phase in held),
        held_elsewhere=sum(phase not in _MOVING and phase is not Phase.EXECUTE for phase in held),
        waiting=spread_of(found for job in history.jobs if (found := _waiting(job)) is not None),
        completion=completion,
        tail_p95=_ratio(completion.p95, completion.median) if completion else None,
        tail_max=_ratio(completion.high, completion.median) if completion else None,
        retries=sum(retried),
        jobs_retried=len(retried),
        most_retries=max(retried, default=0),
        stalls=sum(row.stalls for row in rows),
        unchecked=sum(job.outcome is Outcome.SUCCEEDED and job.checked is not True for job in history.jobs),
        failures=_failures([(job, row.seconds) for job, row in zip(history.jobs, rows, strict=True)]),
        troubles=_failures([(attempt, attempt.seconds) for attempt in history.attempts()]),
        sites=sites,
        speeds=speeds_of(arrivals),
        fastest_transfer=fastest_transfer(sites),
        fastest_compute=fastest_compute(sites),
        rows=rows,
        accounts=accounts,
    )


def _is_held(job: Job) -> bool:
    """For good. Wrong outputs and limits are told by others than holds, too: there, its phase is the sign."""
    return job.outcome is Outcome.HELD or (job.held_in is not None and job.outcome not in FINE)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _gpu_seconds(attempts: Iterable[Attempt]) -> float | None:
    told = [attempt.gpus * attempt.seconds for attempt in attempts if attempt.gpus]
    return sum(told) if told else None


def _makespan(history: History) -> float | None:
    """Of tables without times of day nothing is known across jobs."""
    starts = [start for job in history.jobs if (start := _beginning(job)) is not None]
    ends = [end for job in history.jobs if (end := _end(job)) is not None]
    return max(ends) - min(starts) if history.absolute and starts and ends else None


def _beginning(job: Job) -> float | None:
    return job.submitted if job.submitted is not None else _first_match(job)


def _end(job: Job) -> float | None:
    return job.ended if job.ended is not None else max((attempt.end for attempt in job.attempts), default=None)


def _first_match(job: Job) -> float | None:
    return min((attempt.start for attempt in job.attempts if attempt.spans), default=None)


def _completion(job: Job) -> float | None:
    start, end = _first_match(job), _end(job)
    return end - start if job.outcome is Outcome.SUCCEEDED and start is not None and end is not None else None


def _waiting(job: Job) -> float | None:
    start = _first_match(job)
    return max(0.0, start - job.submitted) if start is not None and job.submitted is not None else None


def _row(account: JobAccount) -> JobFigures:
    job, micros = account.job, account.micros
    return JobFigures(
        job.id,
        job.outcome,
        job.category,
        job.reason,
        tuple(dict.fromkeys(attempt.site for attempt in job.attempts if attempt.site)),
        len(job.attempts),
        stalls_of(job),
        _completion(job),
        sum(span.seconds for span in job.waits if span.phase is Phase.QUEUED),
        sum(span.seconds for span in job.waits if span.phase is Phase.HELD),
        sum(micros.values()) / MICRO,
        in_seconds(micros),
        job.checked,
    )


def _failures(ended: Sequence[tuple[Job | Attempt, float]]) -> tuple[FailureFigures, ...]:
    groups: defaultdict[Category, list[tuple[str, float]]] = defaultdict(list)
    for one, seconds in ended:
        if one.outcome not in FINE:
            groups[one.category or Category.UNKNOWN].append((one.reason, seconds))
    total = sum(len(group) for group in groups.values())
    found = (_failure(category, group, total) for category, group in groups.items())
    return tuple(sorted(found, key=lambda failure: (-failure.count, failure.category)))


def _failure(category: Category, group: list[tuple[str, float]], total: int) -> FailureFigures:
    reasons = Counter(reason for reason, _ in group if reason)
    reason, often = reasons.most_common(1)[0] if reasons else ("", 0)
    return FailureFigures(category, len(group), len(group) / total, sum(seconds for _, seconds in group), reason, often)
