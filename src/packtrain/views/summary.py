"""Figures that views show, drawn from the state: where the time went, how a run stands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from packtrain.state.execution import STAGES, Attempt, fraction_of
from packtrain.state.job import JobState
from packtrain.state.pool_time import PoolTimes, Stretch
from packtrain.state.run import RunState
from packtrain.state.transitions import AttemptStatus, JobStatus

_OF_POOLS = ("queue", "held", "transfer")
_IN_VAIN = (AttemptStatus.FAILED, AttemptStatus.LOST)
FINAL = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


@dataclass(frozen=True)
class Times:
    """Seconds of all attempts of a run, by stage, and those of attempts that came to nothing. In a pool also those in
    its queue, those of its own transfers, and those that it held them back."""

    by_stage: Mapping[str, float]
    lost: float

    @property
    def total(self) -> float:
        return sum(self.by_stage.values()) + self.lost


def times_of(state: RunState) -> Times:
    sums = _Sums()
    for job in state.jobs.values():
        for decision, attempts in groupby(job.attempts, key=lambda attempt: attempt.decision):
            sums.add(list(attempts), job.in_pool(decision))
    return sums.times()


class _Sums:
    """What an agent counts and what a pool counts are durations by two clocks: the pool's transfers lie outside of an
    agent's life, and of a slot's time what its agents do not explain is `start`."""

    def __init__(self) -> None:
        self._by_stage: defaultdict[str, float] = defaultdict(float)
        self._lost = 0.0
        self._unexplained = 0.0  # of slots; the log's whole seconds even out in the sum only

    def add(self, attempts: Sequence[Attempt], pool: PoolTimes | None) -> None:
        """The attempts of one decision."""
        if pool is not None:
            self._by_stage["queue"] += pool.queue
            self._by_stage["held"] += pool.held
            self._lost += pool.lost
        starts = pool.starts if pool else {}
        for number, of_start in groupby(attempts, key=lambda attempt: attempt.start):
            self._add_start(list(of_start), starts.get(number, Stretch()))

    def _add_start(self, attempts: Sequence[Attempt], stretch: Stretch) -> None:
        good = [attempt for attempt in attempts if attempt.status not in _IN_VAIN]
        for attempt in good:
            self._add_stages(attempt)
        explained = sum(attempt.seconds for attempt in good)
        if len(good) == len(attempts):
            self._by_stage["transfer"] += stretch.transfer
            self._unexplained += stretch.slot - explained if stretch.over else 0.0
            return
        used = stretch.transfer if good else 0.0
        told = sum(attempt.seconds for attempt in attempts) - explained
        self._by_stage["transfer"] += used
        self._lost += stretch.transfer - used + (max(0.0, stretch.slot - explained) if stretch.over else told)

    def _add_stages(self, attempt: Attempt) -> None:
        for stage in attempt.stages:
            self._by_stage[stage.name] += stage.seconds or 0.0
        self._by_stage["start"] += max(0.0, attempt.seconds - sum(stage.seconds or 0.0 for stage in attempt.stages))

    def times(self) -> Times:
        self._by_stage["start"] += max(0.0, self._unexplained)
        names = (*_OF_POOLS, "start", *STAGES)
        return Times({name: self._by_stage[name] for name in names if self._by_stage[name]}, self._lost)


def run_status(state: RunState, attended: bool) -> str:
    """succeeded, failed, cancelled; running while a supervisor lives; interrupted or unattended otherwise."""
    if state.finished:
        worst = (JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.SUCCEEDED)
        return next(status.value for status in worst if state.count(status))
    if attended:
        return "running"
    return "unattended" if state.supervised else "interrupted"


def job_data(job: JobState) -> dict[str, Any]:
    """A job for --json."""
    last = job.latest
    failure = (job.verdict.failure if job.verdict else None) or (last.failure if last else None)
    return {
        "job": job.id,
        "point": dict(job.point),
        "status": job.status.value,
        "attempts": [attempt_data(attempt) for attempt in job.attempts],
        "failure": failure.to_data() if failure else None,
        "metric": dict(last.metric) if last else {},
        "fraction": fraction_of(last) if last and last.live else None,
        "left_s": last.training.left_s if last and last.live else None,
    }


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt": attempt.number,
        "decision": attempt.decision,
        "status": attempt.status.value,
        "stage": attempt.stage,
        "host": attempt.host,
        "native": attempt.native,
        "start": attempt.start,
        "held": attempt.hold.event.data.get("detail") if attempt.hold else None,
        "site": attempt.site,
        "seconds": attempt.seconds,
        "stages": {stage.name: stage.seconds for stage in attempt.stages},
        "exit_code": attempt.exit_code,
        "failure": attempt.failure.to_data() if attempt.failure else None,
        "notices": list(attempt.notices),
        "checkpoint": dict(attempt.checkpoint),
        "restored": dict(attempt.restored),
    }
