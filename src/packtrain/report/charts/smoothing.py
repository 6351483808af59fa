"""Prepares lines for plotting: downsampling and smoothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from packtrain.report.readers.training_curves import CurvePoint

MAX_POINTS = 600
_MIN_POINTS_TO_SMOOTH = 60  # shorter lines are not smoothed
_WINDOW_FRACTION = 0.03  # of the number of points


def downsample(line: Sequence[CurvePoint], max_points: int = MAX_POINTS) -> list[CurvePoint]:
    """Average neighboring points to get at most `max_points`. Values that are not finite are ignored if possible."""
    if len(line) <= max_points:
        return list(line)
    size = math.ceil(len(line) / max_points)
    return [_mean_point(line[start : start + size]) for start in range(0, len(line), size)]


def _mean_point(points: Sequence[CurvePoint]) -> CurvePoint:
    finite = [point for point in points if math.isfinite(point[1])]
    if not finite:
        return points[-1]
    return sum(step for step, _ in finite) / len(finite), sum(value for _, value in finite) / len(finite)


def smooth_line(line: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the centered moving mean of the values. Values that are not finite become NaN."""
    if len(line) < _MIN_POINTS_TO_SMOOTH:
        return list(line)
    half_width = max(1, round(len(line) * _WINDOW_FRACTION))
    sums = [0.0]
    counts = [0]
    for _, value in line:
        finite = math.isfinite(value)
        sums.append(sums[-1] + (value if finite else 0.0))
        counts.append(counts[-1] + finite)
    return [_window_mean(line, index, half_width, sums, counts) for index in range(len(line))]


def _window_mean(
    line: Sequence[CurvePoint], index: int, half_width: int, sums: list[float], counts: list[int]
) -> CurvePoint:
    step, value = line[index]
    left = min(half_width, index)  # a symmetric window preserves a steep beginning
    low, high = index - left, min(index + left, len(line) - 1) + 1
    count = counts[high] - counts[low]
    return step, (sums[high] - sums[low]) / count if math.isfinite(value) and count else math.nan
