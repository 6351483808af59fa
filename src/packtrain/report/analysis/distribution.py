"""Summary statistics of a list of values: mean, median, quantiles.

Quantiles follow numpy's default: linear interpolation between the two nearest sorted values, at (n − 1) · q.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Distribution:
    """Summary of a list of durations (seconds) or rates (bytes per second)."""

    count: int
    mean: float
    median: float
    p95: float
    minimum: float
    maximum: float
    p25: float
    p75: float
    stdev: float  # sample standard deviation; 0 for one value


def describe(values: Iterable[float]) -> Distribution | None:
    """Summarize values; None if there are none."""
    ranked = sorted(values)
    if not ranked:
        return None
    mean = math.fsum(ranked) / len(ranked)
    return Distribution(
        count=len(ranked),
        mean=mean,
        median=quantile(ranked, 0.5),
        p95=quantile(ranked, 0.95),
        minimum=ranked[0],
        maximum=ranked[-1],
        p25=quantile(ranked, 0.25),
        p75=quantile(ranked, 0.75),
        stdev=_stdev(ranked, mean),
    )


def quantile(sorted_values: Sequence[float], q: float) -> float:
    """Return a quantile of sorted values."""
    position = (len(sorted_values) - 1) * q
    below = math.floor(position)
    above = min(below + 1, len(sorted_values) - 1)
    return sorted_values[below] + (sorted_values[above] - sorted_values[below]) * (position - below)


def _stdev(values: Sequence[float], mean: float) -> float:
    if len(values) < 2:
        return 0.0
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
