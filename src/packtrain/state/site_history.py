"""What was learned of places over all runs: which sites, machines and caches fail, and which are slow. Visits go in,
standings come out; nothing is read or written here. What is old counts less: half after `HALF_LIFE_S`."""

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

from packtrain.plan import HostSpeed, Job
from packtrain.state.execution import Execution
from packtrain.state.job import JobState
from packtrain.state.timing import estimate_steps_s, execution_site, slot_seconds
from packtrain.state.transitions import ExecutionStatus

HALF_LIFE_S = 7 * 86400.0
MAX_AGE_S = 8 * HALF_LIFE_S  # by then a visit weighs nothing
_CACHE_WARM_S = 2 * 86400.0  # how long a cache is believed to keep a dataset
_MIN_SAMPLES = 3  # trainings of a run that tell what is usual for it
_MIN_FAULT_WEIGHT, _MIN_SLOWDOWN = 1.5, 2.0  # fresh failures; times the usual
_MAX_RECENT = 20  # outcomes that a standing keeps
_MIN_SPEED_BYTES = 10_000_000  # bytes: what takes a moment says nothing of a host's speed
_MAX_SPEEDS = 60  # that every job's plan has


def compute_dataset_id(job: Job) -> str:
    """The same for jobs whose inputs come from the same addresses; "": it has none."""
    refs = [ref for source in job.inputs for item in source.files for ref in item.locations]
    refs += [source.prefix for source in job.inputs if source.prefix]
    names = "\n".join(sorted(ref.url for ref in refs))
    return hashlib.sha256(names.encode()).hexdigest()[:12] if names else ""


@dataclass(frozen=True)
class SiteObservation:
    """How one attempt fared at a place."""

    run: str
    key: str  # of the attempt within its run
    ended_at: float  # when it ended
    engine: str
    site: str
    node: str
    failure_kind: str = ""  # of failure; "": it succeeded, or left
    is_site_fault: bool = False  # of the place
    steps_s: float = 0.0  # what the whole training takes there; 0: not known
    fetch_s: float = 0.0
    fetched_bytes: int = 0  # bytes
    source_host: str = ""  # the host that most came from
    dataset_id: str = ""
    point: str = ""  # of the matrix: only trainings of the same one are compared

    @property
    def comparison_group(self) -> tuple[str, str]:
        return self.run, self.point

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> SiteObservation:
        return cls(**{field.name: data[field.name] for field in fields(cls) if field.name in data})

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


def observations_from_job(run: str, job: JobState, engine: str, dataset_id: str = "") -> Iterator[SiteObservation]:
    """Of the attempts that are over; what a supervisor ended says nothing of its place, unless it was too slow."""
    for attempt in job.executions:
        ran = (attempt.emitter or attempt.execution_number) and not attempt.is_live
        if ran and (attempt.attempt_id in job.moves or not job.has_cancel_decision(attempt.attempt_id)):
            yield _make_observation(run, job, attempt, engine, dataset_id)


def _make_observation(run: str, job: JobState, execution: Execution, engine: str, dataset_id: str) -> SiteObservation:
    failure = execution.failure
    fetch = next((stage for stage in execution.stages if stage.name == "fetch"), None)
    source = str(fetch.data.get("source") or "") if fetch else ""
    done = execution.status is ExecutionStatus.SUCCEEDED
    return SiteObservation(
        run,
        f"{job.id}/{execution.attempt_id}/{execution.execution_number}/{execution.emitter}",
        execution.ended_at,
        engine,
        execution_site(execution),
        execution.node,
        failure_kind=failure.kind if failure else "",
        is_site_fault=failure is not None and failure.is_site_fault,
        steps_s=(estimate_steps_s(execution, slot_seconds(job, execution)) or 0.0) if done else 0.0,
        fetch_s=(fetch.duration_s or 0.0) if fetch else 0.0,
        fetched_bytes=int(fetch.data.get("bytes") or 0) if fetch else 0,
        source_host=(urlsplit(source).hostname or source) if source else "",
        dataset_id=dataset_id,
        point=" ".join(f"{key}={value}" for key, value in sorted(job.point.items())),
    )


