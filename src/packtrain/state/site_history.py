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

from packtrain.plan import Job, Speed
from packtrain.state.execution import Attempt
from packtrain.state.job import JobState
from packtrain.state.timing import on_machine, site_of, steps_of
from packtrain.state.transitions import AttemptStatus

HALF_LIFE_S = 7 * 86400.0
FORGOTTEN_S = 8 * HALF_LIFE_S  # by then a visit weighs nothing
_WARM_S = 2 * 86400.0  # how long a cache is believed to keep a dataset
_ENOUGH = 3  # trainings of a run that tell what is usual for it
_BAD, _SLOW = 1.5, 2.0  # fresh failures; times the usual
_SHOWN = 20  # outcomes that a standing keeps
_TELLING = 10_000_000  # bytes: what takes a moment says nothing of a host's speed
_MOST_SPEEDS = 60  # that every job's plan has


def dataset_of(job: Job) -> str:
    """The same for jobs whose inputs come from the same addresses; "": it has none."""
    refs = [ref for source in job.inputs for item in source.items for ref in item.sources]
    refs += [source.prefix for source in job.inputs if source.prefix]
    names = "\n".join(sorted(ref.url for ref in refs))
    return hashlib.sha256(names.encode()).hexdigest()[:12] if names else ""


@dataclass(frozen=True)
class Visit:
    """How one attempt fared at a place."""

    run: str
    key: str  # of the attempt within its run
    at: float  # when it ended
    engine: str
    site: str
    machine: str
    kind: str = ""  # of failure; "": it succeeded, or left
    fault: bool = False  # of the place
    steps_s: float = 0.0  # what the whole training takes there; 0: not known
    fetch_s: float = 0.0
    fetched: int = 0  # bytes
    source: str = ""  # the host that most came from
    dataset: str = ""
    point: str = ""  # of the matrix: only trainings of the same one are compared

    @property
    def alike(self) -> tuple[str, str]:
        return self.run, self.point

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Visit:
        return cls(**{field.name: data[field.name] for field in fields(cls) if field.name in data})

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


def visits_of(run: str, job: JobState, engine: str, dataset: str = "") -> Iterator[Visit]:
    """Of the attempts that are over; what a supervisor ended says nothing of its place, unless it was too slow."""
    for attempt in job.attempts:
        ran = (attempt.emitter or attempt.start) and not attempt.live
        if ran and (attempt.decision in job.moves or not job.cancel_decided(attempt.decision)):
            yield _visit(run, job, attempt, engine, dataset)


def _visit(run: str, job: JobState, attempt: Attempt, engine: str, dataset: str) -> Visit:
    failure = attempt.failure
    fetch = next((stage for stage in attempt.stages if stage.name == "fetch"), None)
    source = str(fetch.data.get("source") or "") if fetch else ""
    done = attempt.status is AttemptStatus.SUCCEEDED
    return Visit(
        run,
        f"{job.id}/{attempt.decision}/{attempt.start}/{attempt.emitter}",
        attempt.over_at,
        engine,
        site_of(attempt),
        attempt.machine,
        kind=failure.kind if failure else "",
        fault=failure is not None and failure.is_of_place,
        steps_s=(steps_of(attempt, on_machine(job, attempt)) or 0.0) if done else 0.0,
        fetch_s=(fetch.seconds or 0.0) if fetch else 0.0,
        fetched=int(fetch.data.get("bytes") or 0) if fetch else 0,
        source=(urlsplit(source).hostname or source) if source else "",
        dataset=dataset,
        point=" ".join(f"{key}={value}" for key, value in sorted(job.point.items())),
    )


def weight(visit: Visit, now: float) -> float:
    return float(0.5 ** (max(0.0, now - visit.at) / HALF_LIFE_S))


def weighed(told: Iterable[tuple[float, float]]) -> float | None:
    """The median of values with their weights; of those that weigh the same, the usual one."""
    ranked = sorted(told)
    half, before = sum(counts for _, counts in ranked) / 2, 0.0
    for at, (value, counts) in enumerate(ranked):
        before += counts
        if math.isclose(before, half) and at + 1 < len(ranked):
            return (value + ranked[at + 1][0]) / 2
        if before >= half:
            return value
    return None


