"""Many values in a few: mean, median, quantiles. Pure.

Quantiles are those of numpy's default: linear between the two nearest of the sorted values, at (n − 1) · q.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Distribution:
    """Of some values: seconds, or bytes a second."""

    count: int
    mean: float
    median: float
    p95: float
    minimum: float
    maximum: float
    p25: float  # a quarter of the values is below it
    p75: float
    stdev: float  # the standard deviation of the sample; 0 for one value


def describe(values: Iterable[float]) -> Distribution | None:
    ranked = sorted(values)
    if not ranked:
        return None
    mean = math.fsum(ranked) / len(ranked)
    quarter, median, three_quarters, p95 = (quantile(ranked, share) for share in (0.25, 0.5, 0.75, 0.95))
    deviation = _stdev(ranked, mean)
    return Distribution(len(ranked), mean, median, p95, ranked[0], ranked[-1], quarter, three_quarters, deviation)


def quantile(sorted_values: Sequence[float], q: float) -> float:
    """Of sorted values."""
    place = (len(sorted_values) - 1) * q
    below = math.floor(place)
    above = min(below + 1, len(sorted_values) - 1)
    return sorted_values[below] + (sorted_values[above] - sorted_values[below]) * (place - below)


def _stdev(values: Sequence[float], mean: float) -> float:
    if len(values) < 2:
        return 0.0
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
