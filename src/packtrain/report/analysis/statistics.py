"""The figures of a history: how much, how long, how fast, what was lost to what. Pure.

Seconds are those of slots unless said otherwise; quantiles are defined in `spread`. None means: it cannot be told.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packtrain.report.analysis.by_site import (
    SiteSummary,
    TransferSummary,
    find_fastest_compute_site,
    find_fastest_transfer_site,
    summarize_sites,
    summarize_transfers,
    time_use_in_seconds,
)
from packtrain.report.analysis.distribution import Distribution, describe
from packtrain.report.analysis.input_transfers import collect_site_transfers, count_failed_transfers
from packtrain.report.analysis.time_accounting import (
    UNFINISHED_OUTCOMES,
    US_PER_S,
    USEFUL,
    JobTimeUse,
    TimeUse,
    account_history,
    sum_time_use,
)
from packtrain.report.history import ExecutionRecord, FailureCategory, JobHistory, JobRecord, Outcome, Phase

__all__ = [
    "Distribution",
    "FailureSummary",
    "JobSummary",
    "ReportStats",
    "SiteSummary",
    "TransferSummary",
    "compute_stats",
]

NOT_FAILED_OUTCOMES = UNFINISHED_OUTCOMES | {Outcome.SUCCEEDED}
_TRANSFER_PHASES = frozenset({Phase.TRANSFER_IN, Phase.UNPACK, Phase.TRANSFER_OUT})


@dataclass(frozen=True)
class FailureSummary:
    category: FailureCategory
    count: int
    fraction: float  # of all failures
    slot_s: float  # of their slots
    reason: str  # the most frequent one
    reason_count: int  # how often


@dataclass(frozen=True)
class JobSummary:
    """One row of the table of jobs."""

    job: str
    outcome: Outcome
    category: FailureCategory
    reason: str
    sites: tuple[str, ...]  # in the order in which it came to them
    executions: int
    failed_transfers: int  # transfers of inputs that came to nothing
    completion_s: float | None  # first match to completion
    queued_s: float  # outside of slots
    held_s: float
    slot_s: float  # of slots
    time_use_s: Mapping[TimeUse, float]  # seconds
    outputs_checked: bool | None  # whether somebody looked at its outputs


@dataclass(frozen=True)
class ReportStats:
    name: str
    kind: str  # run, log, table, simulation
    jobs: int
    executions: int  # stays on slots
    outcomes: Mapping[Outcome, int]  # how many jobs ended so
    wallclock_s: float  # of all slots
    gpu_s: float | None  # seconds times GPUs
    makespan_s: float | None  # first submission to last end
    time_use_s: Mapping[TimeUse, float]  # seconds; they add up to the wallclock
    success_rate: float | None  # of jobs that ended
    compute_share: float | None  # useful compute, of the wallclock
    useful_share: float | None  # useful compute and useful transfer, of the wallclock
    transfer_overhead: float | None  # useful transfer, of useful compute
    failed_jobs_s: float  # all seconds of jobs that ended without success
    held_in_transfer: int  # jobs held for good in transfer or unpacking
    held_in_compute: int  # the same, while the program ran
    held_elsewhere: int  # the same, while they waited for a slot, or where nobody can tell
    queue_wait_s: Distribution | None  # submission to first match, seconds
    completion_s: Distribution | None  # first match to completion, of jobs that succeeded
    p95_over_median: float | None  # p95 / median of it
    max_over_median: float | None  # longest / median of it
    retries: int  # attempts beyond the first of each job
    retried_jobs: int  # that had more than one attempt
    max_retries: int  # of one job
    failed_transfers: int  # transfers of inputs that came to nothing
    unchecked_jobs: int  # jobs that succeeded, but nobody looked at their outputs
    job_failures: tuple[FailureSummary, ...]  # of jobs, the most frequent first
    execution_failures: tuple[FailureSummary, ...]  # of attempts
    sites: tuple[SiteSummary, ...]  # the one with most seconds first
    transfers: tuple[TransferSummary, ...]
    fastest_transfer_site: str | None  # the site
    fastest_compute_site: str | None  # the same
    job_summaries: tuple[JobSummary, ...]  # in the order of the history
    job_time_use: tuple[JobTimeUse, ...] = field(repr=False)  # the same, by attempt

    @property
    def ended_jobs(self) -> int:
        return self.jobs - sum(self.outcomes.get(outcome, 0) for outcome in UNFINISHED_OUTCOMES)

    @property
    def succeeded_jobs(self) -> int:
        return self.outcomes.get(Outcome.SUCCEEDED, 0)

    @property
    def failed_jobs(self) -> int:
        """Ended, but not with success."""
        return self.ended_jobs - self.succeeded_jobs

    def fraction_of_wallclock(self, *uses: TimeUse) -> float | None:
        """Of the wallclock."""
        return _ratio(sum(self.time_use_s.get(share, 0.0) for share in uses), self.wallclock_s)


def compute_stats(history: JobHistory) -> ReportStats:
    accounts = account_history(history)
    micros = sum_time_use(account.time_use_us for account in accounts)
    wallclock = sum(micros.values())
    outcomes = Counter(job.outcome for job in history.jobs)
    arrivals = collect_site_transfers(history)
    sites = summarize_sites(accounts, arrivals)
    completion = describe(found for job in history.jobs if (found := _completion_s(job)) is not None)
    retried = [len(job.executions) - 1 for job in history.jobs if len(job.executions) > 1]
    rows = tuple(_summarize_job(account) for account in accounts)
    held = [job.held_in_phase for job in history.jobs if _is_held(job)]
    return ReportStats(
        name=history.name,
        kind=history.kind,
        jobs=len(history.jobs),
        executions=sum(len(job.executions) for job in history.jobs),
        outcomes=outcomes,
        wallclock_s=wallclock / US_PER_S,
        gpu_s=_sum_gpu_s(history.executions()),
        makespan_s=_makespan_s(history),
        time_use_s=time_use_in_seconds(micros),
        success_rate=_ratio(
            outcomes[Outcome.SUCCEEDED], sum(job.outcome not in UNFINISHED_OUTCOMES for job in history.jobs)
        ),
        compute_share=_ratio(micros.get(TimeUse.USEFUL_COMPUTE, 0), wallclock),
        useful_share=_ratio(sum(micros.get(share, 0) for share in USEFUL), wallclock),
        transfer_overhead=_ratio(micros.get(TimeUse.USEFUL_TRANSFER, 0), micros.get(TimeUse.USEFUL_COMPUTE, 0)),
        failed_jobs_s=math.fsum(row.slot_s for row in rows if row.outcome not in NOT_FAILED_OUTCOMES),
        held_in_transfer=sum(phase in _TRANSFER_PHASES for phase in held),
        held_in_compute=sum(phase is Phase.EXECUTE for phase in held),
        held_elsewhere=sum(phase not in _TRANSFER_PHASES and phase is not Phase.EXECUTE for phase in held),
        queue_wait_s=describe(found for job in history.jobs if (found := _queue_wait_s(job)) is not None),
        completion_s=completion,
        p95_over_median=_ratio(completion.p95, completion.median) if completion else None,
        max_over_median=_ratio(completion.maximum, completion.median) if completion else None,
        retries=sum(retried),
        retried_jobs=len(retried),
        max_retries=max(retried, default=0),
        failed_transfers=sum(row.failed_transfers for row in rows),
        unchecked_jobs=sum(
            job.outcome is Outcome.SUCCEEDED and job.outputs_checked is not True for job in history.jobs
        ),
        job_failures=_summarize_failures([(job, row.slot_s) for job, row in zip(history.jobs, rows, strict=True)]),
        execution_failures=_summarize_failures([(attempt, attempt.duration_s) for attempt in history.executions()]),
        sites=sites,
        transfers=summarize_transfers(arrivals),
        fastest_transfer_site=find_fastest_transfer_site(sites),
        fastest_compute_site=find_fastest_compute_site(sites),
        job_summaries=rows,
        job_time_use=accounts,
    )


def _is_held(job: JobRecord) -> bool:
    """For good. Wrong outputs and limits are told by others than holds, too: there, its phase is the sign."""
    return job.outcome is Outcome.HELD or (job.held_in_phase is not None and job.outcome not in NOT_FAILED_OUTCOMES)


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None


def _sum_gpu_s(executions: Iterable[ExecutionRecord]) -> float | None:
    told = [attempt.gpus * attempt.duration_s for attempt in executions if attempt.gpus]
    return sum(told) if told else None


def _makespan_s(history: JobHistory) -> float | None:
    """Of tables without times of day nothing is known across jobs."""
    starts = [start for job in history.jobs if (start := _started_at(job)) is not None]
    ends = [end for job in history.jobs if (end := _ended_at(job)) is not None]
    return max(ends) - min(starts) if history.has_timestamps and starts and ends else None


def _started_at(job: JobRecord) -> float | None:
    return job.submitted_at if job.submitted_at is not None else _first_match_at(job)


def _ended_at(job: JobRecord) -> float | None:
    return job.ended_at if job.ended_at is not None else max((attempt.end for attempt in job.executions), default=None)


def _first_match_at(job: JobRecord) -> float | None:
    return min((attempt.start for attempt in job.executions if attempt.spans), default=None)


def _completion_s(job: JobRecord) -> float | None:
    start, end = _first_match_at(job), _ended_at(job)
    return end - start if job.outcome is Outcome.SUCCEEDED and start is not None and end is not None else None


def _queue_wait_s(job: JobRecord) -> float | None:
    start = _first_match_at(job)
    return max(0.0, start - job.submitted_at) if start is not None and job.submitted_at is not None else None


def _summarize_job(job_time: JobTimeUse) -> JobSummary:
    job, micros = job_time.job, job_time.time_use_us
    return JobSummary(
        job.id,
        job.outcome,
        job.category,
        job.reason,
        tuple(dict.fromkeys(attempt.site for attempt in job.executions if attempt.site)),
        len(job.executions),
        count_failed_transfers(job),
        _completion_s(job),
        sum(span.duration_s for span in job.waits if span.phase is Phase.QUEUED),
        sum(span.duration_s for span in job.waits if span.phase is Phase.HELD),
        sum(micros.values()) / US_PER_S,
        time_use_in_seconds(micros),
        job.outputs_checked,
    )


def _summarize_failures(ended: Sequence[tuple[JobRecord | ExecutionRecord, float]]) -> tuple[FailureSummary, ...]:
    groups: defaultdict[FailureCategory, list[tuple[str, float]]] = defaultdict(list)
    for one, seconds in ended:
        if one.outcome not in NOT_FAILED_OUTCOMES:
            groups[one.category or FailureCategory.UNKNOWN].append((one.reason, seconds))
    total = sum(len(group) for group in groups.values())
    found = (_summarize_category(category, group, total) for category, group in groups.items())
    return tuple(sorted(found, key=lambda failure: (-failure.count, failure.category)))


def _summarize_category(category: FailureCategory, group: list[tuple[str, float]], total: int) -> FailureSummary:
    reasons = Counter(reason for reason, _ in group if reason)
    reason, often = reasons.most_common(1)[0] if reasons else ("", 0)
    return FailureSummary(category, len(group), len(group) / total, sum(seconds for _, seconds in group), reason, often)
