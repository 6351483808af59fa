"""What jobs are called: by their id, and by what tells them apart in their matrix. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from packtrain.report.history import JobRecord


def job_labels(jobs: Iterable[JobRecord]) -> Mapping[str, str]:
    """By id: lr 0.1, seed 3. What all jobs have alike says nothing."""
    points = {job.id: job.point for job in jobs if job.point}
    values: dict[str, set[str]] = {}
    for point in points.values():
        for key, value in point.items():
            values.setdefault(key, set()).add(value)
    telling = [key for key, seen in values.items() if len(seen) > 1]
    told = {job: ", ".join(f"{key} {point[key]}" for key in telling if key in point) for job, point in points.items()}
    return {job: words for job, words in told.items() if words}
