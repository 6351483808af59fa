"""What a pool did with one decision: it may start it several times, end a start, keep it back, let it go again.

An agent that spoke through the engine's log is known to belong to a start; of the others the last ones belong to the
last starts, since a start that never spoke was most likely one that ended early.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from packtrain.events import Event, kinds
from packtrain.state.pool_time import PhaseChange, PoolPhase, PoolTimes, compute_pool_times, phase_change_from_event


class HasEmitter(Protocol):
    @property
    def emitter(self) -> str: ...


S = TypeVar("S", bound=HasEmitter)


class PoolExecution(NamedTuple):
    number: int
    start_event: Event | None = None
    end_event: Event | None = None

    @property
    def emitters(self) -> tuple[str, ...]:
        return tuple(self.end_event.data.get("emitters", ())) if self.end_event else ()


class Hold(NamedTuple):
    event: Event
    received_at: float  # by the store's clock

    @property
    def seq(self) -> int:
        return self.event.seq

    @property
    def failure_kind(self) -> str:
        """Of failure."""
        return str(self.event.data.get("kind", ""))

    @property
    def has_ended_execution(self) -> bool:
        """Or it came between two of them."""
        return bool(self.event.data.get("execution"))


@dataclass(slots=True)
class PoolEvents:
    """A decision's stay in a pool. Collects in any order; identical events change nothing."""

    _start_events: dict[int, Event] = field(default_factory=dict)
    _end_events: dict[int, Event] = field(default_factory=dict)
    _state_changes: dict[int, Event] = field(
        default_factory=dict
    )  # held, released and placed, by their place in the log
    _received_at: dict[int, float] = field(default_factory=dict)
    _phase_changes: dict[int, PhaseChange] = field(default_factory=dict)  # all of them, by their place in the log

    def add(self, event: Event, received_at: float) -> None:
        self._phase_changes[event.seq] = phase_change_from_event(event)
        if event.kind == kinds.ATTEMPT_TRANSFER:
            return
        start = int(event.data.get("execution") or 0)
        if event.kind == kinds.EXECUTION_STARTED:
            self._start_events[start] = event
        elif start and event.kind in (kinds.EXECUTION_INTERRUPTED, kinds.ATTEMPT_HELD):
            self._end_events[start] = event
        if event.kind != kinds.EXECUTION_INTERRUPTED:
            self._state_changes[event.seq] = event
            self._received_at.setdefault(event.seq, received_at)

    @property
    def executions(self) -> list[PoolExecution]:
        if not self._start_events and not self._end_events:
            return []
        numbers = sorted({*self._start_events, *self._end_events})
        return [
            PoolExecution(number, self._start_events.get(number), self._end_events.get(number)) for number in numbers
        ]

    @property
    def holds(self) -> list[Hold]:
        held = (e for _, e in sorted(self._state_changes.items()) if e.kind == kinds.ATTEMPT_HELD)
        return [Hold(event, self._received_at[event.seq]) for event in held]

    def executions_since(self, hold: Hold) -> set[int]:
        """Those between a hold and the one before it for the same reason."""
        since = max(
            (one.seq for one in self.holds if one.seq < hold.seq and one.failure_kind == hold.failure_kind), default=0
        )
        return {start for start, event in self._start_events.items() if since < event.seq < hold.seq}

    @property
    def current_hold(self) -> Hold | None:
        """The one that lasts."""
        newest = self._state_changes[max(self._state_changes)] if self._state_changes else None
        if newest is None or newest.kind != kinds.ATTEMPT_HELD:
            return None
        return Hold(newest, self._received_at[newest.seq])

    def compute_times(self, submitted_at: float | None, gone_at: float | None) -> PoolTimes:
        """Where the time went since it was submitted; logs of pools have whole seconds."""
        marks = sorted(self._phase_changes.items())
        first = marks[0][1].wall
        if gone_at is not None:
            marks.append((marks[-1][0] + 1, PhaseChange(gone_at, PoolPhase.ENDED)))
        since = first if submitted_at is None else min(first, float(math.floor(submitted_at)))
        return compute_pool_times(since, marks, {start: event.seq for start, event in self._start_events.items()})


def pair_with_agents(
    executions: Sequence[PoolExecution], agents: Sequence[S]
) -> Iterator[tuple[PoolExecution | None, S | None]]:
    """Each start with the agents that spoke in it, in order; `speakers` are in the order of their own clocks."""
    if len(executions) == 1 and len(agents) < 2:  # as nearly always
        yield executions[0], agents[0] if agents else None
        return
    known = {emitter: start.number for start in executions for emitter in start.emitters}
    free = [speaker for speaker in agents if speaker.emitter not in known]
    mute = [start for start in executions if start.number not in known.values()]
    for start, speaker in zip(reversed(mute), reversed(free), strict=False):
        known[speaker.emitter] = start.number
    last = executions[-1].number if executions else 0
    for start in executions:
        spoke = [speaker for speaker in agents if known.get(speaker.emitter, last) == start.number]
        yield from ((start, speaker) for speaker in spoke)
        if not spoke:
            yield start, None
    if not executions:
        yield from ((None, speaker) for speaker in agents)
