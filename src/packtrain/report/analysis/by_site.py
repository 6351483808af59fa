"""Statistics by site: slot time, compute time, and the speed of transfers to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from packtrain.report.analysis.distribution import Distribution, describe
from packtrain.report.analysis.input_transfers import SiteTransfer
from packtrain.report.analysis.resource_use import Efficiency, summarize_efficiency
from packtrain.report.analysis.time_accounting import (
    US_PER_S,
    WASTED,
    ExecutionTimeUse,
    JobTimeUse,
    TimeUse,
    sum_time_use,
)
from packtrain.report.history import Outcome, Phase

Key = TypeVar("Key")

_TIME_USE_ORDER = tuple(TimeUse)
_MIN_VALUES = 3  # needed to compare medians
_ROUNDING_S = 1e-6


@dataclass(frozen=True)
class SiteSummary:
    """The executions at one site."""

    site: str  # empty if unknown
    executions: int
    jobs: int  # with at least one execution at the site
    succeeded_jobs: int  # whose successful execution was at the site
    slot_s: float
    time_use_s: Mapping[TimeUse, float]  # slot seconds by time use
    compute_times_s: tuple[float, ...]  # useful compute of each job that did all of it at the site
    compute_time_s: Distribution | None  # distribution of `compute_times_s`
    transfer_time_s: Distribution | None  # durations of complete input transfers
    bytes_per_s: Distribution | None  # speeds of complete input transfers
    queue_wait_s: Distribution | None  # time in the queue before each execution at the site
    gpu_s: float  # slot seconds times GPUs
    efficiency: Efficiency | None  # null if the source does not record it

    @property
    def wasted_s(self) -> float:
        """Slot seconds that were wasted, including overhead."""
        return sum(self.time_use_s.get(use, 0.0) for use in WASTED)


@dataclass(frozen=True)
class TransferSummary:
    """The input transfers from one source to one site. The distributions cover complete transfers only."""

    site: str
    source: str  # host of the cache or server; empty if unknown
    failed: int  # number of transfers that did not complete
    duration_s: Distribution | None
    bytes_per_s: Distribution | None
    cold_duration_s: Distribution | None  # of transfers that started before any other had completed
    warm_duration_s: Distribution | None  # of transfers that started after another had completed
    cold_bytes_per_s: Distribution | None
    warm_bytes_per_s: Distribution | None


def summarize_sites(job_times: Iterable[JobTimeUse], transfers: Iterable[SiteTransfer]) -> tuple[SiteSummary, ...]:
    """Summarize each site, sorted by slot time in descending order."""
    executions: defaultdict[str, list[tuple[JobTimeUse, ExecutionTimeUse]]] = defaultdict(list)
    for job_time in job_times:
        for execution_time in job_time.executions:
            executions[execution_time.execution.site].append((job_time, execution_time))
    completed = _group_by(lambda transfer: transfer.site, (item for item in transfers if item.transfer.complete))
    summaries = (_summarize_site(site, executions[site], completed.get(site, [])) for site in executions)
    return tuple(sorted(summaries, key=lambda summary: (-summary.slot_s, summary.site)))


def _summarize_site(
    site: str, executions: list[tuple[JobTimeUse, ExecutionTimeUse]], completed: list[SiteTransfer]
) -> SiteSummary:
    time_use_us = sum_time_use(execution_time.time_use_us for _, execution_time in executions)
    jobs = {job_time.job.id: job_time for job_time, _ in executions}
    succeeded = {job_time.job.id for job_time, execution_time in executions if _has_succeeded(job_time, execution_time)}
    compute_times_s = tuple(seconds for job_time in jobs.values() if (seconds := _compute_s_at(site, job_time)))
    return SiteSummary(
        site,
        len(executions),
        len(jobs),
        len(succeeded),
        sum(time_use_us.values()) / US_PER_S,
        time_use_in_seconds(time_use_us),
        compute_times_s,
        describe(compute_times_s),
        _duration_distribution(completed),
        _speed_distribution(completed),
        describe(wait_s for item in executions if (wait_s := _queue_wait_s(*item)) is not None),
        sum(time.execution.gpus * time.execution.duration_s for _, time in executions),
        summarize_efficiency(time.execution for _, time in executions),
    )


def _queue_wait_s(job_time: JobTimeUse, execution_time: ExecutionTimeUse) -> float | None:
    """Return how long the job was queued just before an execution; None if that is unknown."""
    job, start = job_time.job, execution_time.execution.start
    before = [wait for wait in job.waits if wait.end <= start + _ROUNDING_S]
    if before and before[-1].phase is Phase.QUEUED and start - before[-1].end <= _ROUNDING_S:
        return before[-1].duration_s
    return 0.0 if start == job.submitted_at else None


def _has_succeeded(job_time: JobTimeUse, execution_time: ExecutionTimeUse) -> bool:
    return job_time.job.outcome is Outcome.SUCCEEDED and execution_time.execution.outcome is Outcome.SUCCEEDED


def _compute_s_at(site: str, job_time: JobTimeUse) -> float:
    """Return the useful compute of a job, or 0 if it did some elsewhere: a part of it would make the site look fast."""
    elsewhere = any(
        TimeUse.USEFUL_COMPUTE in execution_time.time_use_us
        for execution_time in job_time.executions
        if execution_time.execution.site != site
    )
    return 0.0 if elsewhere else job_time.time_use_us.get(TimeUse.USEFUL_COMPUTE, 0) / US_PER_S


def summarize_transfers(transfers: Iterable[SiteTransfer]) -> tuple[TransferSummary, ...]:
    """Summarize transfers by site and source, sorted by the number of complete transfers in descending order."""
    groups = _group_by(lambda transfer: (transfer.site, transfer.transfer.source), transfers)
    summaries = (_summarize_transfers(site, source, group) for (site, source), group in groups.items())
    return tuple(
        sorted(
            summaries,
            key=lambda summary: (
                -(summary.duration_s.count if summary.duration_s else 0),
                summary.site,
                summary.source,
            ),
        )
    )


def _summarize_transfers(site: str, source: str, transfers: list[SiteTransfer]) -> TransferSummary:
    completed = [transfer for transfer in transfers if transfer.transfer.complete]
    cold = [transfer for transfer in completed if not transfer.maybe_cached]
    warm = [transfer for transfer in completed if transfer.maybe_cached]
    return TransferSummary(
        site,
        source,
        len(transfers) - len(completed),
        _duration_distribution(completed),
        _speed_distribution(completed),
        _duration_distribution(cold),
        _duration_distribution(warm),
        _speed_distribution(cold),
        _speed_distribution(warm),
    )


def find_fastest_site(
    sites: Iterable[SiteSummary], get_distribution: Callable[[SiteSummary], Distribution | None], *, highest: bool
) -> str | None:
    """Return the site with the best median; None if there are fewer than two sites to compare.

    Args:
        sites: The sites.
        get_distribution: Returns the values of a site.
        highest: Whether the highest median is the best, instead of the lowest.
    """
    known = [(site.site, values) for site in sites if (values := get_distribution(site)) and site.site]
    with_enough_values = [(site, values) for site, values in known if values.count >= _MIN_VALUES]
    compared = with_enough_values if len(with_enough_values) > 1 else known
    if len(compared) < 2:
        return None
    return (max if highest else min)(compared, key=lambda item: item[1].median)[0]


def find_fastest_transfer_site(sites: Iterable[SiteSummary]) -> str | None:
    """Compare by bytes per second if they are known for all sites, otherwise by duration."""
    compared = [site for site in sites if site.transfer_time_s]
    if all(site.bytes_per_s for site in compared):
        return find_fastest_site(compared, lambda site: site.bytes_per_s, highest=True)
    return find_fastest_site(compared, lambda site: site.transfer_time_s, highest=False)


def find_fastest_compute_site(sites: Iterable[SiteSummary]) -> str | None:
    return find_fastest_site(sites, lambda site: site.compute_time_s, highest=False)


def time_use_in_seconds(time_use_us: Mapping[TimeUse, int]) -> dict[TimeUse, float]:
    """Convert microseconds to seconds, in the order of `TimeUse`."""
    return {use: time_use_us[use] / US_PER_S for use in _TIME_USE_ORDER if use in time_use_us}


def _duration_distribution(transfers: Iterable[SiteTransfer]) -> Distribution | None:
    return describe(transfer.transfer.duration_s for transfer in transfers)


def _speed_distribution(transfers: Iterable[SiteTransfer]) -> Distribution | None:
    return describe(transfer.bytes_per_s for transfer in transfers if transfer.bytes_per_s is not None)


def _group_by(key: Callable[[SiteTransfer], Key], transfers: Iterable[SiteTransfer]) -> dict[Key, list[SiteTransfer]]:
    groups: defaultdict[Key, list[SiteTransfer]] = defaultdict(list)
    for transfer in transfers:
        groups[key(transfer)].append(transfer)
    return groups