@dataclass(frozen=True)
class Standing:
    """What is known of one place."""

    name: str
    visits: tuple[Visit, ...]  # in order
    usual: Mapping[tuple[str, str], float]  # seconds of steps, of those that are alike
    now: float

    def _weight(self, visit: Visit) -> float:
        return weight(visit, self.now)

    @cached_property
    def faults(self) -> float:
        """Failures that are the place's, by weight."""
        return sum(self._weight(visit) for visit in self.visits if visit.fault)

    @cached_property
    def good(self) -> float:
        return sum(self._weight(visit) for visit in self.visits if not visit.kind)

    @property
    def failed(self) -> float:
        """The share of these failures among what says something of the place."""
        return self.faults / (self.faults + self.good) if self.faults else 0.0

    @cached_property
    def slowness(self) -> float | None:
        """Times the usual of the same run and point, where there are enough to tell what is usual."""
        told = [visit for visit in self.visits if self._tells(visit)]
        return weighed([(visit.steps_s / self.usual[visit.alike], self._weight(visit)) for visit in told])

    def _tells(self, visit: Visit) -> bool:
        return visit.steps_s > 0 and self.usual.get(visit.alike, 0.0) > 0

    @property
    def reason(self) -> str:
        """Why it is avoided; "": it is not."""
        if self.faults >= _BAD and self.faults > self.good:
            kinds = Counter(visit.kind for visit in self.visits if visit.fault)
            told = ", ".join(f"{kind} {number} times" for kind, number in kinds.most_common(2))
            return f"{self.failed:.0%} of its attempts failed there ({told})"
        slow = [visit for visit in self.visits if self._tells(visit)]
        if self.slowness is not None and self.slowness >= _SLOW and sum(map(self._weight, slow)) >= _ENOUGH:
            return f"trainings take {self.slowness:.1f} times as long there"
        return ""

    @property
    def score(self) -> float:
        """1 for a place that never fails and is as quick as is usual. One attempt more is counted in favour of a place
        that is hardly known."""
        good = (self.good + 1) / (self.faults + self.good + 1)
        return good / max(0.1, self.slowness or 1.0)

    def middle(self, value: Callable[[Visit], float]) -> float | None:
        """The median of those that are known."""
        return weighed([(found, self._weight(visit)) for visit in self.visits if (found := value(visit)) > 0])

    @property
    def recent(self) -> tuple[Visit, ...]:
        return self.visits[-_SHOWN:]


def speed(visit: Visit) -> float:
    return visit.fetched / visit.fetch_s if visit.fetch_s > 0 else 0.0


@dataclass(frozen=True)
class Knowledge:
    visits: tuple[Visit, ...] = ()
    now: float = 0.0

    @classmethod
    def of(cls, visits: Iterable[Visit], now: float, engine: str = "") -> Knowledge:
        kept = [v for v in visits if now - v.at < FORGOTTEN_S and (not engine or v.engine == engine)]
        return cls(tuple(sorted(_fairly(kept), key=lambda visit: (visit.at, visit.run, visit.key))), now)

    @cached_property
    def sites(self) -> dict[str, Standing]:
        return self._by(lambda visit: visit.site)

    @cached_property
    def machines(self) -> dict[str, Standing]:
        return self._by(lambda visit: visit.machine)

    @cached_property
    def caches(self) -> dict[str, Standing]:
        """Hosts that data came from."""
        return self._by(lambda visit: visit.source)

    def _by(self, name: Callable[[Visit], str]) -> dict[str, Standing]:
        found: defaultdict[str, list[Visit]] = defaultdict(list)
        for visit in self.visits:
            found[name(visit)].append(visit)
        made = {key: Standing(key, tuple(visits), self._usual, self.now) for key, visits in found.items() if key}
        return dict(sorted(made.items()))

    @cached_property
    def _usual(self) -> dict[tuple[str, str], float]:
        steps: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for visit in self.visits:
            if visit.steps_s > 0:
                steps[visit.alike].append(visit.steps_s)
        return {alike: median(values) for alike, values in steps.items() if len(values) >= _ENOUGH}

    @cached_property
    def avoided_sites(self) -> dict[str, str]:
        """With the reasons. Only where there is another one: who avoids every place never runs."""
        return _with_alternative(self.sites)

    @cached_property
    def avoided_machines(self) -> dict[str, str]:
        """Those of sites that are avoided as a whole need not be named."""
        bad = _with_alternative(self.machines)
        outside = {visit.machine for visit in self.visits if visit.site not in self.avoided_sites}
        return {name: reason for name, reason in bad.items() if name in outside}

    def speeds(self) -> tuple[Speed, ...]:
        """Of hosts that data came from, anywhere and by site; nothing where there is no choice."""
        rates: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for visit in reversed(self.visits):
            if visit.source and visit.fetched >= _TELLING and visit.fetch_s > 0:
                for site in dict.fromkeys(("", visit.site)):
                    rates[site, visit.source].append((speed(visit), weight(visit, self.now)))
        newest = sorted(list(rates)[:_MOST_SPEEDS])
        if len({host for _, host in newest}) < 2:
            return ()
        return tuple(Speed(host, round(weighed(rates[site, host]) or 0.0), site) for site, host in newest)

    def is_warm(self, site: str, dataset: str) -> bool:
        """Whether its cache has most likely kept this dataset."""
        visits = self.sites[site].visits if site in self.sites else ()
        return any(v.dataset == dataset and v.fetched and self.now - v.at < _WARM_S for v in visits if dataset)


def _fairly(visits: Collection[Visit]) -> Iterator[Visit]:
    """What failed alike at several sites, in a run of which nothing ended well, is no fault of these sites: its image
    is broken, or its server gone."""
    well = {visit.run for visit in visits if not visit.kind}
    sites: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for visit in visits:
        if visit.fault and visit.run not in well:
            sites[visit.run, visit.kind].add(visit.site)
    for visit in visits:
        everywhere = visit.fault and len(sites.get((visit.run, visit.kind), ())) > 1
        yield replace(visit, fault=False) if everywhere else visit


def _with_alternative(places: Mapping[str, Standing]) -> dict[str, str]:
    bad = {name: place.reason for name, place in places.items() if place.reason}
    return bad if set(places) - set(bad) else {}


NOTHING = Knowledge()
