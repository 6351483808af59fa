"""Estimate when executions end, from their own progress and from how long others take."""

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
_MIN_PEERS = 3  # executions that are needed to know how long one takes
_MAX_SPREAD = 1.5  # maximum ratio of the quartiles of jobs that take about equally long
_QUANTILE = 0.75  # the expected run time elsewhere is this quantile of the run times there


@dataclass(frozen=True)
class Forecast:
    """Run times of finished trainings and progress of running ones, both by job."""

    runtimes: Mapping[str, TrainingRuntime]
    running: Mapping[str, RunningExecution]
    now: float
    _elsewhere_cache: dict[str, TrainingRuntime | None] = field(default_factory=dict)
    _slow_site_cache: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def from_state(cls, state: RunState, now: float) -> Forecast:
        """Return the forecast of a run."""
        timing = state.stats.timing
        return cls(timing.runtimes, {job: running for job, running in timing.running_jobs.items() if running}, now)

    def split_comparable(self, points: Mapping[str, Mapping[str, str]]) -> list[Forecast]:
        """Split the forecast into groups of jobs that can be compared.

        If all jobs take about equally long, there is one group. If not, jobs of the same matrix point form a group,
        because other points may have more to do.

        Args:
            points: The matrix point of each job.
        """
        if not any(points.values()):
            return [self]
        jobs = {*self.runtimes, *self.running}
        key_by_job = {job: tuple(sorted(points.get(job, {}).items())) for job in jobs}
        keys = sorted(set(key_by_job.values()))
        if len(keys) < 2 or self._has_small_spread:
            return [self]
        return [self._restrict_to({job for job in jobs if key_by_job[job] == key}) for key in keys]

    def _restrict_to(self, jobs: set[str]) -> Forecast:
        runtimes = {job: runtime for job, runtime in self.runtimes.items() if job in jobs}
        return Forecast(runtimes, {job: running for job, running in self.running.items() if job in jobs}, self.now)

    @property
    def _has_small_spread(self) -> bool:
        totals, last = self.sorted_totals_s, len(self.sorted_totals_s) - 1
        return bool(totals) and totals[int(_QUANTILE * last)] <= _MAX_SPREAD * totals[int((1 - _QUANTILE) * last)]

    def elapsed_s(self, job: str) -> float:
        """Return how long the running execution of a job has run, in seconds."""
        return self._execution_elapsed_s(self.running[job])

    def _execution_elapsed_s(self, running: RunningExecution) -> float:
        return max(0.0, self.now - running.execution.started_at)

    @cached_property
    def remaining_s(self) -> dict[str, float]:
        """The estimated remaining time by job, in seconds. Jobs without an estimate are left out."""
        estimates = ((job, self._estimate_remaining_s(running)) for job, running in self.running.items())
        return {job: remaining_s for job, remaining_s in estimates if remaining_s is not None}

    def has_reached_steps(self, job: str) -> bool:
        """Return whether a job has reached its steps, so that work would be lost if it were ended."""
        return self.running[job].execution.stage not in _BEFORE_STEPS

    def _estimate_remaining_s(self, running: RunningExecution) -> float | None:
        """Return the remaining time by the execution's own progress, or else by the run times of others."""
        if running.has_estimate:
            return running.estimate_remaining_s(self.now)
        return self._typical_remaining_s(self._execution_elapsed_s(running))

    def _typical_remaining_s(self, elapsed_s: float) -> float | None:
        """Return the median remaining time of others that had run for as long.

        An execution that has run longer than all others is assumed to need the same time again.
        """
        totals = self.sorted_totals_s
        if len(totals) < _MIN_PEERS:
            return None
        first = bisect_right(totals, elapsed_s)  # index of the first one that took longer
        if first == len(totals):
            return elapsed_s
        middle = first + len(totals) - 1  # twice the index of their median
        return (totals[middle // 2] + totals[(middle + 1) // 2]) / 2 - elapsed_s

    @cached_property
    def peers(self) -> dict[str, TrainingRuntime]:
        """How long a complete training takes, by job: measured, or estimated from a running execution."""
        return {**dict(self._estimated_runtimes()), **self.runtimes}

    def _estimated_runtimes(self) -> Iterator[tuple[str, TrainingRuntime]]:
        for job, running in self.running.items():
            if running.has_estimate:
                overhead_s = max(0.0, running.stage_started_at - running.execution.started_at)
                yield job, TrainingRuntime(running.site, overhead_s, running.estimate_stage_s(self.now))

    @cached_property
    def _sorted_peers(self) -> list[tuple[float, TrainingRuntime]]:
        """All peers with their total run times, the fastest first."""
        return sorted(((peer.total_s, peer) for peer in self.peers.values()), key=itemgetter(0))

    @cached_property
    def sorted_totals_s(self) -> list[float]:
        """The total run times of all peers, sorted, in seconds."""
        return [total_s for total_s, _ in self._sorted_peers]

    @cached_property
    def sites(self) -> set[str]:
        """All sites where the run's executions ran or run."""
        running_sites = {running.site for running in self.running.values()}
        return ({peer.site for peer in self.peers.values()} | running_sites) - {""}

    def runtime_elsewhere(self, site: str) -> TrainingRuntime | None:
        """Return how long a training takes at other sites, or at any site if too little is known about others."""
        if site not in self._elsewhere_cache:
            peers = [peer for _, peer in self._sorted_peers]
            others = [peer for peer in peers if peer.site != site]
            self._elsewhere_cache[site] = _upper_quantile(others) or _upper_quantile(peers)
        return self._elsewhere_cache[site]

    def is_slow_site(self, site: str) -> bool:
        """Return whether the whole site is slow, or too little is known about it."""
        if site not in self._slow_site_cache:
            totals_here = [total_s for total_s, peer in self._sorted_peers if peer.site == site]
            elsewhere = self.runtime_elsewhere(site)
            is_unknown = len(totals_here) < _MIN_PEERS or elsewhere is None
            self._slow_site_cache[site] = is_unknown or (
                elsewhere is not None and median(totals_here) > elsewhere.total_s
            )
        return self._slow_site_cache[site]


def _upper_quantile(peers: Sequence[TrainingRuntime]) -> TrainingRuntime | None:
    """Return the run time at the upper quantile of peers that are sorted by run time."""
    return peers[int(_QUANTILE * (len(peers) - 1))] if len(peers) >= _MIN_PEERS else None