def age_weight(observation: SiteObservation, now: float) -> float:
    return float(0.5 ** (max(0.0, now - observation.ended_at) / HALF_LIFE_S))


def weighted_median(weighted_values: Iterable[tuple[float, float]]) -> float | None:
    """The median of values with their weights; of those that weigh the same, the usual one."""
    ranked = sorted(weighted_values)
    half, before = sum(counts for _, counts in ranked) / 2, 0.0
    for at, (value, counts) in enumerate(ranked):
        before += counts
        if math.isclose(before, half) and at + 1 < len(ranked):
            return (value + ranked[at + 1][0]) / 2
        if before >= half:
            return value
    return None


@dataclass(frozen=True)
class SiteStats:
    """What is known of one place."""

    name: str
    observations: tuple[SiteObservation, ...]  # in order
    typical_steps_s: Mapping[tuple[str, str], float]  # seconds of steps, of those that are alike
    now: float

    def _weight(self, observation: SiteObservation) -> float:
        return age_weight(observation, self.now)

    @cached_property
    def fault_weight(self) -> float:
        """Failures that are the place's, by weight."""
        return sum(self._weight(visit) for visit in self.observations if visit.is_site_fault)

    @cached_property
    def success_weight(self) -> float:
        return sum(self._weight(visit) for visit in self.observations if not visit.failure_kind)

    @property
    def failure_rate(self) -> float:
        """The share of these failures among what says something of the place."""
        return self.fault_weight / (self.fault_weight + self.success_weight) if self.fault_weight else 0.0

    @cached_property
    def slowdown(self) -> float | None:
        """Times the usual of the same run and point, where there are enough to tell what is usual."""
        told = [visit for visit in self.observations if self._has_comparison(visit)]
        return weighted_median(
            [(visit.steps_s / self.typical_steps_s[visit.comparison_group], self._weight(visit)) for visit in told]
        )

    def _has_comparison(self, observation: SiteObservation) -> bool:
        return observation.steps_s > 0 and self.typical_steps_s.get(observation.comparison_group, 0.0) > 0

    @property
    def avoid_reason(self) -> str:
        """Why it is avoided; "": it is not."""
        if self.fault_weight >= _MIN_FAULT_WEIGHT and self.fault_weight > self.success_weight:
            kinds = Counter(visit.failure_kind for visit in self.observations if visit.is_site_fault)
            told = ", ".join(f"{kind} {number} times" for kind, number in kinds.most_common(2))
            return f"{self.failure_rate:.0%} of its attempts failed there ({told})"
        slow = [visit for visit in self.observations if self._has_comparison(visit)]
        if (
            self.slowdown is not None
            and self.slowdown >= _MIN_SLOWDOWN
            and sum(map(self._weight, slow)) >= _MIN_SAMPLES
        ):
            return f"trainings take {self.slowdown:.1f} times as long there"
        return ""

    @property
    def score(self) -> float:
        """1 for a place that never fails and is as quick as is usual. One attempt more is counted in favour of a place
        that is hardly known."""
        good = (self.success_weight + 1) / (self.fault_weight + self.success_weight + 1)
        return good / max(0.1, self.slowdown or 1.0)

    def weighted_median_of(self, get_value: Callable[[SiteObservation], float]) -> float | None:
        """The median of those that are known."""
        return weighted_median(
            [(found, self._weight(visit)) for visit in self.observations if (found := get_value(visit)) > 0]
        )

    @property
    def recent_observations(self) -> tuple[SiteObservation, ...]:
        return self.observations[-_MAX_RECENT:]


def fetch_bytes_per_s(observation: SiteObservation) -> float:
    return observation.fetched_bytes / observation.fetch_s if observation.fetch_s > 0 else 0.0


