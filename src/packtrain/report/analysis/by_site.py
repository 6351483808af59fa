"""Figures of places: what sites were good for, and how fast data came to them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from packtrain.report.analysis.distribution import Distribution, describe
from packtrain.report.analysis.input_transfers import SiteTransfer
from packtrain.report.analysis.time_accounting import (
    US_PER_S,
    WASTED,
    ExecutionTimeUse,
    JobTimeUse,
    TimeUse,
    sum_time_use,
)
from packtrain.report.history import Outcome

Key = TypeVar("Key")

_TIME_USE_ORDER = tuple(TimeUse)
_MIN_VALUES = 3  # values that make a median worth comparing


@dataclass(frozen=True)
class SiteSummary:
    site: str  # empty: nobody told
    executions: int
    jobs: int  # that were there
    succeeded_jobs: int  # that succeeded there
    slot_s: float
    time_use_s: Mapping[TimeUse, float]  # seconds
    compute_times_s: tuple[float, ...]  # a job each: those that did all their useful compute there
    compute_time_s: Distribution | None  # of these
    transfer_time_s: Distribution | None  # seconds of transfers that came whole
    bytes_per_s: Distribution | None  # bytes a second

    @property
    def wasted_s(self) -> float:
        """Seconds that were of no use, overhead included."""
        return sum(self.time_use_s.get(share, 0.0) for share in WASTED)


@dataclass(frozen=True)
class TransferSummary:
    """Transfers of inputs that came whole, by where they arrived and where they came from."""

    site: str
    source: str  # the host of a cache or server; empty: nobody told
    failed: int  # those that came to nothing
    duration_s: Distribution | None
    bytes_per_s: Distribution | None  # bytes a second
    cold_duration_s: Distribution | None  # seconds of those that may have found the cache cold
    warm_duration_s: Distribution | None  # seconds of those that began when another one had come whole
    cold_bytes_per_s: Distribution | None
    warm_bytes_per_s: Distribution | None


def summarize_sites(job_times: Iterable[JobTimeUse], transfers: Iterable[SiteTransfer]) -> tuple[SiteSummary, ...]:
    """The one with most seconds first."""
    stays: defaultdict[str, list[tuple[JobTimeUse, ExecutionTimeUse]]] = defaultdict(list)
    for account in job_times:
        for stay in account.executions:
            stays[stay.execution.site].append((account, stay))
    came = _group_by(lambda arrival: arrival.site, (arrival for arrival in transfers if arrival.transfer.complete))
    found = (_summarize_site(site, stays[site], came.get(site, [])) for site in stays)
    return tuple(sorted(found, key=lambda site: (-site.slot_s, site.site)))


def _summarize_site(
    site: str, executions: list[tuple[JobTimeUse, ExecutionTimeUse]], completed: list[SiteTransfer]
) -> SiteSummary:
    shares = sum_time_use(stay.time_use_us for _, stay in executions)
    jobs = {account.job.id: account for account, _ in executions}
    succeeded = {account.job.id for account, stay in executions if _has_succeeded(account, stay)}
    compute = tuple(seconds for account in jobs.values() if (seconds := _compute_s_at(site, account)))
    return SiteSummary(
        site,
        len(executions),
        len(jobs),
        len(succeeded),
        sum(shares.values()) / US_PER_S,
        time_use_in_seconds(shares),
        compute,
        describe(compute),
        describe(arrival.transfer.duration_s for arrival in completed),
        _speed_distribution(completed),
    )


def _has_succeeded(job_time: JobTimeUse, execution_time: ExecutionTimeUse) -> bool:
    return job_time.job.outcome is Outcome.SUCCEEDED and execution_time.execution.outcome is Outcome.SUCCEEDED


def _compute_s_at(site: str, job_time: JobTimeUse) -> float:
    """Useful compute of a job that did none elsewhere: a rest of it would make the site look fast."""
    elsewhere = any(
        TimeUse.USEFUL_COMPUTE in stay.time_use_us for stay in job_time.executions if stay.execution.site != site
    )
    return 0.0 if elsewhere else job_time.time_use_us.get(TimeUse.USEFUL_COMPUTE, 0) / US_PER_S


def summarize_transfers(transfers: Iterable[SiteTransfer]) -> tuple[TransferSummary, ...]:
    """By site and source, most transfers first."""
    places = _group_by(lambda arrival: (arrival.site, arrival.transfer.source), transfers)
    found = (_summarize_transfers(site, source, came) for (site, source), came in places.items())
    return tuple(
        sorted(found, key=lambda one: (-(one.duration_s.count if one.duration_s else 0), one.site, one.source))
    )


def _summarize_transfers(site: str, source: str, transfers: list[SiteTransfer]) -> TransferSummary:
    came = [arrival for arrival in transfers if arrival.transfer.complete]
    first = [arrival for arrival in came if not arrival.maybe_cached]
    later = [arrival for arrival in came if arrival.maybe_cached]
    return TransferSummary(
        site,
        source,
        len(transfers) - len(came),
        _duration_distribution(came),
        _speed_distribution(came),
        _duration_distribution(first),
        _duration_distribution(later),
        _speed_distribution(first),
        _speed_distribution(later),
    )


def find_fastest_site(
    sites: Iterable[SiteSummary], get_distribution: Callable[[SiteSummary], Distribution | None], *, highest: bool
) -> str | None:
    """The site with the best median, of those with enough values; None where there is nothing to compare."""
    known = [(figures.site, found) for figures in sites if (found := get_distribution(figures)) and figures.site]
    enough = [(site, found) for site, found in known if found.count >= _MIN_VALUES]
    compared = enough if len(enough) > 1 else known
    if len(compared) < 2:
        return None
    return (max if highest else min)(compared, key=lambda one: one[1].median)[0]


def find_fastest_transfer_site(sites: Iterable[SiteSummary]) -> str | None:
    """By bytes a second where all sites tell bytes, else by time."""
    compared = [site for site in sites if site.transfer_time_s]
    if all(site.bytes_per_s for site in compared):
        return find_fastest_site(compared, lambda site: site.bytes_per_s, highest=True)
    return find_fastest_site(compared, lambda site: site.transfer_time_s, highest=False)


def find_fastest_compute_site(sites: Iterable[SiteSummary]) -> str | None:
    return find_fastest_site(sites, lambda site: site.compute_time_s, highest=False)


def time_use_in_seconds(time_use_us: Mapping[TimeUse, int]) -> dict[TimeUse, float]:
    """Of every share there is, in their order."""
    return {share: time_use_us[share] / US_PER_S for share in _TIME_USE_ORDER if share in time_use_us}


def _duration_distribution(transfers: Iterable[SiteTransfer]) -> Distribution | None:
    return describe(arrival.transfer.duration_s for arrival in transfers)


def _speed_distribution(transfers: Iterable[SiteTransfer]) -> Distribution | None:
    return describe(arrival.bytes_per_s for arrival in transfers if arrival.bytes_per_s is not None)


def _group_by(key: Callable[[SiteTransfer], Key], transfers: Iterable[SiteTransfer]) -> dict[Key, list[SiteTransfer]]:
    groups: defaultdict[Key, list[SiteTransfer]] = defaultdict(list)
    for arrival in transfers:
        groups[key(arrival)].append(arrival)
    return groups
