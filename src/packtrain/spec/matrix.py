"""Expand `count` and `matrix` to the points of a run, one per job, in a fixed order.

The last key varies fastest. `exclude` removes matching combinations; then each `include` adds its values to every
combination that it does not contradict, or becomes a point of its own. These are the rules of GitHub Actions. `count`
repeats each point.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from packtrain.spec.models.workflow import Matrix

MAX_JOBS = 100_000
MAX_COMPARISONS = 10_000_000  # combinations times include and exclude entries

MatrixPoint = dict[str, str]


def job_limit_error(matrix: Matrix | None, count: int) -> str:
    """Return why the run has too many jobs, or ""."""
    axes = matrix.axes if matrix else {}
    combinations = math.prod(map(len, axes.values()))
    entries = len(matrix.include) + len(matrix.exclude) if matrix else 0
    if max(combinations, 1) * count > MAX_JOBS or len(matrix.include if matrix else ()) * count > MAX_JOBS:
        return f"count and matrix give more than {MAX_JOBS} jobs"
    if combinations * entries > MAX_COMPARISONS:
        return (
            f"the matrix has {combinations} combinations and {entries} include and exclude entries, which is too many"
        )
    return ""


def expand_matrix(matrix: Matrix | None, count: int = 1) -> list[MatrixPoint]:
    """Return the points of all jobs; without a matrix they are empty."""
    points = _expand_points(matrix) if matrix else [MatrixPoint()]
    return [dict(point) for point in points for _ in range(count)]


def _expand_points(matrix: Matrix) -> list[MatrixPoint]:
    points = [p for p in _combinations(matrix.axes) if not any(_matches_point(p, one) for one in matrix.exclude)]
    return _apply_includes(points, matrix.axes, matrix.include)


def _combinations(axes: Mapping[str, Sequence[str]]) -> list[MatrixPoint]:
    if not axes:
        return []
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _matches_point(point: MatrixPoint, subset: MatrixPoint) -> bool:
    return all(point.get(key) == value for key, value in subset.items())


def _apply_includes(
    points: list[MatrixPoint], axes: Mapping[str, Sequence[str]], includes: Sequence[MatrixPoint]
) -> list[MatrixPoint]:
    extra: list[MatrixPoint] = []
    for include in includes:
        fixed = {key: value for key, value in include.items() if key in axes}
        matching = [point for point in points if _matches_point(point, fixed)]
        for point in matching:
            point.update(include)
        if not matching:
            extra.append(dict(include))
    return points + extra