@dataclass(frozen=True)
class SiteHistory:
    observations: tuple[SiteObservation, ...] = ()
    now: float = 0.0

    @classmethod
    def from_observations(cls, observations: Iterable[SiteObservation], now: float, engine: str = "") -> SiteHistory:
        kept = [v for v in observations if now - v.ended_at < MAX_AGE_S and (not engine or v.engine == engine)]
        return cls(
            tuple(sorted(_clear_common_faults(kept), key=lambda visit: (visit.ended_at, visit.run, visit.key))), now
        )

    @cached_property
    def sites(self) -> dict[str, SiteStats]:
        return self._group_by(lambda visit: visit.site)

    @cached_property
    def nodes(self) -> dict[str, SiteStats]:
        return self._group_by(lambda visit: visit.node)

    @cached_property
    def caches(self) -> dict[str, SiteStats]:
        """Hosts that data came from."""
        return self._group_by(lambda visit: visit.source_host)

    def _group_by(self, get_key: Callable[[SiteObservation], str]) -> dict[str, SiteStats]:
        found: defaultdict[str, list[SiteObservation]] = defaultdict(list)
        for visit in self.observations:
            found[get_key(visit)].append(visit)
        made = {
            key: SiteStats(key, tuple(visits), self._typical_steps_s, self.now) for key, visits in found.items() if key
        }
        return dict(sorted(made.items()))

    @cached_property
    def _typical_steps_s(self) -> dict[tuple[str, str], float]:
        steps: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for visit in self.observations:
            if visit.steps_s > 0:
                steps[visit.comparison_group].append(visit.steps_s)
        return {alike: median(values) for alike, values in steps.items() if len(values) >= _MIN_SAMPLES}

    @cached_property
    def avoided_sites(self) -> dict[str, str]:
        """With the reasons. Only where there is another one: who avoids every place never runs."""
        return _unless_all_bad(self.sites)

    @cached_property
    def avoided_nodes(self) -> dict[str, str]:
        """Those of sites that are avoided as a whole need not be named."""
        bad = _unless_all_bad(self.nodes)
        outside = {visit.node for visit in self.observations if visit.site not in self.avoided_sites}
        return {name: reason for name, reason in bad.items() if name in outside}

    def source_speeds(self) -> tuple[HostSpeed, ...]:
        """Of hosts that data came from, anywhere and by site; nothing where there is no choice."""
        rates: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for visit in reversed(self.observations):
            if visit.source_host and visit.fetched_bytes >= _MIN_SPEED_BYTES and visit.fetch_s > 0:
                for site in dict.fromkeys(("", visit.site)):
                    rates[site, visit.source_host].append((fetch_bytes_per_s(visit), age_weight(visit, self.now)))
        newest = sorted(list(rates)[:_MAX_SPEEDS])
        if len({host for _, host in newest}) < 2:
            return ()
        return tuple(HostSpeed(host, round(weighted_median(rates[site, host]) or 0.0), site) for site, host in newest)

    def has_warm_cache(self, site: str, dataset_id: str) -> bool:
        """Whether its cache has most likely kept this dataset."""
        visits = self.sites[site].observations if site in self.sites else ()
        return any(
            v.dataset_id == dataset_id and v.fetched_bytes and self.now - v.ended_at < _CACHE_WARM_S
            for v in visits
            if dataset_id
        )


def _clear_common_faults(observations: Collection[SiteObservation]) -> Iterator[SiteObservation]:
    """What failed alike at several sites, in a run of which nothing ended well, is no fault of these sites: its image
    is broken, or its server gone."""
    well = {visit.run for visit in observations if not visit.failure_kind}
    sites: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for visit in observations:
        if visit.is_site_fault and visit.run not in well:
            sites[visit.run, visit.failure_kind].add(visit.site)
    for visit in observations:
        everywhere = visit.is_site_fault and len(sites.get((visit.run, visit.failure_kind), ())) > 1
        yield replace(visit, is_site_fault=False) if everywhere else visit


def _unless_all_bad(stats: Mapping[str, SiteStats]) -> dict[str, str]:
    bad = {name: place.avoid_reason for name, place in stats.items() if place.avoid_reason}
    return bad if set(stats) - set(bad) else {}


EMPTY_HISTORY = SiteHistory()
