"""Axes: from values to places, and the round values that stand beside them. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_STEPS = (
    0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30,
    *(n * _MINUTE for n in (1, 2, 5, 10, 20, 30)),
    *(n * _HOUR for n in (1, 2, 4, 6, 12)),
    *(n * _DAY for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)),
)  # fmt: skip
_DAYS_FROM = 5 * _DAY  # below it hours are read more easily


@dataclass(frozen=True)
class Scale:
    """Straight from one range to another."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))


@dataclass(frozen=True)
class LogScale:
    """Each power of ten has as much room as any other."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = math.log(self.high / self.low)
        share = math.log(max(value, self.low) / self.low) / span if span > 0 else 0.0
        return self.start + (self.end - self.start) * min(1.0, share)


def hour_ticks(longest: float, most: int = 6) -> list[tuple[float, str]]:
    """Round times from 0 on within the longest: of sums, which are told in hours however large they are."""
    if longest < 2 * _HOUR:
        return [tick for tick in time_ticks(longest, most) if tick[0] <= longest]
    return [(hours * _HOUR, f"{hours:,g} h" if hours else "0") for hours in value_ticks(0, longest / _HOUR, most)]


def time_ticks(longest: float, most: int = 6) -> list[tuple[float, str]]:
    """Round times from 0 on that reach the longest, at most so many steps."""
    # 1 h, 2 h, 3 h are read more easily than 60 min, 90 min, 120 min.
    unit = next((size for size in (_HOUR, _MINUTE) if longest > 2.5 * size), 0.0)
    wanted = max(longest / most, unit)
    step = next((step for step in _STEPS if step >= wanted), _STEPS[-1] * math.ceil(max(wanted, 1) / _STEPS[-1]))
    return [(number * step, _told(number * step, step, longest)) for number in range(math.ceil(longest / step) + 1)]


def _told(seconds: float, step: float, longest: float) -> str:
    if not seconds:
        return "0"
    for unit, size in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if step >= size and not (unit == "d" and longest < _DAYS_FROM):
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:g} s"


def count_ticks(most_seen: int, most: int = 5) -> list[tuple[float, str]]:
    """Round whole numbers from 0 on that do not go beyond what was seen."""
    step = round_step(most_seen / most)
    return [(number, f"{number:,}") for number in range(0, most_seen + 1, max(1, math.ceil(step)))]


def round_step(wanted: float) -> float:
    """1, 2 or 5 times a power of ten, not below what is wanted."""
    if wanted <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= wanted * (1 - 1e-9))


def value_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round values within a range."""
    step = round_step((high - low) / most)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round values that enclose a range of positive ones: 1, 2, 5, 10 …, of a wide range only 1, 10, 100 …"""
    times = (1, 2, 5) if high / low <= 40 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 2)
    values = [time * 10.0**power for power in powers for time in times]
    first = max(number for number, value in enumerate(values) if value <= low * (1 + 1e-9))
    last = min(number for number, value in enumerate(values) if value >= high * (1 - 1e-9) and number > first)
    step = -(-(last - first) // (most - 1))
    if step == 1:
        return values[first : last + 1]
    return [values[first] * 10.0 ** (number * step) for number in range(-(-(last - first) // step) + 1)]


def thinned_evenly(values: Sequence[float], most: int) -> list[float]:
    """Of sorted values at most so many, the first and the last among them: their distribution stays."""
    if len(values) <= most:
        return list(values)
    return [values[round(number * (len(values) - 1) / (most - 1))] for number in range(most)]
