"""An index of how executions ended: by site, by node and by failure.

Policies use it to find out which sites and nodes fail, which failures are identical, and how much time was wasted. It
is updated only for the jobs that changed. Executions before a job was reopened do not count.
"""

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

_VARYING_PARTS = re.compile(r"0x[0-9a-f]+|\d+")  # addresses and numbers may differ between identical failures
_MAX_DETAIL_CHARS = 300

FailureSignature = tuple[str, str, str]


def failure_signature(failure: Failure) -> FailureSignature:
    """Return a key that is the same for identical failures: kind, stage, and the message without numbers."""
    return failure.kind, failure.stage, _VARYING_PARTS.sub("#", failure.detail)[:_MAX_DETAIL_CHARS]


class ExecutionOutcome(NamedTuple):
    """How one execution ended, and where."""

    job: str
    number: int  # of the execution within the job
    site: str
    node: str
    ended_at: float  # by the store's clock
    failure: Failure | None  # None: succeeded or requeued
    has_succeeded: bool = False

    @property
    def is_site_fault(self) -> bool:
        """Whether the site or the node is to blame for the failure."""
        return self.failure is not None and self.failure.is_site_fault


def _age_key(outcome: ExecutionOutcome) -> tuple[float, str, int]:
    return outcome.ended_at, outcome.job, outcome.number


@dataclass
class LocationOutcomes:
    """The outcomes at one site or on one node: successes, and failures that it is to blame for."""

    success_times: list[float] = field(default_factory=list)  # sorted
    faults: list[ExecutionOutcome] = field(default_factory=list)  # oldest first

    @property
    def last_fault_at(self) -> float:
        """When the newest fault ended."""
        return self.faults[-1].ended_at if self.faults else -math.inf

    def add_fault(self, outcome: ExecutionOutcome) -> None:
        """Add a failure that this location is to blame for."""
        insort(self.faults, outcome, key=_age_key)

    def remove_fault(self, outcome: ExecutionOutcome) -> None:
        """Remove a failure that was added before."""
        del self.faults[bisect_left(self.faults, _age_key(outcome), key=_age_key)]

    def faults_since(self, since_at: float) -> list[ExecutionOutcome]:
        """Return the faults that ended at the given time or later."""
        return self.faults[bisect_left(self.faults, (since_at, "", 0), key=_age_key) :]

    def count_successes_since(self, since_at: float) -> int:
        """Return the number of successes at the given time or later."""
        return len(self.success_times) - bisect_left(self.success_times, since_at)


