"""Where the time of a decision went in a pool, by the pool's log alone: one clock, whose times may be subtracted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from packtrain.events import Event, kinds


class PoolPhase(Enum):
    QUEUE = "queue"
    HELD = "held"
    TRANSFER = "transfer"  # the pool moves files, or waits for its turn to
    SLOT = "slot"  # all else that happens on a machine
    ENDED = "over"


class PhaseChange(NamedTuple):
    """From then on, during this start, that."""

    wall: float
    phase: PoolPhase
    execution_number: int = 0


class SlotTime(NamedTuple):
    """One start's seconds on a machine."""

    transfer_s: float = 0.0
    slot_s: float = 0.0
    has_ended: bool = False  # False: nobody knows yet how long it will be


@dataclass(frozen=True)
class PoolTimes:
    queue_s: float
    held_s: float
    wasted_transfer_s: float  # transfers for a start that never came
    slot_times: Mapping[int, SlotTime]


_PHASE_AFTER = {
    kinds.EXECUTION_STARTED: PoolPhase.SLOT,
    kinds.EXECUTION_INTERRUPTED: PoolPhase.QUEUE,
    kinds.ATTEMPT_HELD: PoolPhase.HELD,
    kinds.ATTEMPT_RELEASED: PoolPhase.QUEUE,
}


def phase_change_from_event(event: Event) -> PhaseChange:
    """What an event of the pool's log begins."""
    if event.kind == kinds.ATTEMPT_TRANSFER:
        doing = PoolPhase.SLOT if event.data["phase"] == "finished" else PoolPhase.TRANSFER
    else:
        doing = _PHASE_AFTER[event.kind]
    away = doing in (PoolPhase.QUEUE, PoolPhase.HELD)
    return PhaseChange(event.wall, doing, 0 if away else int(event.data.get("execution") or 0))


def compute_pool_times(
    submitted_at: float | None, phase_changes: Iterable[tuple[int, PhaseChange]], start_positions: Mapping[int, int]
) -> PoolTimes:
    """`marks` with their places in the log, in order; `placed`: the place at which each start began to run. What lasts
    is not counted: nobody knows the time of the pool now."""
    walk = _TimeAccumulator(start_positions)
    now = PhaseChange(submitted_at, PoolPhase.QUEUE) if submitted_at is not None else None
    for place, mark in phase_changes:
        if now is not None:
            walk.add(now, max(0.0, mark.wall - now.wall))
            if now.execution_number and mark.execution_number != now.execution_number:
                walk.end_execution(now.execution_number, place)
        now = mark
    return PoolTimes(walk.queue_s, walk.held_s, walk.wasted_transfer_s, walk.slot_times)


class _TimeAccumulator:
    def __init__(self, start_positions: Mapping[int, int]) -> None:
        self._start_positions = start_positions
        self.queue_s = self.held_s = 0.0
        self.slot_times: dict[int, SlotTime] = {}
        self.wasted_transfer_s = 0.0

    def add(self, change: PhaseChange, duration_s: float) -> None:
        if change.phase is PoolPhase.QUEUE:
            self.queue_s += duration_s
        elif change.phase is PoolPhase.HELD:
            self.held_s += duration_s
        else:
            self._add_slot_time(change, duration_s)

    def _add_slot_time(self, change: PhaseChange, duration_s: float) -> None:
        known = self.slot_times.get(change.execution_number, SlotTime())
        moved = duration_s if change.phase is PoolPhase.TRANSFER else 0.0
        self.slot_times[change.execution_number] = SlotTime(
            known.transfer_s + moved, known.slot_s + duration_s - moved, known.has_ended
        )

    def end_execution(self, execution_number: int, position: int) -> None:
        """A start that ends before it ran has only moved files, in vain; the next one has its number."""
        if self._start_positions.get(execution_number, position) < position:
            self.slot_times[execution_number] = self.slot_times[execution_number]._replace(has_ended=True)
        else:
            ended = self.slot_times.pop(execution_number)
            self.wasted_transfer_s += ended.transfer_s + ended.slot_s
