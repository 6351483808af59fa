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
from packtrain.state.pool_time import PhaseChange, PoolPhase, PoolTimes, compute_pool_times, phase_change_from_event


class HasEmitter(Protocol):
    """Anything with the emitter id of an agent."""

    @property
    def emitter(self) -> str:
        """The emitter id."""
        ...


S = TypeVar("S", bound=HasEmitter)


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

    _start_events: dict[int, Event] = field(default_factory=dict)  # by execution number
    _end_events: dict[int, Event] = field(default_factory=dict)  # by execution number
    _state_changes: dict[int, Event] = field(default_factory=dict)  # held, released and started, by log position
    _received_at: dict[int, float] = field(default_factory=dict)  # by log position
    _phase_changes: dict[int, PhaseChange] = field(default_factory=dict)  # of all events, by log position

    def add(self, event: Event, received_at: float) -> None:
        """Add an event that the store received at the given time."""
        self._phase_changes[event.seq] = phase_change_from_event(event)
        if event.kind == kinds.ATTEMPT_TRANSFER:
            return
        number = int(event.data.get("execution") or 0)
        if event.kind == kinds.EXECUTION_STARTED:
            self._start_events[number] = event
        elif number and event.kind in (kinds.EXECUTION_INTERRUPTED, kinds.ATTEMPT_HELD):
            self._end_events[number] = event
        if event.kind != kinds.EXECUTION_INTERRUPTED:
            self._state_changes[event.seq] = event
            self._received_at.setdefault(event.seq, received_at)

    @property
    def executions(self) -> list[PoolExecution]:
        """The executions in order."""
        if not self._start_events and not self._end_events:
            return []
        numbers = sorted({*self._start_events, *self._end_events})
        return [PoolExecution(n, self._start_events.get(n), self._end_events.get(n)) for n in numbers]

    @property
    def holds(self) -> list[Hold]:
        """All holds in order."""
        events = (e for _, e in sorted(self._state_changes.items()) if e.kind == kinds.ATTEMPT_HELD)
        return [Hold(event, self._received_at[event.seq]) for event in events]

    def executions_since(self, hold: Hold) -> set[int]:
        """Return the numbers of the executions between a hold and the previous hold with the same failure kind."""
        previous_seqs = (h.seq for h in self.holds if h.seq < hold.seq and h.failure_kind == hold.failure_kind)
        since_seq = max(previous_seqs, default=0)
        return {number for number, event in self._start_events.items() if since_seq < event.seq < hold.seq}

    @property
    def current_hold(self) -> Hold | None:
        """The hold that has not been released, or None."""
        newest = self._state_changes[max(self._state_changes)] if self._state_changes else None
        if newest is None or newest.kind != kinds.ATTEMPT_HELD:
            return None
        return Hold(newest, self._received_at[newest.seq])

    def compute_times(self, submitted_at: float | None, gone_at: float | None) -> PoolTimes:
        """Return how the attempt's time in the pool was used.

        Args:
            submitted_at: When the attempt was submitted (Unix time). Rounded down, because pool logs have whole
            seconds. gone_at: When the attempt left the pool, or None if it has not.
        """
        changes = sorted(self._phase_changes.items())
        first_at = changes[0][1].wall
        if gone_at is not None:
            changes.append((changes[-1][0] + 1, PhaseChange(gone_at, PoolPhase.ENDED)))
        since = first_at if submitted_at is None else min(first_at, float(math.floor(submitted_at)))
        return compute_pool_times(since, changes, {number: event.seq for number, event in self._start_events.items()})


def pair_with_agents(
    executions: Sequence[PoolExecution], agents: Sequence[S]
) -> Iterator[tuple[PoolExecution | None, S | None]]:
    """Yield each execution with each of its agents, or with None if it has none.

    Args:
        executions: The executions in order.
        agents: The agents, sorted by the start times of their own clocks.
    """
    if len(executions) == 1 and len(agents) < 2:  # the usual case
        yield executions[0], agents[0] if agents else None
        return
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
