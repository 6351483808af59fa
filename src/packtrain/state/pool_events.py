"""The pool's events about one attempt.

A pool may start an attempt several times, interrupt an execution, hold the attempt and release it again.

Agents are matched to executions in `pair_with_agents`. If an agent's events came through the pool's log, its execution
is known. Of the other agents the last ones belong to the last executions, because an execution without any agent most
likely ended early.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from packtrain.events import Event, kinds
from packtrain.state.slot_time import PoolEvent, PoolEventKind, SlotTimeline


class HasEmitter(Protocol):
    """Anything with the emitter id of an agent."""

    @property
    def emitter(self) -> str:
        """The emitter id."""
        ...


S = TypeVar("S", bound=HasEmitter)

_POOL_EVENT_KINDS = {
    kinds.EXECUTION_STARTED: PoolEventKind.STARTED,
    kinds.EXECUTION_INTERRUPTED: PoolEventKind.INTERRUPTED,
    kinds.ATTEMPT_HELD: PoolEventKind.HELD,
    kinds.ATTEMPT_RELEASED: PoolEventKind.RELEASED,
    kinds.ATTEMPT_GONE: PoolEventKind.GONE,
}
_TRANSFER_KINDS = {
    ("in", "queued"): PoolEventKind.INPUT_QUEUED,
    ("in", "started"): PoolEventKind.INPUT_STARTED,
    ("in", "finished"): PoolEventKind.INPUT_FINISHED,
    ("out", "queued"): PoolEventKind.OUTPUT_QUEUED,
    ("out", "started"): PoolEventKind.OUTPUT_STARTED,
    ("out", "finished"): PoolEventKind.OUTPUT_FINISHED,
}


def to_pool_event(event: Event) -> PoolEvent:
    """Convert an engine's event. Raises KeyError or ValueError if it is malformed."""
    if event.kind == kinds.ATTEMPT_TRANSFER:
        return PoolEvent(_TRANSFER_KINDS[event.data["direction"], event.data["phase"]], event.wall)
    return PoolEvent(_POOL_EVENT_KINDS[event.kind], event.wall, _execution_number(event), cause=event)


def _execution_number(event: Event) -> int:
    return int(event.data.get("execution") or 0)


class PoolExecution(NamedTuple):
    """One start of an attempt by the pool."""

    number: int  # 1, 2, … within the attempt
    start_event: Event | None = None
    end_event: Event | None = None  # interrupted or held; None for a normal end

    @property
    def emitters(self) -> tuple[str, ...]:
        """The agents whose events came through the pool's log during this execution."""
        return tuple(self.end_event.data.get("emitters", ())) if self.end_event else ()


class Hold(NamedTuple):
    """A time during which the pool holds an attempt."""

    event: Event
    received_at: float  # by the store's clock

    @property
    def seq(self) -> int:
        """The sequence number of the event, by which decisions name the hold."""
        return self.event.seq

    @property
    def failure_kind(self) -> str:
        """The kind of failure that led to the hold."""
        return str(self.event.data.get("kind", ""))

    @property
    def has_ended_execution(self) -> bool:
        """Whether the hold ended an execution; if not, the attempt was held while it was queued."""
        return bool(self.event.data.get("execution"))


@dataclass(slots=True)
class PoolEvents:
    """All pool events of one attempt, added in any order. Adding an event twice changes nothing."""

    _events: dict[int, tuple[Event, PoolEvent]] = field(default_factory=dict)  # by position in the pool's log
    _received_at: dict[int, float] = field(default_factory=dict)
    _sorted: list[tuple[Event, PoolEvent]] | None = None  # cache

    def add(self, event: Event, received_at: float) -> None:
        """Add an event that the store received at the given time."""
        self._events[event.seq], self._sorted = (event, to_pool_event(event)), None
        self._received_at[event.seq] = min(received_at, self._received_at.get(event.seq, received_at))

    def __len__(self) -> int:
        return len(self._events)

    def _in_order(self) -> list[tuple[Event, PoolEvent]]:
        if self._sorted is None:
            self._sorted = [self._events[seq] for seq in sorted(self._events)]
        return self._sorted

    def _of_kind(self, *wanted: str) -> list[Event]:
        return [event for event, _ in self._in_order() if event.kind in wanted]

    @property
    def executions(self) -> list[PoolExecution]:
        """The executions in order."""
        starts = {_execution_number(e): e for e in self._of_kind(kinds.EXECUTION_STARTED)}
        ends = {_execution_number(e): e for e in self._of_kind(kinds.EXECUTION_INTERRUPTED, kinds.ATTEMPT_HELD)}
        ends.pop(0, None)  # these ended no execution
        return [PoolExecution(n, starts.get(n), ends.get(n)) for n in sorted({*starts, *ends})]

    @property
    def holds(self) -> list[Hold]:
        """All holds in order."""
        return [Hold(event, self._received_at[event.seq]) for event in self._of_kind(kinds.ATTEMPT_HELD)]

    @property
    def current_hold(self) -> Hold | None:
        """The hold that has not been released, or None."""
        changes = self._of_kind(kinds.ATTEMPT_HELD, kinds.ATTEMPT_RELEASED, kinds.EXECUTION_STARTED)
        return self.holds[-1] if changes and changes[-1].kind == kinds.ATTEMPT_HELD else None

    def fold_timeline(self, decided_at: float, gone_event: Event | None) -> SlotTimeline:
        """Return how the attempt's time in the pool was used.

        Args:
            decided_at: When its submission was decided (Unix time). Rounded down, because pool logs have whole seconds.
            gone_event: The event with which it left the pool, or None if it has not.
        """
        events = [pool_event for _, pool_event in self._in_order()]
        submitted_at = min(events[0].at, float(math.floor(decided_at)))
        ends = [to_pool_event(gone_event)] if gone_event else []
        return SlotTimeline([PoolEvent(PoolEventKind.SUBMITTED, submitted_at), *events, *ends])


def pair_with_agents(
    executions: Sequence[PoolExecution], agents: Sequence[S]
) -> Iterator[tuple[PoolExecution | None, S | None]]:
    """Yield each execution with each of its agents, or with None if it has none.

    Args:
        executions: The executions in order.
        agents: The agents, sorted by the start times of their own clocks.
    """
    number_by_emitter = {emitter: execution.number for execution in executions for emitter in execution.emitters}
    unmatched_agents = [agent for agent in agents if agent.emitter not in number_by_emitter]
    unmatched = [execution for execution in executions if execution.number not in number_by_emitter.values()]
    for execution, agent in zip(reversed(unmatched), reversed(unmatched_agents), strict=False):
        number_by_emitter[agent.emitter] = execution.number
    last_number = executions[-1].number if executions else 0
    for execution in executions:
        own_agents = [a for a in agents if number_by_emitter.get(a.emitter, last_number) == execution.number]
        yield from ((execution, agent) for agent in own_agents)
        if not own_agents:
            yield execution, None
    if not executions:
        yield from ((None, agent) for agent in agents)
