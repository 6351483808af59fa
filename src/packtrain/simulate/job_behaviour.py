"""How a job behaves during one session on a slot: the whole timeline is sampled when the session starts.

`WrapperBehaviour` is a plain program under HTCondor, as in the published week; `AgentBehaviour` is packtrain's agent.
Both meet the same faults with the same probabilities and react differently. `simulated_pool` ends sessions early
(eviction, removal).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, Protocol

from packtrain.report.history import FailureCategory, Outcome, Phase
from packtrain.simulate.pool_model import DATA, NODE, PROGRAM, Fault, PoolModel, SiteModel


class TimelinePhase(NamedTuple):
    """One phase of a session."""

    phase: Phase
    duration_s: float
    is_complete: bool = True  # False for a failed transfer


class SessionEnd(NamedTuple):
    """How a session ends."""

    outcome: Outcome
    category: FailureCategory = FailureCategory.NONE
    reason: str = ""
    failure_kind: str = ""  # a key of events.FAILURE_KINDS


SUCCEEDED = SessionEnd(Outcome.SUCCEEDED)
NOT_FOUND = SessionEnd(Outcome.HELD, FailureCategory.TRANSFER, "404 page not found", "object_missing")
TIME_LIMIT_REACHED = SessionEnd(
    Outcome.TIME_LIMIT, FailureCategory.TIME_LIMIT, "the job exceeded its allowed execute duration", "pool_time_limit"
)
EXITED_BEFORE_LIMIT = SessionEnd(Outcome.CHECKPOINTED, FailureCategory.NONE, "the time limit was near")
_FAULT_ENDS = {
    NODE: SessionEnd(Outcome.FAILED, FailureCategory.NODE, "", "network_unreachable"),
    PROGRAM: SessionEnd(Outcome.FAILED, FailureCategory.PROGRAM, "", "step_failed"),
}


@dataclass(slots=True)
class SessionTimeline:
    """The phases of a session in order. A whole job computes for `full_compute_s` on this node."""

    phases: list[TimelinePhase] = field(default_factory=list)
    end: SessionEnd = SUCCEEDED
    full_compute_s: float = 1.0

    def add(self, phase: Phase, duration_s: float, is_complete: bool = True) -> None:
        """Append a phase unless its duration is 0."""
        if duration_s > 0:
            self.phases.append(TimelinePhase(phase, duration_s, is_complete))

    @property
    def duration_s(self) -> float:
        return sum(phase.duration_s for phase in self.phases)

    @property
    def setup_s(self) -> float:
        """Seconds until the program starts, or the whole duration if it never does."""
        elapsed = 0.0
        for phase in self.phases:
            if phase.phase is Phase.EXECUTE:
                break
            elapsed += phase.duration_s
        return elapsed


class SharedServices(Protocol):
    """Services outside the slot that a session uses."""

    @property
    def model(self) -> PoolModel: ...

    def outage_remaining_s(self, delay_s: float) -> float:
        """Return how long a transfer that starts after `delay_s` receives 404s; 0 if there is no outage."""
        ...

    def cache_wait_s(self, site: SiteModel, delay_s: float) -> float:
        """Return how long all streams of the site's cache are busy."""
        ...

    def min_cache_wait_s(self, delay_s: float) -> float:
        """Return the same for the least busy cache."""
        ...

    def record_transfer(
        self, site: SiteModel, delay_s: float, duration_s: float, via_other_cache: bool = False
    ) -> None:
        """Occupy a stream of a cache for `duration_s`."""
        ...


class JobBehaviour(Protocol):
    """Samples the timelines of sessions."""

    @property
    def checkpoint_interval_s(self) -> float | None:
        """Time between two checkpoints; None: the job saves none."""
        ...

    def plan_session(
        self, site: SiteModel, done_fraction: float, is_warm: bool, services: SharedServices, rng: Random
    ) -> SessionTimeline:
        """Return the timeline of a session that resumes at `done_fraction` (0 to 1) of the job."""
        ...


def _sample_fault(site: SiteModel, rng: Random) -> Fault | None:
    sample = rng.random()
    for fault in site.faults:
        sample -= fault.probability
        if sample < 0:
            return fault
    return None


@dataclass(frozen=True)
class WrapperBehaviour:
    """A plain program under HTCondor.

    The pool aborts and restarts transfers that exceed its timeout, a 404 holds the job permanently, and outputs are
    not checked.
    """

    checkpoint_interval_s: float | None = None

    def plan_session(
        self, site: SiteModel, done_fraction: float, is_warm: bool, services: SharedServices, rng: Random
    ) -> SessionTimeline:
        stalled = site.stall_s.sample(rng) if rng.random() < site.stall_probability else 0.0
        fault, computing = _sample_fault(site, rng), site.compute_s.sample(rng)
        transfer, cold = site.warm_transfer_s.sample(rng), site.cold_transfer_s.sample(rng)
        timeline = SessionTimeline(full_compute_s=computing)
        if services.outage_remaining_s(0.0):
            timeline.add(Phase.TRANSFER_IN, 1.0, is_complete=False)
            timeline.end = NOT_FOUND
            return timeline
        n_failed = self._failed_tries(max(stalled, services.cache_wait_s(site, 0.0)), services.model.transfer_timeout_s)
        for _ in range(n_failed):
            timeline.add(Phase.TRANSFER_IN, services.model.transfer_timeout_s, is_complete=False)
        transfer = transfer if is_warm or n_failed else cold
        services.record_transfer(site, timeline.duration_s, transfer)
        timeline.add(Phase.TRANSFER_IN, transfer)
        self._add_compute(timeline, fault, computing, services.model.time_limit_s, rng)
        timeline.add(Phase.SETUP, site.overhead_s.sample(rng))
        return timeline

    @staticmethod
    def _failed_tries(wait_s: float, transfer_timeout_s: float) -> int:
        """Return how many transfers time out during the wait; the next one succeeds."""
        return max(1, round(wait_s / transfer_timeout_s)) if wait_s > 0 else 0

    @staticmethod
    def _add_compute(
        timeline: SessionTimeline, fault: Fault | None, compute_s: float, time_limit_s: float | None, rng: Random
    ) -> None:
        if fault:
            timeline.add(Phase.EXECUTE, fault.duration_s.sample(rng))
            timeline.end = _wrapper_end(fault)
        elif time_limit_s is not None and compute_s > time_limit_s:
            timeline.add(Phase.EXECUTE, time_limit_s)
            timeline.end = TIME_LIMIT_REACHED
        else:
            timeline.add(Phase.EXECUTE, compute_s)


