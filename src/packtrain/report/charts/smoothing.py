"""Lines made fit for a picture: fewer points, less noise. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from packtrain.report.readers.training_curves import Point

MOST_POINTS = 600
_NOISY = 60  # a line of fewer points is shown as it is
_WINDOW = 0.03  # of the points: how far smoothing looks


def thinned(line: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """At most so many points: means of neighbours. What is not finite stays where it is."""
    if len(line) <= most:
        return list(line)
    size = math.ceil(len(line) / most)
    return [_mean(line[start : start + size]) for start in range(0, len(line), size)]


def _mean(points: Sequence[Point]) -> Point:
    finite = [point for point in points if math.isfinite(point[1])]
    if not finite:
        return points[-1]
    return sum(step for step, _ in finite) / len(finite), sum(value for _, value in finite) / len(finite)


def smoothed(line: Sequence[Point]) -> list[Point]:
    """A moving mean, as far to the left as to the right where there is room; gaps stay gaps."""
    if len(line) < _NOISY:
        return list(line)
    reach = max(1, round(len(line) * _WINDOW))
    sums = [0.0]
    counts = [0]
    for _, value in line:
        finite = math.isfinite(value)
        sums.append(sums[-1] + (value if finite else 0.0))
        counts.append(counts[-1] + finite)
    return [_around(line, at, reach, sums, counts) for at in range(len(line))]


def _around(line: Sequence[Point], at: int, reach: int, sums: list[float], counts: list[int]) -> Point:
    step, value = line[at]
    left = min(reach, at)  # a steep beginning stays steep
    low, high = at - left, min(at + left, len(line) - 1) + 1
    count = counts[high] - counts[low]
    return step, (sums[high] - sums[low]) / count if math.isfinite(value) and count else math.nan
