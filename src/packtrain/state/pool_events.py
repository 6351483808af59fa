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
from packtrain.state.pool_time import Doing, Mark, PoolTimes, mark_of, times_between


class Speaker(Protocol):
    @property
    def emitter(self) -> str: ...


S = TypeVar("S", bound=Speaker)


class Start(NamedTuple):
    number: int
    placed: Event | None = None
    stopped: Event | None = None

    @property
    def emitters(self) -> tuple[str, ...]:
        return tuple(self.stopped.data.get("emitters", ())) if self.stopped else ()


class Hold(NamedTuple):
    event: Event
    arrived: float  # by the store's clock

    @property
    def seq(self) -> int:
        return self.event.seq

    @property
    def kind(self) -> str:
        """Of failure."""
        return str(self.event.data.get("kind", ""))

    @property
    def ended_a_start(self) -> bool:
        """Or it came between two of them."""
        return bool(self.event.data.get("start"))


@dataclass(slots=True)
class Stay:
    """A decision's stay in a pool. Collects in any order; identical events change nothing."""

    _placed: dict[int, Event] = field(default_factory=dict)
    _stopped: dict[int, Event] = field(default_factory=dict)
    _turns: dict[int, Event] = field(default_factory=dict)  # held, released and placed, by their place in the log
    _arrived: dict[int, float] = field(default_factory=dict)
    _marks: dict[int, Mark] = field(default_factory=dict)  # all of them, by their place in the log

    def add(self, event: Event, arrived: float) -> None:
        self._marks[event.seq] = mark_of(event)
        if event.kind == kinds.ATTEMPT_TRANSFER:
            return
        start = int(event.data.get("start") or 0)
        if event.kind == kinds.ATTEMPT_PLACED:
            self._placed[start] = event
        elif start and event.kind in (kinds.ATTEMPT_STOPPED, kinds.ATTEMPT_HELD):
            self._stopped[start] = event
        if event.kind != kinds.ATTEMPT_STOPPED:
            self._turns[event.seq] = event
            self._arrived.setdefault(event.seq, arrived)

    @property
    def starts(self) -> list[Start]:
        if not self._placed and not self._stopped:
            return []
        numbers = sorted({*self._placed, *self._stopped})
        return [Start(number, self._placed.get(number), self._stopped.get(number)) for number in numbers]

    @property
    def holds(self) -> list[Hold]:
        held = (e for _, e in sorted(self._turns.items()) if e.kind == kinds.ATTEMPT_HELD)
        return [Hold(event, self._arrived[event.seq]) for event in held]

    def starts_since(self, hold: Hold) -> set[int]:
        """Those between a hold and the one before it for the same reason."""
        since = max((one.seq for one in self.holds if one.seq < hold.seq and one.kind == hold.kind), default=0)
        return {start for start, event in self._placed.items() if since < event.seq < hold.seq}

    @property
    def hold(self) -> Hold | None:
        """The one that lasts."""
        newest = self._turns[max(self._turns)] if self._turns else None
        if newest is None or newest.kind != kinds.ATTEMPT_HELD:
            return None
        return Hold(newest, self._arrived[newest.seq])

    def times(self, submitted: float | None, gone: float | None) -> PoolTimes:
        """Where the time went since it was submitted; logs of pools have whole seconds."""
        marks = sorted(self._marks.items())
        first = marks[0][1].wall
        if gone is not None:
            marks.append((marks[-1][0] + 1, Mark(gone, Doing.OVER)))
        since = first if submitted is None else min(first, float(math.floor(submitted)))
        return times_between(since, marks, {start: event.seq for start, event in self._placed.items()})


def paired(starts: Sequence[Start], speakers: Sequence[S]) -> Iterator[tuple[Start | None, S | None]]:
    """Each start with the agents that spoke in it, in order; `speakers` are in the order of their own clocks."""
    if len(starts) == 1 and len(speakers) < 2:  # as nearly always
        yield starts[0], speakers[0] if speakers else None
        return
    known = {emitter: start.number for start in starts for emitter in start.emitters}
    free = [speaker for speaker in speakers if speaker.emitter not in known]
    mute = [start for start in starts if start.number not in known.values()]
    for start, speaker in zip(reversed(mute), reversed(free), strict=False):
        known[speaker.emitter] = start.number
    last = starts[-1].number if starts else 0
    for start in starts:
        spoke = [speaker for speaker in speakers if known.get(speaker.emitter, last) == start.number]
        yield from ((start, speaker) for speaker in spoke)
        if not spoke:
            yield start, None
    if not starts:
        yield from ((None, speaker) for speaker in speakers)
