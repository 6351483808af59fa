"""How far a training is and how fast it goes, from what it reports. Takes events in any order, any number of times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from packtrain.events import Event

_COUNTERS = (("step", "total_steps"), ("epoch", "epochs"))  # the finer one first


@dataclass(frozen=True, slots=True)
class CounterSample:
    """Where the training was at a moment of the worker's clock."""

    seq: int
    mono: float
    value: float


@dataclass(slots=True)
class TrainingProgress:
    """What one agent's program reported: the newest of every name, the first and the last mark of each count."""

    _latest: dict[str, tuple[int, Any]] = field(default_factory=dict)
    _first_samples: dict[str, CounterSample] = field(default_factory=dict)
    _last_samples: dict[str, CounterSample] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        for name, value in event.data.items():
            if name not in self._latest or self._latest[name][0] <= event.seq:
                self._latest[name] = (event.seq, value)
        for name, _ in _COUNTERS:
            at = to_finite_float(event.data.get(name))
            if at is not None:
                self._add_sample(name, CounterSample(event.seq, event.mono, at))

    def _add_sample(self, name: str, sample: CounterSample) -> None:
        if name not in self._first_samples or sample.seq < self._first_samples[name].seq:
            self._first_samples[name] = sample
        if name not in self._last_samples or sample.seq > self._last_samples[name].seq:
            self._last_samples[name] = sample

    def latest(self, name: str) -> Any:
        return self._latest[name][1] if name in self._latest else None

    @property
    def values(self) -> dict[str, Any]:
        """The newest of every name, in the order of names as they were last told."""
        told = sorted(self._latest.items(), key=lambda item: (item[1][0], item[0]))
        return {name: value for name, (_, value) in told}

    @property
    def fraction(self) -> float | None:
        """From 0 to 1, where the program says how much there is to do."""
        count = self._bounded_counter
        return None if count is None else min(1.0, max(0.0, self._last_samples[count[0]].value / count[1]))

    def checkpoint_fraction(self, checkpoint: Mapping[str, Any]) -> float:
        """How far a checkpoint is, from 0 to 1, by the same count."""
        count = self._bounded_counter
        at = to_finite_float(checkpoint.get(count[0])) if count else None
        return min(1.0, max(0.0, at / count[1])) if count and at is not None else 0.0

    @property
    def remaining_s(self) -> float | None:
        """How long the rest takes at the pace so far; None until there is one."""
        count = self._bounded_counter
        if count is None:
            return None
        first, last = self._first_samples[count[0]], self._last_samples[count[0]]
        if last.value <= first.value or last.mono <= first.mono:
            return None
        return max(0.0, count[1] - last.value) * (last.mono - first.mono) / (last.value - first.value)

    @property
    def _bounded_counter(self) -> tuple[str, float] | None:
        """The count that has an end, and that end."""
        for name, total in _COUNTERS:
            end = to_finite_float(self._latest.get(total, (0, None))[1])
            if name in self._last_samples and end is not None and end > 0:
                return name, end
        return None


def to_finite_float(value: Any) -> float | None:
    """A finite number as such; NaN and infinities come as texts."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None
