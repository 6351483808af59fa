"""What happens during one stay on a slot, as far as it can be told when it begins: drawn, not acted out.

`Wrapper` is a program under HTCondor alone, as in the published week; `Agent` is packtrain's. Both meet the same
faults by the same chances; what they make of them differs. What ends a stay early (the pool takes the slot back,
somebody removes the job) is for `pool`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, Protocol

from packtrain.report.history import FailureCategory, Outcome, Phase
from packtrain.simulate.pool_model import DATA, NODE, PROGRAM, Fault, PoolModel, SiteModel


class TimelinePhase(NamedTuple):
    phase: Phase
    duration_s: float
    is_complete: bool = True  # of a transfer: False if it came to nothing


class SessionEnd(NamedTuple):
    outcome: Outcome
    category: FailureCategory = FailureCategory.NONE
    reason: str = ""
    failure_kind: str = ""  # of failure, as packtrain knows it


SUCCEEDED = SessionEnd(Outcome.SUCCEEDED)
NOT_FOUND = SessionEnd(Outcome.HELD, FailureCategory.TRANSFER, "404 page not found", "object_missing")
TIME_LIMIT_REACHED = SessionEnd(
    Outcome.TIME_LIMIT, FailureCategory.TIME_LIMIT, "the job exceeded its allowed execute duration", "pool_time_limit"
)
LEFT_BEFORE_LIMIT = SessionEnd(Outcome.CHECKPOINTED, FailureCategory.NONE, "the time limit was near")
_FAULT_ENDS = {
    NODE: SessionEnd(Outcome.FAILED, FailureCategory.NODE, "", "network_unreachable"),
    PROGRAM: SessionEnd(Outcome.FAILED, FailureCategory.PROGRAM, "", "step_failed"),
}


@dataclass(slots=True)
class SessionTimeline:
    """Pieces in their order. `computing` says how many seconds a whole job takes on this machine."""

    phases: list[TimelinePhase] = field(default_factory=list)
    end: SessionEnd = SUCCEEDED
    full_compute_s: float = 1.0

    def add(self, phase: Phase, duration_s: float, is_complete: bool = True) -> None:
        if duration_s > 0:
            self.phases.append(TimelinePhase(phase, duration_s, is_complete))

    @property
    def duration_s(self) -> float:
        return sum(piece.duration_s for piece in self.phases)

    @property
    def setup_s(self) -> float:
        """Seconds until the program runs; all of them if it never does."""
        spent = 0.0
        for piece in self.phases:
            if piece.phase is Phase.EXECUTE:
                break
            spent += piece.duration_s
        return spent


class SharedServices(Protocol):
    """What a stay meets of the world outside of its slot."""

    @property
    def model(self) -> PoolModel: ...

    def outage_remaining_s(self, delay_s: float) -> float:
        """How long a service that a transfer asks then still says 404; 0 if it does not."""
        ...

    def cache_wait_s(self, site: SiteModel, delay_s: float) -> float:
        """How long all streams of its cache are taken."""
        ...

    def min_cache_wait_s(self, delay_s: float) -> float:
        """The same of the least busy of all caches."""
        ...

    def record_transfer(
        self, site: SiteModel, delay_s: float, duration_s: float, via_other_cache: bool = False
    ) -> None:
        """A transfer takes a stream for so long."""
        ...


class JobBehaviour(Protocol):
    @property
    def checkpoint_interval_s(self) -> float | None:
        """Between two checkpoints; None: there are none."""
        ...

    def plan_session(
        self, site: SiteModel, done_fraction: float, is_warm: bool, services: SharedServices, rng: Random
    ) -> SessionTimeline:
        """`done`: how much of the job a checkpoint has, 0 to 1."""
        ...


def _sample_fault(site: SiteModel, rng: Random) -> Fault | None:
    draw = rng.random()
    for fault in site.faults:
        draw -= fault.probability
        if draw < 0:
            return fault
    return None


@dataclass(frozen=True)
class WrapperBehaviour:
    """A transfer that takes longer than the pool's timer is ended and begun again, as often as it takes; a 404 holds
    the job for good; whatever the program made is believed."""

    checkpoint_interval_s: float | None = None

    def plan_session(
        self, site: SiteModel, done_fraction: float, is_warm: bool, services: SharedServices, rng: Random
    ) -> SessionTimeline:
        stalled = site.stall_s.sample(rng) if rng.random() < site.stall_probability else 0.0
        fault, computing = _sample_fault(site, rng), site.compute_s.sample(rng)
        transfer, cold = site.warm_transfer_s.sample(rng), site.cold_transfer_s.sample(rng)
        made = SessionTimeline(full_compute_s=computing)
        if services.outage_remaining_s(0.0):
            made.add(Phase.TRANSFER_IN, 1.0, is_complete=False)
            made.end = NOT_FOUND
            return made
        tries = self._failed_tries(max(stalled, services.cache_wait_s(site, 0.0)), services.model.transfer_timeout_s)
        for _ in range(tries):
            made.add(Phase.TRANSFER_IN, services.model.transfer_timeout_s, is_complete=False)
        transfer = transfer if is_warm or tries else cold
        services.record_transfer(site, made.duration_s, transfer)
        made.add(Phase.TRANSFER_IN, transfer)
        self._add_compute(made, fault, computing, services.model.time_limit_s, rng)
        made.add(Phase.SETUP, site.overhead_s.sample(rng))
        return made

    @staticmethod
    def _failed_tries(wait_s: float, transfer_timeout_s: float) -> int:
        """As many as were seen to fit into that time: the one after the last of them comes."""
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
    """A wrapper ends with the code of its last command: only the missing output tells."""
    if fault.kind == PROGRAM:
        return _FAULT_ENDS[PROGRAM]._replace(reason=fault.reason)
    return SessionEnd(Outcome.WRONG_OUTPUT, FailureCategory.WRONG_OUTPUT, fault.reason, "output_missing")


@dataclass(frozen=True)
class AgentBehaviour:
    """It probes before it moves anything, leaves a cache that sends nothing within seconds, waits while a service
    restarts, refetches what is damaged, and with checkpoints leaves before the time limit."""

    checkpoint_interval_s: float | None = 1800.0
    probe_s: float = 2.0
    stall_timeout_s: float = 5.0  # to leave a cache that sends nothing
    retry_timeout_s: float = 300.0  # with services that say 404
    refetch_share: float = 0.02  # of a transfer, when some of it came damaged
    exit_margin_s: float = 60.0  # before the time limit

    def plan_session(
        self, site: SiteModel, done_fraction: float, is_warm: bool, services: SharedServices, rng: Random
    ) -> SessionTimeline:
        stalled = site.stall_s.sample(rng) if rng.random() < site.stall_probability else 0.0
        fault, computing = _sample_fault(site, rng), site.compute_s.sample(rng)
        quick, cold = site.warm_transfer_s.sample(rng), site.cold_transfer_s.sample(rng)
        made = SessionTimeline(full_compute_s=computing)
        made.add(Phase.SETUP, site.overhead_s.sample(rng) + self.probe_s)
        if fault and fault.kind == NODE:
            made.end = _FAULT_ENDS[NODE]._replace(reason=fault.reason)
            return made
        struck = services.outage_remaining_s(self.probe_s)
        made.add(Phase.TRANSFER_IN, min(struck, self.retry_timeout_s))
        if struck > self.retry_timeout_s:
            made.end = NOT_FOUND._replace(outcome=Outcome.FAILED)
            return made
        self._add_fetch(made, site, stalled, quick if is_warm else cold, cold, services)
        if fault and fault.kind == DATA:
            made.add(Phase.TRANSFER_IN, quick * self.refetch_share)
        self._add_compute(made, fault, (1.0 - done_fraction) * computing, services.model.time_limit_s, rng)
        return made

    def _add_fetch(
        self,
        timeline: SessionTimeline,
        site: SiteModel,
        stall_s: float,
        near_s: float,
        far_s: float,
        services: SharedServices,
    ) -> None:
        """From the site's own cache, or, if that is blocked for longer than another, from the least busy one."""
        begins = timeline.duration_s
        blocked = max(stall_s, services.cache_wait_s(site, begins))
        detour = services.min_cache_wait_s(begins) + self.stall_timeout_s
        if blocked <= detour:
            timeline.add(Phase.TRANSFER_IN, blocked + near_s)
            services.record_transfer(site, begins + blocked, near_s)
        else:
            timeline.add(Phase.TRANSFER_IN, detour + far_s)
            services.record_transfer(site, begins + detour, far_s, via_other_cache=True)

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
            timeline.end = LEFT_BEFORE_LIMIT
        else:
            timeline.add(Phase.EXECUTE, min(compute_s, time_limit_s))
            timeline.end = TIME_LIMIT_REACHED if compute_s > time_limit_s else SUCCEEDED


def checkpointed_s(computed_s: float, interval_s: float | None) -> float:
    """Seconds of computing that the newest checkpoint has."""
    return 0.0 if interval_s is None else math.floor(computed_s / interval_s) * interval_s
