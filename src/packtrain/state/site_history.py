"""What earlier runs show about sites, nodes and caches: which ones fail, and which ones are slow.

`SiteObservation`s go in, `SiteStats` come out. Old observations count less: half after `HALF_LIFE_S`. Nothing here
reads or writes files.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from packtrain.formatting import format_percent
from packtrain.plan import HostSpeed, Job
from packtrain.state.execution import Execution
from packtrain.state.job import JobState
from packtrain.state.timing import estimate_steps_s, execution_site, slot_seconds
from packtrain.state.transitions import ExecutionStatus

HALF_LIFE_S = 7 * 86400.0
MAX_AGE_S = 8 * HALF_LIFE_S  # older observations are ignored
_CACHE_WARM_S = 2 * 86400.0  # how long a site's cache is assumed to keep a dataset
_MIN_SAMPLES = 3  # trainings of a run that are needed to know a typical duration
_MIN_FAULT_WEIGHT = 1.5  # weight of the faults that make a location bad; a new fault weighs 1
_MIN_SLOWDOWN = 2.0  # ratio to the typical duration that makes a location slow
_MAX_RECENT = 20  # observations that a sparkline shows
_MIN_SPEED_BYTES = 10_000_000  # smaller transfers show nothing about a host's speed
_MAX_SPEEDS = 60  # entries in the plan of every job


def compute_dataset_id(job: Job) -> str:
    """Return a key that is the same for jobs whose inputs have the same URLs; "" for a job without inputs."""
    locations = [location for source in job.inputs for file in source.files for location in file.locations]
    locations += [source.prefix for source in job.inputs if source.prefix]
    urls = "\n".join(sorted(location.url for location in locations))
    return hashlib.sha256(urls.encode()).hexdigest()[:12] if urls else ""


@dataclass(frozen=True)
class SiteObservation:
    """How one execution ended at a site."""

    run: str
    key: str  # identifies the execution within its run
    ended_at: float  # Unix time
    engine: str
    site: str
    node: str
    failure_kind: str = ""  # "": succeeded or requeued
    is_site_fault: bool = False  # the site or the node is to blame for the failure
    steps_s: float = 0.0  # time that the steps of a complete training take here; 0: not known
    fetch_s: float = 0.0
    fetched_bytes: int = 0
    source_host: str = ""  # the host that most bytes came from
    dataset_id: str = ""
    point: str = ""  # of the matrix; only trainings of the same point are compared

    @property
    def comparison_group(self) -> tuple[str, str]:
        """The key of trainings that should take equally long."""
        return self.run, self.point

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> SiteObservation:
        """Read an observation that `to_data` wrote. Unknown keys are ignored."""
        return cls(**{field.name: data[field.name] for field in fields(cls) if field.name in data})

    def to_data(self) -> dict[str, Any]:
        """Return the observation as JSON values."""
        return asdict(self)


def observations_from_job(run: str, job: JobState, engine: str, dataset_id: str = "") -> Iterator[SiteObservation]:
    """Yield the observations of a job's executions that have ended.

    An execution that a supervisor ended shows nothing about its site, unless it was moved because it was too slow.
    """
    for execution in job.executions:
        has_run = (execution.emitter or execution.execution_number) and not execution.is_live
        if has_run and (execution.attempt_id in job.moves or not job.has_cancel_decision(execution.attempt_id)):
            yield _make_observation(run, job, execution, engine, dataset_id)


def _make_observation(run: str, job: JobState, execution: Execution, engine: str, dataset_id: str) -> SiteObservation:
    failure = execution.failure
    fetch = next((stage for stage in execution.stages if stage.name == "fetch"), None)
    source = str(fetch.data.get("source") or "") if fetch else ""
    has_succeeded = execution.status is ExecutionStatus.SUCCEEDED
    return SiteObservation(
        run,
        f"{job.id}/{execution.attempt_id}/{execution.execution_number}/{execution.emitter}",
        execution.ended_at,
        engine,
        execution_site(execution),
        execution.node,
        failure_kind=failure.kind if failure else "",
        is_site_fault=failure is not None and failure.is_site_fault,
        steps_s=(estimate_steps_s(execution, slot_seconds(job, execution)) or 0.0) if has_succeeded else 0.0,
        fetch_s=(fetch.duration_s or 0.0) if fetch else 0.0,
        fetched_bytes=int(fetch.data.get("bytes") or 0) if fetch else 0,
        source_host=(urlsplit(source).hostname or source) if source else "",
        dataset_id=dataset_id,
        point=" ".join(f"{key}={value}" for key, value in sorted(job.point.items())),
    )


def age_weight(observation: SiteObservation, now: float) -> float:
    """Return the weight of an observation: 1 if new, 0.5 after one half-life."""
    return float(0.5 ** (max(0.0, now - observation.ended_at) / HALF_LIFE_S))


def weighted_median(weighted_values: Iterable[tuple[float, float]]) -> float | None:
    """Return the weighted median of (value, weight) pairs; None if there are none. Equal weights give the median."""
    pairs = sorted(weighted_values)
    half, cumulative = sum(weight for _, weight in pairs) / 2, 0.0
    for index, (value, weight) in enumerate(pairs):
        cumulative += weight
        if math.isclose(cumulative, half) and index + 1 < len(pairs):
            return (value + pairs[index + 1][0]) / 2
        if cumulative >= half:
            return value
    return None


@dataclass(frozen=True)
class SiteStats:
    """The statistics of one site, node or cache."""

    name: str
    observations: tuple[SiteObservation, ...]  # oldest first
    typical_steps_s: Mapping[tuple[str, str], float]  # by comparison group
    now: float  # Unix time

    def _weight(self, observation: SiteObservation) -> float:
        return age_weight(observation, self.now)

    @cached_property
    def fault_weight(self) -> float:
        """The total weight of failures that the site is to blame for."""
        return sum(self._weight(observation) for observation in self.observations if observation.is_site_fault)

    @cached_property
    def success_weight(self) -> float:
        """The total weight of executions without a failure."""
        return sum(self._weight(observation) for observation in self.observations if not observation.failure_kind)

    @property
    def failure_rate(self) -> float:
        """The weighted share of faults among faults and successes, from 0 to 1."""
        return self.fault_weight / (self.fault_weight + self.success_weight) if self.fault_weight else 0.0

    @cached_property
    def slowdown(self) -> float | None:
        """The median ratio to the typical duration of the same run and point; None if not known."""
        return weighted_median(
            (observation.steps_s / self.typical_steps_s[observation.comparison_group], self._weight(observation))
            for observation in self._comparable_observations
        )

    @property
    def _comparable_observations(self) -> list[SiteObservation]:
        return [o for o in self.observations if o.steps_s > 0 and self.typical_steps_s.get(o.comparison_group, 0.0) > 0]

    @property
    def avoid_reason(self) -> str:
        """Why new runs avoid the site; "" if they do not."""
        if self.fault_weight >= _MIN_FAULT_WEIGHT and self.fault_weight > self.success_weight:
            kinds = Counter(observation.failure_kind for observation in self.observations if observation.is_site_fault)
            counts = ", ".join(f"{kind} {number} times" for kind, number in kinds.most_common(2))
            return f"{format_percent(self.failure_rate)} of the executions there failed ({counts})"
        if self.slowdown is None or self.slowdown < _MIN_SLOWDOWN:
            return ""
        has_enough_samples = sum(map(self._weight, self._comparable_observations)) >= _MIN_SAMPLES
        return f"trainings take {self.slowdown:.1f} times as long there" if has_enough_samples else ""

    @property
    def score(self) -> float:
        """A rating: 1 for a site that never fails and has the typical speed.

        One success is added, so that a site with few observations is not rated too low.
        """
        reliability = (self.success_weight + 1) / (self.fault_weight + self.success_weight + 1)
        return reliability / max(0.1, self.slowdown or 1.0)

    def weighted_median_of(self, get_value: Callable[[SiteObservation], float]) -> float | None:
        """Return the weighted median of a value over the observations where it is positive."""
        return weighted_median([(value, self._weight(o)) for o in self.observations if (value := get_value(o)) > 0])

    @property
    def recent_observations(self) -> tuple[SiteObservation, ...]:
        """The newest observations, oldest first."""
        return self.observations[-_MAX_RECENT:]


def fetch_bytes_per_s(observation: SiteObservation) -> float:
    """Return the average download speed, 0 if not known."""
    return observation.fetched_bytes / observation.fetch_s if observation.fetch_s > 0 else 0.0


@dataclass(frozen=True)
class SiteHistory:
    """All observations of earlier runs, grouped by site, node and cache."""

    observations: tuple[SiteObservation, ...] = ()
    now: float = 0.0  # Unix time

    @classmethod
    def from_observations(cls, observations: Iterable[SiteObservation], now: float, engine: str = "") -> SiteHistory:
        """Create the history from observations in any order.

        Args:
            observations: All observations. Those older than `MAX_AGE_S` are ignored.
            now: The current Unix time.
            engine: Use only observations of this engine; "" for all engines.
        """
        used = [o for o in observations if now - o.ended_at < MAX_AGE_S and (not engine or o.engine == engine)]
        return cls(tuple(sorted(_clear_common_faults(used), key=lambda o: (o.ended_at, o.run, o.key))), now)

    @cached_property
    def sites(self) -> dict[str, SiteStats]:
        """The statistics of each site."""
        return self._group_by(lambda observation: observation.site)

    @cached_property
    def nodes(self) -> dict[str, SiteStats]:
        """The statistics of each node."""
        return self._group_by(lambda observation: observation.node)

    @cached_property
    def caches(self) -> dict[str, SiteStats]:
        """The statistics of each host that data was downloaded from."""
        return self._group_by(lambda observation: observation.source_host)

    def _group_by(self, get_key: Callable[[SiteObservation], str]) -> dict[str, SiteStats]:
        groups: defaultdict[str, list[SiteObservation]] = defaultdict(list)
        for observation in self.observations:
            groups[get_key(observation)].append(observation)
        return {
            key: SiteStats(key, tuple(group), self._typical_steps_s, self.now)
            for key, group in sorted(groups.items())
            if key
        }

    @cached_property
    def _typical_steps_s(self) -> dict[tuple[str, str], float]:
        durations: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for observation in self.observations:
            if observation.steps_s > 0:
                durations[observation.comparison_group].append(observation.steps_s)
        return {group: median(values) for group, values in durations.items() if len(values) >= _MIN_SAMPLES}

    @cached_property
    def avoided_sites(self) -> dict[str, str]:
        """The sites to avoid, with the reasons. Empty if all sites are bad: a run that avoids every site never runs."""
        return _unless_all_bad(self.sites)

    @cached_property
    def avoided_nodes(self) -> dict[str, str]:
        """The nodes to avoid, with the reasons. Nodes of avoided sites are left out."""
        reasons = _unless_all_bad(self.nodes)
        other_nodes = {o.node for o in self.observations if o.site not in self.avoided_sites}
        return {name: reason for name, reason in reasons.items() if name in other_nodes}

    def source_speeds(self) -> tuple[HostSpeed, ...]:
        """Return the download speeds of hosts, over all sites and by site; nothing if only one host is known."""
        rates: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for observation in reversed(self.observations):
            is_large = observation.fetched_bytes >= _MIN_SPEED_BYTES
            if observation.source_host and is_large and observation.fetch_s > 0:
                rate = (fetch_bytes_per_s(observation), age_weight(observation, self.now))
                for site in dict.fromkeys(("", observation.site)):
                    rates[site, observation.source_host].append(rate)
        newest = sorted(list(rates)[:_MAX_SPEEDS])
        if len({host for _, host in newest}) < 2:
            return ()
        return tuple(HostSpeed(host, round(weighted_median(rates[site, host]) or 0.0), site) for site, host in newest)

    def has_warm_cache(self, site: str, dataset_id: str) -> bool:
        """Return whether the site's cache most likely still has a dataset."""
        observations = self.sites[site].observations if site in self.sites and dataset_id else ()
        return any(
            o.dataset_id == dataset_id and o.fetched_bytes and self.now - o.ended_at < _CACHE_WARM_S
            for o in observations
        )


def _clear_common_faults(observations: Collection[SiteObservation]) -> Iterator[SiteObservation]:
    """Yield the observations, and clear `is_site_fault` of failures that no site is to blame for.

    If a run failed in the same way at several sites and never succeeded, its image is broken or a server is down.
    """
    successful_runs = {o.run for o in observations if not o.failure_kind}
    sites: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for observation in observations:
        if observation.is_site_fault and observation.run not in successful_runs:
            sites[observation.run, observation.failure_kind].add(observation.site)
    for observation in observations:
        n_sites = len(sites.get((observation.run, observation.failure_kind), ()))
        is_common = observation.is_site_fault and n_sites > 1
        yield replace(observation, is_site_fault=False) if is_common else observation


def _unless_all_bad(stats: Mapping[str, SiteStats]) -> dict[str, str]:
    reasons = {name: location.avoid_reason for name, location in stats.items() if location.avoid_reason}
    return reasons if set(stats) - set(reasons) else {}


EMPTY_HISTORY = SiteHistory()