@dataclass
class OutcomeIndex:
    """The outcomes of all executions of a run."""

    sites: defaultdict[str, LocationOutcomes] = field(default_factory=lambda: defaultdict(LocationOutcomes))
    nodes: defaultdict[str, LocationOutcomes] = field(default_factory=lambda: defaultdict(LocationOutcomes))
    user_errors: dict[FailureSignature, set[ExecutionOutcome]] = field(default_factory=dict)  # the user is to blame
    site_faults: dict[FailureSignature, set[ExecutionOutcome]] = field(default_factory=dict)  # a site is to blame
    n_successes: int = 0
    n_failures: int = 0  # executions that count against the budgets of their jobs
    wasted_s: float = 0.0  # slot time of these
    furthest_steps: dict[str, int] = field(default_factory=dict)  # the highest training step by job; -1: none
    faulty_locations: set[str] = field(default_factory=set)  # names of sites and nodes that have, or had, faults
    timing: TimingStats = field(default_factory=TimingStats)
    _by_job: dict[str, tuple[tuple[ExecutionOutcome, ...], int, float]] = field(default_factory=dict)

    def update(self, job: JobState) -> None:
        """Replace everything that is known about one job."""
        self.timing.update(job)
        wasted_s = sum(slot_seconds(job, execution) for execution in job.counted_failures)
        self._replace(job.id, tuple(outcomes_from_job(job)), len(job.counted_failures), wasted_s)
        self.furthest_steps[job.id] = max(map(current_training_step, job.recent_executions), default=-1)

    def _replace(self, job: str, outcomes: tuple[ExecutionOutcome, ...], n_failures: int, wasted_s: float) -> None:
        old_outcomes, old_n_failures, old_wasted_s = self._by_job.get(job, ((), 0, 0.0))
        self._by_job[job] = (outcomes, n_failures, wasted_s)
        self.n_failures += n_failures - old_n_failures
        self.wasted_s += wasted_s - old_wasted_s
        if outcomes != old_outcomes:
            for outcome in old_outcomes:
                self._remove(outcome)
            for outcome in outcomes:
                self._add(outcome)

    def _locations_of(self, outcome: ExecutionOutcome) -> Iterator[LocationOutcomes]:
        if outcome.site:
            yield self.sites[outcome.site]
        if outcome.node:
            yield self.nodes[outcome.node]

    def _signature_groups(self, outcome: ExecutionOutcome) -> Iterator[set[ExecutionOutcome]]:
        """Yield the groups of identical failures that an outcome belongs to."""
        if outcome.failure and outcome.failure.blame == "user":
            yield self.user_errors.setdefault(failure_signature(outcome.failure), set())
        if outcome.failure and outcome.failure.is_site_fault:
            yield self.site_faults.setdefault(failure_signature(outcome.failure), set())

    def _add(self, outcome: ExecutionOutcome) -> None:
        self.n_successes += outcome.has_succeeded
        for location in self._locations_of(outcome):
            if outcome.failure is None:
                insort(location.success_times, outcome.ended_at)
            elif outcome.is_site_fault:
                location.add_fault(outcome)
                self.faulty_locations.update((outcome.site, outcome.node))
        for group in self._signature_groups(outcome):
            group.add(outcome)

    def _remove(self, outcome: ExecutionOutcome) -> None:
        self.n_successes -= outcome.has_succeeded
        for location in self._locations_of(outcome):
            if outcome.failure is None:
                del location.success_times[bisect_left(location.success_times, outcome.ended_at)]
            elif outcome.is_site_fault:
                location.remove_fault(outcome)
        for group in self._signature_groups(outcome):
            group.discard(outcome)


def outcomes_from_job(job: JobState) -> Iterator[ExecutionOutcome]:
    """Yield the outcomes of a job's recent executions.

    Executions that a supervisor ended are left out, except for those that it moved because they were too slow. These
    count from the decision on, while they are still live, so that the next attempt does not get the same node.
    """
    moves = job.moves
    for execution in job.recent_executions:
        move_data = moves.get(execution.attempt_id)
        if move_data is not None and execution.status is not ExecutionStatus.SUCCEEDED:
            yield _slow_outcome(job, execution, move_data)
        elif move_data is not None or not (execution.is_live or job.has_cancel_decision(execution.attempt_id)):
            yield from _end_outcome(job, execution)


def _slow_outcome(job: JobState, execution: Execution, move_data: Mapping[str, Any]) -> ExecutionOutcome:
    """Return the outcome of a moved execution. A slow node shows nothing about its site."""
    site = execution_site(execution) if move_data.get("avoid_sites") else ""
    failure = Failure.from_kind("too_slow", execution.stage, str(move_data.get("reason", "")))
    ended_at = execution.ended_at or job.changed_at
    return ExecutionOutcome(job.id, execution.number, site, execution.node, ended_at, failure)


def _end_outcome(job: JobState, execution: Execution) -> Iterator[ExecutionOutcome]:
    has_succeeded = execution.status is ExecutionStatus.SUCCEEDED
    ended_well = has_succeeded or execution.status is ExecutionStatus.REQUEUED
    if ended_well or execution.failure:
        yield ExecutionOutcome(
            job.id,
            execution.number,
            execution_site(execution),
            execution.node,
            execution.ended_at,
            None if ended_well else execution.failure,
            has_succeeded,
        )
