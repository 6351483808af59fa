"""What the jobs of a run reported, as lines over training steps. Pure.

A job's attempts make one line: where an attempt goes on from a checkpoint, what the one before did beyond it
was lost, and is kept apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from packtrain.events import Event, kinds
from packtrain.state import Execution, JobState, JobStatus, RunState
from packtrain.state.training_progress import to_finite_float

_X_AXES = ("step", "epoch")  # what lines can go along, the finer one first
_NON_METRIC_KEYS = frozenset({"step", "epoch", "total_steps", "epochs", "seconds"})
_NONFINITE_VALUES = ("nan", "inf", "-inf")

CurvePoint = tuple[float, float]  # (step, value); the value may be NaN
MetricReports = list[tuple[float, Mapping[str, Any]]]


@dataclass(frozen=True)
class TrainingCurve:
    """One job's training."""

    job_id: str
    label: str
    status: str
    series: Mapping[str, tuple[CurvePoint, ...]]  # by name: loss, accuracy, …
    discarded: Mapping[str, tuple[tuple[CurvePoint, ...], ...]] = field(default_factory=dict)  # what was done again
    resume_steps: tuple[float, ...] = ()  # the steps from which attempts went on

    def last_finite(self, metric: str) -> float | None:
        """The newest finite value."""
        return next((value for _, value in reversed(self.series.get(metric, ())) if math.isfinite(value)), None)

    def nonfinite_from(self, metric: str) -> float | None:
        """The step from which on no value was finite."""
        found = None
        for step, value in reversed(self.series.get(metric, ())):
            if math.isfinite(value):
                break
            found = step
        return found


@dataclass(frozen=True)
class TrainingCurves:
    run: str
    x_axis: str  # step, epoch, or report: what the lines go along
    jobs: tuple[TrainingCurve, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric that some job reported."""
        return tuple(dict.fromkeys(name for job in self.jobs for name in job.series))


def build_training_curves(state: RunState, events: Iterable[Event]) -> TrainingCurves:
    """Of the jobs that reported anything."""
    heard: dict[str, dict[int, Event]] = {}
    for event in events:
        if event.kind == kinds.METRIC:
            heard.setdefault(event.emitter, {})[event.seq] = event
    by_agent = {emitter: [told[seq].data for seq in sorted(told)] for emitter, told in heard.items()}
    along = _choose_x_axis(by_agent.values())
    labels = _curve_labels(state)
    made = (_build_curve(job, labels[job.id], by_agent, along) for job in state.jobs.values())
    return TrainingCurves(state.run, along, tuple(curve for curve in made if curve.series))


def format_subtitle(state: RunState) -> str:
    """100 jobs: 98 succeeded, 2 failed · local"""
    told = ", ".join(f"{state.count_jobs(status)} {status.value}" for status in JobStatus if state.count_jobs(status))
    jobs = f"{len(state.jobs)} jobs: {told}" if len(state.jobs) > 1 else told.removeprefix("1 ")
    return " · ".join(part for part in (jobs, str(state.metadata.get("engine", ""))) if part)


def _choose_x_axis(reports_by_agent: Iterable[list[Mapping[str, Any]]]) -> str:
    named = {name for reports in reports_by_agent for data in reports for name in data}
    return next((count for count in _X_AXES if count in named), "report")


def _curve_labels(state: RunState) -> dict[str, str]:
    """What tells the jobs from one another: keys of the matrix that all have alike say nothing."""
    points = {job.id: job.point for job in state.jobs.values()}
    keys = dict.fromkeys(key for point in points.values() for key in point)
    telling = [key for key in keys if len({point.get(key) for point in points.values()}) > 1]
    told = {job: [f"{key} {point[key]}" for key in telling if key in point] for job, point in points.items()}
    unique = len({tuple(parts) for parts in told.values()}) == len(told)
    return {job: ", ".join(parts) if parts and unique else f"job {job}" for job, parts in told.items()}


def _build_curve(
    job: JobState, label: str, reports_by_agent: Mapping[str, list[Mapping[str, Any]]], x_axis: str
) -> TrainingCurve:
    kept: MetricReports = []
    lost: dict[str, list[tuple[CurvePoint, ...]]] = {}
    resumed = []
    for attempt in _ordered_executions(job):
        reports = _reports_with_step(reports_by_agent.get(attempt.emitter, []), x_axis, len(kept))
        if not reports:
            continue
        start = reports[0][0]
        for name, line in _build_series([report for report in kept if report[0] >= start]).items():
            lost.setdefault(name, []).append(line)
        kept = [report for report in kept if report[0] < start]
        resumed += [start] if kept else []
        kept += reports
    lost_lines = {name: tuple(lines) for name, lines in lost.items()}
    still = tuple(step for step in resumed if kept and step <= kept[-1][0])
    return TrainingCurve(job.id, label, job.status.value, _build_series(kept), lost_lines, still)


def _ordered_executions(job: JobState) -> list[Execution]:
    """By their numbers; of two that ran at once, the accepted one has the last word."""
    accepted = job.result.emitter if job.result else ""
    return sorted(job.executions, key=lambda attempt: (bool(accepted) and attempt.emitter == accepted, attempt.number))


def _reports_with_step(reports: list[Mapping[str, Any]], x_axis: str, n_previous: int) -> MetricReports:
    """Each report at its step; one that names none is at the step before it."""
    placed: MetricReports = []
    at = 0.0
    for count, data in enumerate(reports, n_previous + 1):
        given = float(count) if x_axis == "report" else to_finite_float(data.get(x_axis))
        at = at if given is None else given
        placed.append((at, data))
    return placed


def _build_series(reports: MetricReports) -> dict[str, tuple[CurvePoint, ...]]:
    lines: dict[str, list[CurvePoint]] = {}
    for step, name, value in _metric_values(reports):
        lines.setdefault(name, []).append((step, value))
    return {name: tuple(line) for name, line in lines.items()}


def _metric_values(reports: MetricReports) -> Iterator[tuple[float, str, float]]:
    for step, data in reports:
        for name, value in data.items():
            if name not in _NON_METRIC_KEYS and (to_finite_float(value) is not None or value in _NONFINITE_VALUES):
                yield step, name, float(value)
