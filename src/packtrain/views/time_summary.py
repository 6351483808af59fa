"""How the time of a run was used: in the queue, in transfers, in each stage, and wasted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from packtrain.state.execution import STAGES, Execution
from packtrain.state.run import RunState
from packtrain.state.slot_time import Phase, SlotTimeline
from packtrain.state.transitions import ExecutionStatus

_POOL_PHASES = ("queue", "held", "transfer")
_STARTUP = "startup"
_WASTED_STATUSES = (ExecutionStatus.FAILED, ExecutionStatus.LOST)


@dataclass(frozen=True)
class TimeSummary:
    """The time of all executions of a run, in seconds.

    On a pool the stages also include the time in the queue, in the pool's own transfers, and on hold.
    """

    seconds_by_stage: Mapping[str, float]
    wasted_s: float  # in executions that failed or were lost

    @property
    def total_s(self) -> float:
        """The total time in seconds."""
        return sum(self.seconds_by_stage.values()) + self.wasted_s


def summarize_times(state: RunState) -> TimeSummary:
    """Return how the time of a run was used. Phases that have not ended are not counted."""
    totals = _TimeTotals()
    for job in state.jobs.values():
        for attempt_id, executions in groupby(job.executions, key=lambda execution: execution.attempt_id):
            totals.add(list(executions), job.attempts[attempt_id].timeline)
    return totals.summarize()


class _SlotSeconds(NamedTuple):
    """The time of one execution on a slot, as far as it is known."""

    transfer_s: float = 0.0
    other_s: float = 0.0
    has_ended: bool = False  # if not, the times are not final

    @classmethod
    def of(cls, timeline: SlotTimeline | None, number: int) -> _SlotSeconds:
        session = timeline.find_session(number) if timeline else None
        if timeline is None or session is None:
            return cls()
        transfer_s = session.transfer_s(timeline.last_event_at)
        other_s = session.duration_s(timeline.last_event_at) - transfer_s
        return cls(transfer_s, other_s, session.ended_at is not None)


class _TimeTotals:
    """Adds up durations by two clocks, the agents' and the pool's.

    The pool's transfers are outside of the agents' time. Slot time that no agent accounts for is counted as `startup`.
    """

    def __init__(self) -> None:
        self._seconds_by_stage: defaultdict[str, float] = defaultdict(float)
        self._wasted_s = 0.0
        self._unexplained_s = 0.0  # slot time without an agent; rounding errors of the log cancel out only in the sum

    def add(self, executions: Sequence[Execution], timeline: SlotTimeline | None) -> None:
        """Add the executions of one attempt."""
        if timeline is not None:
            self._seconds_by_stage["queue"] += timeline.wait_s(Phase.QUEUED)
            self._seconds_by_stage["held"] += timeline.wait_s(Phase.HELD)
            unused = [s for s in timeline.sessions if s.ended_at is not None and not s.has_executed]
            self._wasted_s += sum(session.duration_s(timeline.last_event_at) for session in unused)
        for number, agents in groupby(executions, key=lambda execution: execution.execution_number):
            self._add_execution(list(agents), _SlotSeconds.of(timeline, number))

    def _add_execution(self, executions: Sequence[Execution], slot: _SlotSeconds) -> None:
        """Add one start of an attempt, during which one or more agents ran."""
        useful = [execution for execution in executions if execution.status not in _WASTED_STATUSES]
        for execution in useful:
            self._add_stages(execution)
        useful_s = sum(execution.agent_duration_s for execution in useful)
        if len(useful) == len(executions):
            self._seconds_by_stage["transfer"] += slot.transfer_s
            self._unexplained_s += slot.other_s - useful_s if slot.has_ended else 0.0
            return
        useful_transfer_s = slot.transfer_s if useful else 0.0
        wasted_agents_s = sum(execution.agent_duration_s for execution in executions) - useful_s
        self._seconds_by_stage["transfer"] += useful_transfer_s
        self._wasted_s += slot.transfer_s - useful_transfer_s
        self._wasted_s += max(0.0, slot.other_s - useful_s) if slot.has_ended else wasted_agents_s

    def _add_stages(self, execution: Execution) -> None:
        for stage in execution.stages:
            self._seconds_by_stage[stage.name] += stage.duration_s or 0.0
        stages_s = sum(stage.duration_s or 0.0 for stage in execution.stages)
        self._seconds_by_stage[_STARTUP] += max(0.0, execution.agent_duration_s - stages_s)

    def summarize(self) -> TimeSummary:
        self._seconds_by_stage[_STARTUP] += max(0.0, self._unexplained_s)
        names = (*_POOL_PHASES, _STARTUP, *STAGES)
        return TimeSummary(
            {name: self._seconds_by_stage[name] for name in names if self._seconds_by_stage[name]}, self._wasted_s
        )
