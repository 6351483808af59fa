"""How an attempt's time in a pool was used: queued, held, transferring files, on a slot.

All times come from the pool's log. It has one clock, so its times may be subtracted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from packtrain.events import Event, kinds


class PoolPhase(Enum):
    """What an attempt does in the pool."""

    QUEUE = "queue"
    HELD = "held"
    TRANSFER = "transfer"  # the pool transfers files, or the attempt waits for its turn to transfer
    SLOT = "slot"  # on a slot, without a transfer
    ENDED = "ended"


class PhaseChange(NamedTuple):
    """The start of a phase."""

    wall: float  # Unix time by the pool's log
    phase: PoolPhase
    execution_number: int = 0  # 0: the attempt is not on a slot


class SlotTime(NamedTuple):
    """The time of one execution on a slot."""

    transfer_s: float = 0.0
    slot_s: float = 0.0  # without transfers
    has_ended: bool = False  # if not, the times are not final


@dataclass(frozen=True)
class PoolTimes:
    """How an attempt's time in a pool was used, in seconds."""

    queue_s: float
    held_s: float
    wasted_transfer_s: float  # transfers for an execution that never started
    slot_times: Mapping[int, SlotTime]  # by execution number


_PHASE_AFTER = {
    kinds.EXECUTION_STARTED: PoolPhase.SLOT,
    kinds.EXECUTION_INTERRUPTED: PoolPhase.QUEUE,
    kinds.ATTEMPT_HELD: PoolPhase.HELD,
    kinds.ATTEMPT_RELEASED: PoolPhase.QUEUE,
}


def phase_change_from_event(event: Event) -> PhaseChange:
    """Return the phase that begins with a pool event."""
    if event.kind == kinds.ATTEMPT_TRANSFER:
        phase = PoolPhase.SLOT if event.data["phase"] == "finished" else PoolPhase.TRANSFER
    else:
        phase = _PHASE_AFTER[event.kind]
    has_slot = phase not in (PoolPhase.QUEUE, PoolPhase.HELD)
    return PhaseChange(event.wall, phase, int(event.data.get("execution") or 0) if has_slot else 0)


def compute_pool_times(
    submitted_at: float | None, phase_changes: Iterable[tuple[int, PhaseChange]], start_positions: Mapping[int, int]
) -> PoolTimes:
    """Add up the time of each phase. The current phase is not counted, because its length is not known.

    Args:
        submitted_at: When the attempt was submitted (Unix time), or None if not known.
        phase_changes: Log positions and phase changes, in the order of the log.
        start_positions: The log position at which each execution started, by execution number.
    """
    times = _TimeAccumulator(start_positions)
    current = PhaseChange(submitted_at, PoolPhase.QUEUE) if submitted_at is not None else None
    for position, change in phase_changes:
        if current is not None:
            times.add(current, max(0.0, change.wall - current.wall))
            if current.execution_number and change.execution_number != current.execution_number:
                times.end_execution(current.execution_number, position)
        current = change
    return PoolTimes(times.queue_s, times.held_s, times.wasted_transfer_s, times.slot_times)


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
        total = self.slot_times.get(change.execution_number, SlotTime())
        transfer_s = duration_s if change.phase is PoolPhase.TRANSFER else 0.0
        self.slot_times[change.execution_number] = SlotTime(
            total.transfer_s + transfer_s, total.slot_s + duration_s - transfer_s, total.has_ended
        )

    def end_execution(self, execution_number: int, position: int) -> None:
        """End an execution. One that ends before it started wasted its transfers; the next one reuses its number."""
        if self._start_positions.get(execution_number, position) < position:
            self.slot_times[execution_number] = self.slot_times[execution_number]._replace(has_ended=True)
        else:
            wasted = self.slot_times.pop(execution_number)
            self.wasted_transfer_s += wasted.transfer_s + wasted.slot_s
