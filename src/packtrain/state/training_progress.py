"""How far a training is and how fast it goes, from what it reports. Takes events in any order, any number of times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from packtrain.events import Event

_COUNTS = (("step", "total_steps"), ("epoch", "epochs"))  # the finer one first


@dataclass(frozen=True, slots=True)
class Mark:
    """Where the training was at a moment of the worker's clock."""

    seq: int
    mono: float
    at: float


@dataclass(slots=True)
class Training:
    """What one agent's program reported: the newest of every name, the first and the last mark of each count."""

    _newest: dict[str, tuple[int, Any]] = field(default_factory=dict)
    _first: dict[str, Mark] = field(default_factory=dict)
    _last: dict[str, Mark] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        for name, value in event.data.items():
            if name not in self._newest or self._newest[name][0] <= event.seq:
                self._newest[name] = (event.seq, value)
        for name, _ in _COUNTS:
            at = number(event.data.get(name))
            if at is not None:
                self._mark(name, Mark(event.seq, event.mono, at))

    def _mark(self, name: str, mark: Mark) -> None:
        if name not in self._first or mark.seq < self._first[name].seq:
            self._first[name] = mark
        if name not in self._last or mark.seq > self._last[name].seq:
            self._last[name] = mark

    def newest(self, name: str) -> Any:
        return self._newest[name][1] if name in self._newest else None

    @property
    def values(self) -> dict[str, Any]:
        """The newest of every name, in the order of names as they were last told."""
        told = sorted(self._newest.items(), key=lambda item: (item[1][0], item[0]))
        return {name: value for name, (_, value) in told}

    @property
    def fraction(self) -> float | None:
        """From 0 to 1, where the program says how much there is to do."""
        count = self._count
        return None if count is None else min(1.0, max(0.0, self._last[count[0]].at / count[1]))

    def share_of(self, saved: Mapping[str, Any]) -> float:
        """How far a checkpoint is, from 0 to 1, by the same count."""
        count = self._count
        at = number(saved.get(count[0])) if count else None
        return min(1.0, max(0.0, at / count[1])) if count and at is not None else 0.0

    @property
    def left_s(self) -> float | None:
        """How long the rest takes at the pace so far; None until there is one."""
        count = self._count
        if count is None:
            return None
        first, last = self._first[count[0]], self._last[count[0]]
        if last.at <= first.at or last.mono <= first.mono:
            return None
        return max(0.0, count[1] - last.at) * (last.mono - first.mono) / (last.at - first.at)

    @property
    def _count(self) -> tuple[str, float] | None:
        """The count that has an end, and that end."""
        for name, total in _COUNTS:
            end = number(self._newest.get(total, (0, None))[1])
            if name in self._last and end is not None and end > 0:
                return name, end
        return None


def number(value: Any) -> float | None:
    """A finite number as such; NaN and infinities come as texts."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None
