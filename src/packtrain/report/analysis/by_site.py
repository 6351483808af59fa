"""Figures of places: what sites were good for, and how fast data came to them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from packtrain.report.analysis.distribution import Spread, spread_of
from packtrain.report.analysis.input_transfers import Arrival
from packtrain.report.analysis.time_accounting import MICRO, WASTE, AttemptAccount, JobAccount, Share, summed
from packtrain.report.history import Outcome

Key = TypeVar("Key")

_ORDER = tuple(Share)
_ENOUGH = 3  # values that make a median worth comparing


@dataclass(frozen=True)
class SiteFigures:
    site: str  # empty: nobody told
    attempts: int
    jobs: int  # that were there
    succeeded: int  # that succeeded there
    seconds: float
    shares: Mapping[Share, float]  # seconds
    compute_s: tuple[float, ...]  # a job each: those that did all their useful compute there
    compute: Spread | None  # of these
    transfer: Spread | None  # seconds of transfers that came whole
    speed: Spread | None  # bytes a second

    @property
    def wasted(self) -> float:
        """Seconds that were of no use, overhead included."""
        return sum(self.shares.get(share, 0.0) for share in WASTE)


@dataclass(frozen=True)
class SpeedFigures:
    """Transfers of inputs that came whole, by where they arrived and where they came from."""

    site: str
    source: str  # the host of a cache or server; empty: nobody told
    broken: int  # those that came to nothing
    seconds: Spread | None
    speed: Spread | None  # bytes a second
    first: Spread | None  # seconds of those that may have found the cache cold
    later: Spread | None  # seconds of those that began when another one had come whole
    first_speed: Spread | None
    later_speed: Spread | None


def sites_of(accounts: Iterable[JobAccount], arrivals: Iterable[Arrival]) -> tuple[SiteFigures, ...]:
    """The one with most seconds first."""
    stays: defaultdict[str, list[tuple[JobAccount, AttemptAccount]]] = defaultdict(list)
    for account in accounts:
        for stay in account.attempts:
            stays[stay.attempt.site].append((account, stay))
    came = _by(lambda arrival: arrival.site, (arrival for arrival in arrivals if arrival.move.whole))
    found = (_site(site, stays[site], came.get(site, [])) for site in stays)
    return tuple(sorted(found, key=lambda site: (-site.seconds, site.site)))


def _site(site: str, stays: list[tuple[JobAccount, AttemptAccount]], came: list[Arrival]) -> SiteFigures:
    shares = summed(stay.micros for _, stay in stays)
    jobs = {account.job.id: account for account, _ in stays}
    succeeded = {account.job.id for account, stay in stays if _succeeded(account, stay)}
    compute = tuple(seconds for account in jobs.values() if (seconds := _compute_at(site, account)))
    return SiteFigures(
        site,
        len(stays),
        len(jobs),
        len(succeeded),
        sum(shares.values()) / MICRO,
        in_seconds(shares),
        compute,
        spread_of(compute),
        spread_of(arrival.move.seconds for arrival in came),
        _speeds(came),
    )


def _succeeded(account: JobAccount, stay: AttemptAccount) -> bool:
    return account.job.outcome is Outcome.SUCCEEDED and stay.attempt.outcome is Outcome.SUCCEEDED


def _compute_at(site: str, account: JobAccount) -> float:
    """Useful compute of a job that did none elsewhere: a rest of it would make the site look fast."""
    elsewhere = any(Share.COMPUTE in stay.micros for stay in account.attempts if stay.attempt.site != site)
    return 0.0 if elsewhere else account.micros.get(Share.COMPUTE, 0) / MICRO


def speeds_of(arrivals: Iterable[Arrival]) -> tuple[SpeedFigures, ...]:
    """By site and source, most transfers first."""
    places = _by(lambda arrival: (arrival.site, arrival.move.source), arrivals)
    found = (_speed(site, source, came) for (site, source), came in places.items())
    return tuple(sorted(found, key=lambda one: (-(one.seconds.count if one.seconds else 0), one.site, one.source)))


def _speed(site: str, source: str, tried: list[Arrival]) -> SpeedFigures:
    came = [arrival for arrival in tried if arrival.move.whole]
    first = [arrival for arrival in came if not arrival.later]
    later = [arrival for arrival in came if arrival.later]
    return SpeedFigures(
        site,
        source,
        len(tried) - len(came),
        _seconds(came),
        _speeds(came),
        _seconds(first),
        _seconds(later),
        _speeds(first),
        _speeds(later),
    )


def fastest(sites: Iterable[SiteFigures], spread: Callable[[SiteFigures], Spread | None], *, most: bool) -> str | None:
    """The site with the best median, of those with enough values; None where there is nothing to compare."""
    known = [(figures.site, found) for figures in sites if (found := spread(figures)) and figures.site]
    enough = [(site, found) for site, found in known if found.count >= _ENOUGH]
    compared = enough if len(enough) > 1 else known
    if len(compared) < 2:
        return None
    return (max if most else min)(compared, key=lambda one: one[1].median)[0]


def fastest_transfer(sites: Iterable[SiteFigures]) -> str | None:
    """By bytes a second where all sites tell bytes, else by time."""
    compared = [site for site in sites if site.transfer]
    if all(site.speed for site in compared):
        return fastest(compared, lambda site: site.speed, most=True)
    return fastest(compared, lambda site: site.transfer, most=False)


def fastest_compute(sites: Iterable[SiteFigures]) -> str | None:
    return fastest(sites, lambda site: site.compute, most=False)


def in_seconds(micros: Mapping[Share, int]) -> dict[Share, float]:
    """Of every share there is, in their order."""
    return {share: micros[share] / MICRO for share in _ORDER if share in micros}


def _seconds(came: Iterable[Arrival]) -> Spread | None:
    return spread_of(arrival.move.seconds for arrival in came)


def _speeds(came: Iterable[Arrival]) -> Spread | None:
    return spread_of(arrival.speed for arrival in came if arrival.speed is not None)


def _by(key: Callable[[Arrival], Key], arrivals: Iterable[Arrival]) -> dict[Key, list[Arrival]]:
    groups: defaultdict[Key, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        groups[key(arrival)].append(arrival)
    return groups
