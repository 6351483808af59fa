"""Scales that map values to positions, and round tick values for axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from packtrain.formatting import format_duration, format_slot_hours

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_STEPS = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30,
    *(n * _MINUTE for n in (1, 2, 5, 10, 20, 30)),
    *(n * _HOUR for n in (1, 2, 4, 6, 12)),
    *(n * _DAY for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)),
)  # fmt: skip
_MIN_S_IN_DAYS = 5 * _DAY  # shorter times are labeled in hours


@dataclass(frozen=True)
class LinearScale:
    """Maps a range of values linearly to a range of positions."""

    domain_min: float
    domain_max: float
    range_start: float
    range_end: float

    def __call__(self, value: float) -> float:
        fraction = (
            (value - self.domain_min) / (self.domain_max - self.domain_min)
            if self.domain_max > self.domain_min
            else 0.0
        )
        return self.range_start + (self.range_end - self.range_start) * min(1.0, max(0.0, fraction))


@dataclass(frozen=True)
class LogScale:
    """Maps a range of values logarithmically to a range of positions."""

    domain_min: float
    domain_max: float
    range_start: float
    range_end: float

    def __call__(self, value: float) -> float:
        span = math.log(self.domain_max / self.domain_min)
        fraction = math.log(max(value, self.domain_min) / self.domain_min) / span if span > 0 else 0.0
        return self.range_start + (self.range_end - self.range_start) * min(1.0, fraction)


def hour_ticks(max_s: float, max_ticks: int = 6) -> list[tuple[float, str]]:
    """Return round times from 0 to at most `max_s`, labeled in hours even if they are long."""
    if max_s < 2 * _HOUR:
        return [tick for tick in time_ticks(max_s, max_ticks) if tick[0] <= max_s]
    times_s = (hours * _HOUR for hours in value_ticks(0, max_s / _HOUR, max_ticks))
    return [(time_s, format_slot_hours(time_s) if time_s else "0") for time_s in times_s]


def time_ticks(max_s: float, max_ticks: int = 6) -> list[tuple[float, str]]:
    """Return round times from 0 to at least `max_s`, with at most `max_ticks` steps."""
    # 1 h, 2 h, 3 h are easier to read than 60 min, 90 min, 120 min.
    unit = next((size for size in (_HOUR, _MINUTE) if max_s > 2.5 * size), 0.0)
    min_step = max(max_s / max_ticks, unit)
    step = next((step for step in _STEPS if step >= min_step), _STEPS[-1] * math.ceil(max(min_step, 1) / _STEPS[-1]))
    label = format_duration if max_s >= _MIN_S_IN_DAYS else format_slot_hours
    return [(number * step, label(number * step) if number else "0") for number in range(math.ceil(max_s / step) + 1)]


def count_ticks(max_count: int, max_ticks: int = 5) -> list[tuple[float, str]]:
    """Return round integers from 0 to at most `max_count`."""
    step = round_step(max_count / max_ticks)
    return [(number, f"{number:,}") for number in range(0, max_count + 1, max(1, math.ceil(step)))]


def round_step(min_step: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `min_step`."""
    if min_step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(min_step))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= min_step * (1 - 1e-9))


def value_ticks(low: float, high: float, max_ticks: int = 5) -> list[float]:
    """Return round values within a range."""
    step = round_step((high - low) / max_ticks)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float, max_ticks: int = 7) -> list[float]:
    """Return round values that enclose a range of positive values: 1, 2, 5, 10 …, or 1, 10, 100 … if it is wide."""
    times = (1, 2, 5) if high / low <= 40 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 2)
    values = [time * 10.0**power for power in powers for time in times]
    first = max(number for number, value in enumerate(values) if value <= low * (1 + 1e-9))
    last = min(number for number, value in enumerate(values) if value >= high * (1 - 1e-9) and number > first)
    step = -(-(last - first) // (max_ticks - 1))
    if step == 1:
        return values[first : last + 1]
    return [values[first] * 10.0 ** (number * step) for number in range(-(-(last - first) // step) + 1)]


def downsample_evenly(values: Sequence[float], max_values: int) -> list[float]:
    """Sample sorted values evenly, including the first and the last, so that their distribution is preserved."""
    if len(values) <= max_values:
        return list(values)
    return [values[round(number * (len(values) - 1) / (max_values - 1))] for number in range(max_values)]