def _wrapper_end(fault: Fault) -> SessionEnd:
    """Return the end of a wrapper: it exits with the code of its last command, so only the output is missing."""
    if fault.kind == PROGRAM:
        return _FAULT_ENDS[PROGRAM]._replace(reason=fault.reason)
    return SessionEnd(Outcome.WRONG_OUTPUT, FailureCategory.WRONG_OUTPUT, fault.reason, "output_missing")


@dataclass(frozen=True)
class AgentBehaviour:
    """packtrain's agent.

    It probes the node before any transfer, switches from a stalled cache within seconds, waits while a service
    restarts, refetches damaged data, and with checkpoints exits before the time limit.
    """

    checkpoint_interval_s: float | None = 1800.0
    probe_s: float = 2.0
    stall_timeout_s: float = 5.0  # until it switches from a stalled cache
    retry_timeout_s: float = 300.0  # how long it retries on 404
    refetch_share: float = 0.02  # share of a transfer that is fetched again when data is damaged
    exit_margin_s: float = 60.0  # it exits this long before the time limit

    def plan_session(
        self, site: SiteModel, done_fraction: float, is_warm: bool, services: SharedServices, rng: Random
    ) -> SessionTimeline:
        stalled = site.stall_s.sample(rng) if rng.random() < site.stall_probability else 0.0
        fault, computing = _sample_fault(site, rng), site.compute_s.sample(rng)
        warm, cold = site.warm_transfer_s.sample(rng), site.cold_transfer_s.sample(rng)
        timeline = SessionTimeline(full_compute_s=computing)
        timeline.add(Phase.SETUP, site.overhead_s.sample(rng) + self.probe_s)
        if fault and fault.kind == NODE:
            timeline.end = _FAULT_ENDS[NODE]._replace(reason=fault.reason)
            return timeline
        outage_s = services.outage_remaining_s(self.probe_s)
        timeline.add(Phase.TRANSFER_IN, min(outage_s, self.retry_timeout_s))
        if outage_s > self.retry_timeout_s:
            timeline.end = NOT_FOUND._replace(outcome=Outcome.FAILED)
            return timeline
        self._add_fetch(timeline, site, stalled, warm if is_warm else cold, cold, services)
        if fault and fault.kind == DATA:
            timeline.add(Phase.TRANSFER_IN, warm * self.refetch_share)
        self._add_compute(timeline, fault, (1.0 - done_fraction) * computing, services.model.time_limit_s, rng)
        return timeline

    def _add_fetch(
        self,
        timeline: SessionTimeline,
        site: SiteModel,
        stall_s: float,
        near_s: float,
        far_s: float,
        services: SharedServices,
    ) -> None:
        """Fetch from the site's own cache or, if that is blocked for longer, from the least busy one."""
        start_s = timeline.duration_s
        blocked = max(stall_s, services.cache_wait_s(site, start_s))
        detour = services.min_cache_wait_s(start_s) + self.stall_timeout_s
        if blocked <= detour:
            timeline.add(Phase.TRANSFER_IN, blocked + near_s)
            services.record_transfer(site, start_s + blocked, near_s)
        else:
            timeline.add(Phase.TRANSFER_IN, detour + far_s)
            services.record_transfer(site, start_s + detour, far_s, via_other_cache=True)

    def _add_compute(
        self, timeline: SessionTimeline, fault: Fault | None, compute_s: float, time_limit_s: float | None, rng: Random
    ) -> None:
        if fault and fault.kind == PROGRAM:
            timeline.add(Phase.EXECUTE, fault.duration_s.sample(rng))
            timeline.end = _FAULT_ENDS[PROGRAM]._replace(reason=fault.reason)
        elif time_limit_s is None or compute_s <= time_limit_s - self.exit_margin_s:
            timeline.add(Phase.EXECUTE, compute_s)
        elif self.checkpoint_interval_s is not None:
            timeline.add(Phase.EXECUTE, time_limit_s - self.exit_margin_s)
            timeline.end = EXITED_BEFORE_LIMIT
        else:
            timeline.add(Phase.EXECUTE, min(compute_s, time_limit_s))
            timeline.end = TIME_LIMIT_REACHED if compute_s > time_limit_s else SUCCEEDED


def checkpointed_s(computed_s: float, interval_s: float | None) -> float:
    """Return the compute time in the newest checkpoint."""
    return 0.0 if interval_s is None else math.floor(computed_s / interval_s) * interval_s
