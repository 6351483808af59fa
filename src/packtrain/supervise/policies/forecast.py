"""When attempts will end, from how far they say they are and from how long others take."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from statistics import median

from packtrain.state import RunState
from packtrain.state.execution import STAGES
from packtrain.state.timing import RunningExecution, TrainingRuntime

_BEFORE_STEPS = STAGES[: STAGES.index("steps")]
_MIN_PEERS = 3  # attempts that tell how long one takes
_MAX_SPREAD = 1.5  # times: the middle half of durations differs by no more
_QUANTILE = 0.75  # so many of those elsewhere are quicker than what is expected there


@dataclass(frozen=True)
class Forecast:
    """`whole`: how long trainings took; `running`: an attempt of each job that runs. Both by job."""

    runtimes: Mapping[str, TrainingRuntime]
    running: Mapping[str, RunningExecution]
    now: float
    _elsewhere_cache: dict[str, TrainingRuntime | None] = field(default_factory=dict)
    _slow_site_cache: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def from_state(cls, state: RunState, now: float) -> Forecast:
        pace = state.stats.timing
        return cls(pace.runtimes, {job: under for job, under in pace.running_jobs.items() if under}, now)

    def split_comparable(self, points: Mapping[str, Mapping[str, str]]) -> list[Forecast]:
        """Of jobs that can be compared: all, if they take about the same; else those of the same point of the matrix,
        since another one may well be more to do."""
        if not any(points.values()):
            return [self]
        jobs = {*self.runtimes, *self.running}
        keys = {job: tuple(sorted(points.get(job, {}).items())) for job in jobs}
        if len(set(keys.values())) < 2 or self._has_small_spread:
            return [self]
        return [self._restrict_to({job for job in jobs if keys[job] == key}) for key in sorted(set(keys.values()))]

    def _restrict_to(self, jobs: set[str]) -> Forecast:
        whole = {job: stint for job, stint in self.runtimes.items() if job in jobs}
        return Forecast(whole, {job: under for job, under in self.running.items() if job in jobs}, self.now)

    @property
    def _has_small_spread(self) -> bool:
        totals, last = self.sorted_totals_s, len(self.sorted_totals_s) - 1
        return bool(totals) and totals[int(_QUANTILE * last)] <= _MAX_SPREAD * totals[int((1 - _QUANTILE) * last)]

    def elapsed_s(self, job: str) -> float:
        return self._execution_elapsed_s(self.running[job])

    def _execution_elapsed_s(self, running: RunningExecution) -> float:
        return max(0.0, self.now - running.execution.started_at)

    @cached_property
    def remaining_s(self) -> dict[str, float]:
        """Seconds until each one's end; those of which nothing can be said are left out."""
        found = ((job, self._estimate_remaining_s(under)) for job, under in self.running.items())
        return {job: left for job, left in found if left is not None}

    def has_reached_steps(self, job: str) -> bool:
        """Its steps, so that there is something to lose."""
        return self.running[job].execution.stage not in _BEFORE_STEPS

    def _estimate_remaining_s(self, running: RunningExecution) -> float | None:
        """By its own words, else by what is usual."""
        return (
            running.estimate_remaining_s(self.now)
            if running.has_estimate
            else self._typical_remaining_s(self._execution_elapsed_s(running))
        )

    def _typical_remaining_s(self, elapsed_s: float) -> float | None:
        """As others that had run for as long. One that is older than all others will take, as far as anybody knows, as
        long again."""
        totals = self.sorted_totals_s
        if len(totals) < _MIN_PEERS:
            return None
        longer = bisect_right(totals, elapsed_s)  # from here on
        middle = longer + len(totals) - 1  # twice the place of their median
        return (totals[middle // 2] + totals[(middle + 1) // 2]) / 2 - elapsed_s if longer < len(totals) else elapsed_s

    @cached_property
    def peers(self) -> dict[str, TrainingRuntime]:
        """How long a whole training takes, by job: seen, or told by those that are under way."""
        return {**dict(self._estimated_runtimes()), **self.runtimes}

    def _estimated_runtimes(self) -> Iterator[tuple[str, TrainingRuntime]]:
        for job, under in self.running.items():
            if under.has_estimate:
                yield (
                    job,
                    TrainingRuntime(
                        under.site,
                        max(0.0, under.stage_started_at - under.execution.started_at),
                        under.estimate_stage_s(self.now),
                    ),
                )

    @cached_property
    def _sorted_peers(self) -> list[tuple[float, TrainingRuntime]]:
        """With how long they take, the quickest first."""
        return sorted(((peer.total_s, peer) for peer in self.peers.values()), key=itemgetter(0))

    @cached_property
    def sorted_totals_s(self) -> list[float]:
        return [seconds for seconds, _ in self._sorted_peers]

    @cached_property
    def sites(self) -> set[str]:
        here = {under.site for under in self.running.values()}
        return ({peer.site for peer in self.peers.values()} | here) - {""}

    def runtime_elsewhere(self, site: str) -> TrainingRuntime | None:
        """What a training takes at another site, or on another machine where nothing else is known."""
        if site not in self._elsewhere_cache:
            others = [peer for _, peer in self._sorted_peers if peer.site != site]
            self._elsewhere_cache[site] = _upper_quantile(others) or _upper_quantile(
                [peer for _, peer in self._sorted_peers]
            )
        return self._elsewhere_cache[site]

    def is_slow_site(self, site: str) -> bool:
        """Whether it is the whole site, as far as it is known."""
        if site not in self._slow_site_cache:
            here = [seconds for seconds, peer in self._sorted_peers if peer.site == site]
            usual = self.runtime_elsewhere(site)
            self._slow_site_cache[site] = len(here) < _MIN_PEERS or usual is None or median(here) > usual.total_s
        return self._slow_site_cache[site]


def _upper_quantile(peers: Sequence[TrainingRuntime]) -> TrainingRuntime | None:
    """`peers`: the quickest first."""
    return peers[int(_QUANTILE * (len(peers) - 1))] if len(peers) >= _MIN_PEERS else None


def format_duration(seconds: float) -> str:
    """41 s, 12 min, 2.1 h"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
