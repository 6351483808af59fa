"""What a run's attempts tell about places and mistakes, kept as an index: which sites and machines failed, which
failures are alike, what all of it cost. Drawn anew for the jobs that changed only; the attempts before a job was opened
again do not count."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from packtrain.events import Failure
from packtrain.state.execution import Execution
from packtrain.state.job import JobState
from packtrain.state.timing import TimingStats, current_training_step, execution_site, slot_seconds
from packtrain.state.transitions import ExecutionStatus

_VARYING_PARTS = re.compile(r"0x[0-9a-f]+|\d+")  # what may differ between failures that are alike
_MAX_DETAIL_CHARS = 300

FailureSignature = tuple[str, str, str]


def failure_signature(failure: Failure) -> FailureSignature:
    """The same for failures that are alike."""
    return failure.kind, failure.stage, _VARYING_PARTS.sub("#", failure.detail)[:_MAX_DETAIL_CHARS]


class ExecutionOutcome(NamedTuple):
    """What one attempt tells."""

    job: str
    number: int
    site: str
    node: str
    ended_at: float
    failure: Failure | None  # None: it succeeded, or left
    has_succeeded: bool = False

    @property
    def is_site_fault(self) -> bool:
        return self.failure is not None and self.failure.is_site_fault


def _age_key(outcome: ExecutionOutcome) -> tuple[float, str, int]:
    return outcome.ended_at, outcome.job, outcome.number


@dataclass
class LocationOutcomes:
    """A site or a machine: when attempts ended well there, and which ones it spoiled."""

    success_times: list[float] = field(default_factory=list)  # in order
    faults: list[ExecutionOutcome] = field(default_factory=list)  # the oldest first

    @property
    def last_fault_at(self) -> float:
        """Of the faults."""
        return self.faults[-1].ended_at if self.faults else -math.inf

    def add_fault(self, outcome: ExecutionOutcome) -> None:
        insort(self.faults, outcome, key=_age_key)

    def remove_fault(self, outcome: ExecutionOutcome) -> None:
        del self.faults[bisect_left(self.faults, _age_key(outcome), key=_age_key)]

    def faults_since(self, since_at: float) -> list[ExecutionOutcome]:
        return self.faults[bisect_left(self.faults, (since_at, "", 0), key=_age_key) :]

    def count_successes_since(self, since_at: float) -> int:
        return len(self.success_times) - bisect_left(self.success_times, since_at)


@dataclass
class OutcomeIndex:
    sites: defaultdict[str, LocationOutcomes] = field(default_factory=lambda: defaultdict(LocationOutcomes))
    nodes: defaultdict[str, LocationOutcomes] = field(default_factory=lambda: defaultdict(LocationOutcomes))
    user_errors: dict[FailureSignature, set[ExecutionOutcome]] = field(default_factory=dict)  # blamed on the user
    site_faults: dict[FailureSignature, set[ExecutionOutcome]] = field(default_factory=dict)  # of places
    n_successes: int = 0
    n_failures: int = 0  # attempts that cost their job one
    wasted_s: float = 0.0  # what these took
    furthest_steps: dict[str, int] = field(default_factory=dict)  # the furthest training step, by job
    faulty_locations: set[str] = field(default_factory=set)  # names of sites and machines that have, or had, faults
    timing: TimingStats = field(default_factory=TimingStats)
    _by_job: dict[str, tuple[tuple[ExecutionOutcome, ...], int, float]] = field(default_factory=dict)

    def update(self, job: JobState) -> None:
        """Replace what is known of one job."""
        if job.is_newly_submitted and job.id not in self._by_job:
            self.timing.waiting_jobs.add(job.id)
            return
        self.timing.update(job)
        over = len(job.live_executions) < len(job.executions) or bool(job.moves)
        found, spent = (tuple(outcomes_from_job(job)), job.counted_failures) if over else ((), ())
        wasted = sum(slot_seconds(job, attempt) for attempt in spent)
        self._replace(job.id, found, len(spent), wasted)
        self.furthest_steps[job.id] = max(
            (current_training_step(attempt) for attempt in job.recent_executions), default=-1
        )

    def update_progress(self, job: JobState) -> None:
        """The same, of one that only got further: where it runs and what it cost so far is known."""
        if self.timing.update_progress(job):
            under = self.timing.running_jobs[job.id]
            self.furthest_steps[job.id] = max(self.furthest_steps[job.id], under.training_step if under else -1)
        else:
            self.update(job)

    def _replace(self, job: str, outcomes: tuple[ExecutionOutcome, ...], n_failures: int, wasted_s: float) -> None:
        known, failures_before, wasted_before = self._by_job.get(job, ((), 0, 0.0))
        self._by_job[job] = (outcomes, n_failures, wasted_s)
        self.n_failures += n_failures - failures_before
        self.wasted_s += wasted_s - wasted_before
        if outcomes != known:
            for finding in known:
                self._remove(finding)
            for finding in outcomes:
                self._add(finding)

    def _locations_of(self, outcome: ExecutionOutcome) -> Iterator[LocationOutcomes]:
        if outcome.site:
            yield self.sites[outcome.site]
        if outcome.node:
            yield self.nodes[outcome.node]

    def _signature_groups(self, outcome: ExecutionOutcome) -> Iterator[set[ExecutionOutcome]]:
        """Those that are alike, where that matters."""
        if outcome.failure and outcome.failure.blame == "user":
            yield self.user_errors.setdefault(failure_signature(outcome.failure), set())
        if outcome.failure and outcome.failure.is_site_fault:
            yield self.site_faults.setdefault(failure_signature(outcome.failure), set())

    def _add(self, outcome: ExecutionOutcome) -> None:
        self.n_successes += outcome.has_succeeded
        for place in self._locations_of(outcome):
            if outcome.failure is None:
                insort(place.success_times, outcome.ended_at)
            elif outcome.is_site_fault:
                place.add_fault(outcome)
                self.faulty_locations.update((outcome.site, outcome.node))
        for alike in self._signature_groups(outcome):
            alike.add(outcome)

    def _remove(self, outcome: ExecutionOutcome) -> None:
        self.n_successes -= outcome.has_succeeded
        for place in self._locations_of(outcome):
            if outcome.failure is None:
                del place.success_times[bisect_left(place.success_times, outcome.ended_at)]
            elif outcome.is_site_fault:
                place.remove_fault(outcome)
        for alike in self._signature_groups(outcome):
            alike.discard(outcome)

    def job_wasted_s(self, job: str) -> float:
        return self._by_job[job][2] if job in self._by_job else 0.0


def outcomes_from_job(job: JobState) -> Iterator[ExecutionOutcome]:
    """Of the attempts that are over and that no supervisor ended, except for being late; and of those that it is about
    to end for that: the next one must not come to the same machine."""
    moves = job.moves
    for attempt in job.recent_executions:
        moved = moves.get(attempt.attempt_id)
        if moved is not None and attempt.status is not ExecutionStatus.SUCCEEDED:
            yield _slow_outcome(job, attempt, moved)
        elif moved is not None or not (attempt.is_live or job.has_cancel_decision(attempt.attempt_id)):
            yield from _end_outcome(job, attempt)


def _slow_outcome(job: JobState, execution: Execution, move_data: Mapping[str, Any]) -> ExecutionOutcome:
    """Of a slow machine nothing is learned about its site."""
    site = execution_site(execution) if move_data.get("avoid_sites") else ""
    slow = Failure.from_kind("too_slow", execution.stage, str(move_data.get("reason", "")))
    return ExecutionOutcome(job.id, execution.number, site, execution.node, execution.ended_at or job.changed_at, slow)


def _end_outcome(job: JobState, execution: Execution) -> Iterator[ExecutionOutcome]:
    succeeded = execution.status is ExecutionStatus.SUCCEEDED
    ended_well = succeeded or execution.status is ExecutionStatus.REQUEUED
    if ended_well or execution.failure:
        failure, place = None if ended_well else execution.failure, (execution_site(execution), execution.node)
        yield ExecutionOutcome(job.id, execution.number, *place, execution.ended_at, failure, succeeded)
