"""Computes the statistics of a history: slot time by use, completion times, failures, sites and transfers.

Seconds are slot seconds unless noted otherwise. Quantiles are defined in `distribution`. None means unknown.
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
from packtrain.report.analysis.resource_use import Efficiency, StateSummary, summarize_efficiency, summarize_states
from packtrain.report.analysis.time_accounting import (
    TRANSFER_PHASES,
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
    "Efficiency",
    "FailureSummary",
    "JobSummary",
    "ReportStats",
    "SiteSummary",
    "StateSummary",
    "TransferSummary",
    "compute_stats",
]

NOT_FAILED_OUTCOMES = UNFINISHED_OUTCOMES | {Outcome.SUCCEEDED}


@dataclass(frozen=True)
class FailureSummary:
    """The failures of one category."""

    category: FailureCategory
    count: int
    fraction: float  # of all failures
    slot_s: float  # slot seconds of the failed jobs or executions
    reason: str  # the most frequent reason
    reason_count: int  # number of failures with that reason


@dataclass(frozen=True)
class JobSummary:
    """One row of the table of jobs."""

    job: str
    outcome: Outcome
    category: FailureCategory
    reason: str
    sites: tuple[str, ...]  # in the order of their first use
    executions: int
    failed_transfers: int  # input transfers that did not complete
    completion_s: float | None  # from the first match to the end of the job; null unless it succeeded
    queued_s: float  # time in the queue
    held_s: float  # time on hold
    slot_s: float  # slot seconds of all executions
    time_use_s: Mapping[TimeUse, float]  # slot seconds by time use
    outputs_checked: bool | None  # whether the outputs were checked


@dataclass(frozen=True)
class ReportStats:
    """All statistics of one history."""

    name: str
    kind: str  # run, log, accounting, table, simulation
    jobs: int
    executions: int  # sessions on slots
    outcomes: Mapping[Outcome, int]  # number of jobs by outcome
    wallclock_s: float  # slot seconds of all executions
    gpu_s: float | None  # slot seconds times GPUs
    makespan_s: float | None  # from the first submission to the last end
    time_use_s: Mapping[TimeUse, float]  # slot seconds by time use; they add up to `wallclock_s`
    success_rate: float | None  # fraction of the ended jobs that succeeded
    compute_share: float | None  # useful compute / wallclock
    useful_share: float | None  # useful compute and useful transfer / wallclock
    transfer_overhead: float | None  # useful transfer / useful compute
    failed_jobs_s: float  # slot seconds of jobs that ended without success
    held_in_transfer: int  # jobs held in transfer or unpacking and never released
    held_in_compute: int  # jobs held while the program ran and never released
    held_elsewhere: int  # jobs held while queued, or in an unknown phase, and never released
    queue_wait_s: Distribution | None  # from submission to the first match, without the time on hold
    completion_s: Distribution | None  # from the first match to the end, of jobs that succeeded
    p95_over_median: float | None  # of `completion_s`
    max_over_median: float | None  # of `completion_s`
    retries: int  # executions beyond the first of each job
    retried_jobs: int  # jobs with more than one execution
    max_retries: int  # maximum number of retries of one job
    failed_transfers: int  # input transfers that did not complete
    unchecked_jobs: int  # jobs that succeeded, but whose outputs were not checked
    job_failures: tuple[FailureSummary, ...]  # failed jobs by category, the most frequent first
    execution_failures: tuple[FailureSummary, ...]  # failed executions by category, the most frequent first
    efficiency: Efficiency | None  # used CPUs, memory and time; null if the source does not record them
    states: tuple[StateSummary, ...]  # executions by the pool's own states; empty if the source does not record them
    sites: tuple[SiteSummary, ...]  # sorted by slot time in descending order
    transfers: tuple[TransferSummary, ...]  # by site and source
    fastest_transfer_site: str | None  # the site with the fastest input transfers
    fastest_compute_site: str | None  # the site with the shortest compute time
    job_summaries: tuple[JobSummary, ...]  # in the order of the history
    job_time_use: tuple[JobTimeUse, ...] = field(repr=False)  # in the order of the history

    @property
    def ended_jobs(self) -> int:
        return self.jobs - sum(self.outcomes.get(outcome, 0) for outcome in UNFINISHED_OUTCOMES)

    @property
    def succeeded_jobs(self) -> int:
        return self.outcomes.get(Outcome.SUCCEEDED, 0)

    @property
    def failed_jobs(self) -> int:
        """The number of jobs that ended without success."""
        return self.ended_jobs - self.succeeded_jobs

    def fraction_of_wallclock(self, *uses: TimeUse) -> float | None:
        """Return the fraction of the wallclock with any of these time uses."""
        return _ratio(sum(self.time_use_s.get(use, 0.0) for use in uses), self.wallclock_s)


def compute_stats(history: JobHistory) -> ReportStats:
    job_times = account_history(history)
    time_use_us = sum_time_use(job_time.time_use_us for job_time in job_times)
    wallclock_us = sum(time_use_us.values())
    outcomes = Counter(job.outcome for job in history.jobs)
    transfers = collect_site_transfers(history)
    sites = summarize_sites(job_times, transfers)
    completion = describe(seconds for job in history.jobs if (seconds := _completion_s(job)) is not None)
    retries = [len(job.executions) - 1 for job in history.jobs if len(job.executions) > 1]
    rows = tuple(_summarize_job(job_time) for job_time in job_times)
    held_phases = [job.held_in_phase for job in history.jobs if _is_held(job)]
    return ReportStats(
        name=history.name,
        kind=history.kind,
        jobs=len(history.jobs),
        executions=sum(len(job.executions) for job in history.jobs),
        outcomes=outcomes,
        wallclock_s=wallclock_us / US_PER_S,
        gpu_s=_sum_gpu_s(history.executions()),
        makespan_s=_makespan_s(history),
        time_use_s=time_use_in_seconds(time_use_us),
        success_rate=_ratio(
            outcomes[Outcome.SUCCEEDED], sum(job.outcome not in UNFINISHED_OUTCOMES for job in history.jobs)
        ),
        compute_share=_ratio(time_use_us.get(TimeUse.USEFUL_COMPUTE, 0), wallclock_us),
        useful_share=_ratio(sum(time_use_us.get(use, 0) for use in USEFUL), wallclock_us),
        transfer_overhead=_ratio(
            time_use_us.get(TimeUse.USEFUL_TRANSFER, 0), time_use_us.get(TimeUse.USEFUL_COMPUTE, 0)
        ),
        failed_jobs_s=math.fsum(row.slot_s for row in rows if row.outcome not in NOT_FAILED_OUTCOMES),
        held_in_transfer=sum(phase in TRANSFER_PHASES for phase in held_phases),
        held_in_compute=sum(phase is Phase.EXECUTE for phase in held_phases),
        held_elsewhere=sum(phase not in TRANSFER_PHASES and phase is not Phase.EXECUTE for phase in held_phases),
        queue_wait_s=describe(seconds for job in history.jobs if (seconds := _queue_wait_s(job)) is not None),
        completion_s=completion,
        p95_over_median=_ratio(completion.p95, completion.median) if completion else None,
        max_over_median=_ratio(completion.maximum, completion.median) if completion else None,
        retries=sum(retries),
        retried_jobs=len(retries),
        max_retries=max(retries, default=0),
        failed_transfers=sum(row.failed_transfers for row in rows),
        unchecked_jobs=sum(
            job.outcome is Outcome.SUCCEEDED and job.outputs_checked is not True for job in history.jobs
        ),
        job_failures=_summarize_failures([(job, row.slot_s) for job, row in zip(history.jobs, rows, strict=True)]),
        execution_failures=_summarize_failures(
            [(execution, execution.duration_s) for execution in history.executions()]
        ),
        efficiency=summarize_efficiency(history.executions()),
        states=summarize_states(execution for job_time in job_times for execution in job_time.executions),
        sites=sites,
        transfers=summarize_transfers(transfers),
        fastest_transfer_site=find_fastest_transfer_site(sites),
        fastest_compute_site=find_fastest_compute_site(sites),
        job_summaries=rows,
        job_time_use=job_times,
    )


def _is_held(job: JobRecord) -> bool:
    """Return whether a job ended by a hold. Wrong outputs and time limits are holds only if they have a held phase."""
    return job.outcome is Outcome.HELD or (job.held_in_phase is not None and job.outcome not in NOT_FAILED_OUTCOMES)


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None


def _sum_gpu_s(executions: Iterable[ExecutionRecord]) -> float | None:
    gpu_s = [execution.gpus * execution.duration_s for execution in executions if execution.gpus]
    return sum(gpu_s) if gpu_s else None


def _makespan_s(history: JobHistory) -> float | None:
    """Return the makespan; None without timestamps, because the times of different jobs cannot be compared."""
    starts = [start for job in history.jobs if (start := _started_at(job)) is not None]
    ends = [end for job in history.jobs if (end := _ended_at(job)) is not None]
    return max(ends) - min(starts) if history.has_timestamps and starts and ends else None


def _started_at(job: JobRecord) -> float | None:
    return job.submitted_at if job.submitted_at is not None else _first_match_at(job)


def _ended_at(job: JobRecord) -> float | None:
    if job.ended_at is not None:
        return job.ended_at
    return max((execution.end for execution in job.executions), default=None)


def _first_match_at(job: JobRecord) -> float | None:
    return min((execution.start for execution in job.executions if execution.spans), default=None)


def _completion_s(job: JobRecord) -> float | None:
    start, end = _first_match_at(job), _ended_at(job)
    return end - start if job.outcome is Outcome.SUCCEEDED and start is not None and end is not None else None


def _queue_wait_s(job: JobRecord) -> float | None:
    start = _first_match_at(job)
    if start is None or job.submitted_at is None:
        return None
    holds = [wait for wait in job.waits if wait.phase is Phase.HELD and wait.start < start]
    held_s = sum(min(wait.end, start) - wait.start for wait in holds)
    return max(0.0, start - job.submitted_at - held_s)


def _summarize_job(job_time: JobTimeUse) -> JobSummary:
    job, time_use_us = job_time.job, job_time.time_use_us
    return JobSummary(
        job.id,
        job.outcome,
        job.category,
        job.reason,
        tuple(dict.fromkeys(execution.site for execution in job.executions if execution.site)),
        len(job.executions),
        count_failed_transfers(job),
        _completion_s(job),
        sum(span.duration_s for span in job.waits if span.phase is Phase.QUEUED),
        sum(span.duration_s for span in job.waits if span.phase is Phase.HELD),
        sum(time_use_us.values()) / US_PER_S,
        time_use_in_seconds(time_use_us),
        job.outputs_checked,
    )


def _summarize_failures(ended: Sequence[tuple[JobRecord | ExecutionRecord, float]]) -> tuple[FailureSummary, ...]:
    """Summarize the failures among (job or execution, slot seconds) pairs by category."""
    groups: defaultdict[FailureCategory, list[tuple[str, float]]] = defaultdict(list)
    for record, slot_s in ended:
        if record.outcome not in NOT_FAILED_OUTCOMES:
            groups[record.category or FailureCategory.UNKNOWN].append((record.reason, slot_s))
    total = sum(len(group) for group in groups.values())
    summaries = (_summarize_category(category, group, total) for category, group in groups.items())
    return tuple(sorted(summaries, key=lambda failure: (-failure.count, failure.category)))


def _summarize_category(category: FailureCategory, group: list[tuple[str, float]], total: int) -> FailureSummary:
    reasons = Counter(reason for reason, _ in group if reason)
    reason, reason_count = reasons.most_common(1)[0] if reasons else ("", 0)
    slot_s = sum(seconds for _, seconds in group)
    return FailureSummary(category, len(group), len(group) / total, slot_s, reason, reason_count)


def job_labels(jobs: Iterable[JobRecord]) -> Mapping[str, str]:
    """Label jobs by the matrix parameters that differ between them: `lr 0.1, seed 3`, by job id."""
    points = {job.id: job.point for job in jobs if job.point}
    values: dict[str, set[str]] = {}
    for point in points.values():
        for key, value in point.items():
            values.setdefault(key, set()).add(value)
    varying = [key for key, distinct in values.items() if len(distinct) > 1]
    labels = {job: ", ".join(f"{key} {point[key]}" for key in varying if key in point) for job, point in points.items()}
    return {job: label for job, label in labels.items() if label}
