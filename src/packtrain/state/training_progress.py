"""The progress and speed of a training, from the metrics that it logs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from packtrain.events import Event

_COUNTERS = (("step", "total_steps"), ("epoch", "epochs"))  # the finer one first


@dataclass(frozen=True, slots=True)
class CounterSample:
    """The value of a counter at one time."""

    seq: int
    mono: float  # the worker's monotonic clock, in seconds
    value: float


@dataclass(slots=True)
class TrainingProgress:
    """The metrics of one agent's program, added in any order.

    Keeps the newest value of every metric, and the first and last sample of each counter.
    """

    _latest: dict[str, tuple[int, Any]] = field(default_factory=dict)  # by metric: sequence number and value
    _first_samples: dict[str, CounterSample] = field(default_factory=dict)
    _last_samples: dict[str, CounterSample] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Add a metric event. Adding it twice changes nothing."""
        for name, value in event.data.items():
            if name not in self._latest or self._latest[name][0] <= event.seq:
                self._latest[name] = (event.seq, value)
        for name, _ in _COUNTERS:
            value = to_finite_float(event.data.get(name))
            if value is not None:
                self._add_sample(name, CounterSample(event.seq, event.mono, value))

    def _add_sample(self, name: str, sample: CounterSample) -> None:
        if name not in self._first_samples or sample.seq < self._first_samples[name].seq:
            self._first_samples[name] = sample
        if name not in self._last_samples or sample.seq > self._last_samples[name].seq:
            self._last_samples[name] = sample

    def copy(self) -> TrainingProgress:
        """Return a copy that later events do not change."""
        return TrainingProgress(dict(self._latest), dict(self._first_samples), dict(self._last_samples))

    def latest(self, name: str) -> Any:
        """Return the newest value of a metric, or None."""
        return self._latest[name][1] if name in self._latest else None

    @property
    def values(self) -> dict[str, Any]:
        """The newest value of every metric, sorted by the time of its last report."""
        items = sorted(self._latest.items(), key=lambda item: (item[1][0], item[0]))
        return {name: value for name, (_, value) in items}

    @property
    def fraction(self) -> float | None:
        """How much of the training is done, from 0 to 1; None if the program does not log a total."""
        counter = self._bounded_counter
        return None if counter is None else min(1.0, max(0.0, self._last_samples[counter[0]].value / counter[1]))

    def checkpoint_fraction(self, checkpoint: Mapping[str, Any]) -> float:
        """Return how much of the training a checkpoint contains, from 0 to 1, by the same counter."""
        counter = self._bounded_counter
        value = to_finite_float(checkpoint.get(counter[0])) if counter else None
        return min(1.0, max(0.0, value / counter[1])) if counter and value is not None else 0.0

    @property
    def remaining_s(self) -> float | None:
        """Estimated time to the end at the average speed so far; None if the speed is not known yet."""
        counter = self._bounded_counter
        if counter is None:
            return None
        first, last = self._first_samples[counter[0]], self._last_samples[counter[0]]
        if last.value <= first.value or last.mono <= first.mono:
            return None
        return max(0.0, counter[1] - last.value) * (last.mono - first.mono) / (last.value - first.value)

    @property
    def _bounded_counter(self) -> tuple[str, float] | None:
        """The name and the total of the finest counter whose total is known."""
        for name, total_name in _COUNTERS:
            total = to_finite_float(self._latest.get(total_name, (0, None))[1])
            if name in self._last_samples and total is not None and total > 0:
                return name, total
        return None


def to_finite_float(value: Any) -> float | None:
    """Return a finite number as a float, and None for anything else. NaN and infinity are logged as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
