"""Where the time of a decision went in a pool, by the pool's log alone: one clock, whose times may be subtracted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from packtrain.events import Event, kinds


class Doing(Enum):
    QUEUE = "queue"
    HELD = "held"
    TRANSFER = "transfer"  # the pool moves files, or waits for its turn to
    SLOT = "slot"  # all else that happens on a machine
    OVER = "over"


class Mark(NamedTuple):
    """From then on, during this start, that."""

    wall: float
    doing: Doing
    start: int = 0


class Stretch(NamedTuple):
    """One start's seconds on a machine."""

    transfer: float = 0.0
    slot: float = 0.0
    over: bool = False  # False: nobody knows yet how long it will be


@dataclass(frozen=True)
class PoolTimes:
    queue: float
    held: float
    lost: float  # transfers for a start that never came
    starts: Mapping[int, Stretch]


_AFTER = {
    kinds.ATTEMPT_PLACED: Doing.SLOT,
    kinds.ATTEMPT_STOPPED: Doing.QUEUE,
    kinds.ATTEMPT_HELD: Doing.HELD,
    kinds.ATTEMPT_RELEASED: Doing.QUEUE,
}


def mark_of(event: Event) -> Mark:
    """What an event of the pool's log begins."""
    if event.kind == kinds.ATTEMPT_TRANSFER:
        doing = Doing.SLOT if event.data["what"] == "finished" else Doing.TRANSFER
    else:
        doing = _AFTER[event.kind]
    away = doing in (Doing.QUEUE, Doing.HELD)
    return Mark(event.wall, doing, 0 if away else int(event.data.get("start") or 0))


def times_between(submitted: float | None, marks: Iterable[tuple[int, Mark]], placed: Mapping[int, int]) -> PoolTimes:
    """`marks` with their places in the log, in order; `placed`: the place at which each start began to run. What lasts
    is not counted: nobody knows the time of the pool now."""
    walk = _Walk(placed)
    now = Mark(submitted, Doing.QUEUE) if submitted is not None else None
    for place, mark in marks:
        if now is not None:
            walk.spend(now, max(0.0, mark.wall - now.wall))
            if now.start and mark.start != now.start:
                walk.leave(now.start, place)
        now = mark
    return PoolTimes(walk.queue, walk.held, walk.lost, walk.starts)


class _Walk:
    def __init__(self, placed: Mapping[int, int]) -> None:
        self._placed = placed
        self.queue = self.held = 0.0
        self.starts: dict[int, Stretch] = {}
        self.lost = 0.0

    def spend(self, now: Mark, seconds: float) -> None:
        if now.doing is Doing.QUEUE:
            self.queue += seconds
        elif now.doing is Doing.HELD:
            self.held += seconds
        else:
            self._spend_there(now, seconds)

    def _spend_there(self, now: Mark, seconds: float) -> None:
        known = self.starts.get(now.start, Stretch())
        moved = seconds if now.doing is Doing.TRANSFER else 0.0
        self.starts[now.start] = Stretch(known.transfer + moved, known.slot + seconds - moved, known.over)

    def leave(self, start: int, place: int) -> None:
        """A start that ends before it ran has only moved files, in vain; the next one has its number."""
        if self._placed.get(start, place) < place:
            self.starts[start] = self.starts[start]._replace(over=True)
        else:
            ended = self.starts.pop(start)
            self.lost += ended.transfer + ended.slot
