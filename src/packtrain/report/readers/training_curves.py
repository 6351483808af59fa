"""Turns the metrics that the jobs of a run reported into curves over training steps.

The executions of a job form one curve. Where an execution resumes from a checkpoint, the points that the previous one
reported beyond that checkpoint are stored separately as discarded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from packtrain.events import Event, kinds
from packtrain.state import Execution, JobState, JobStatus, RunState
from packtrain.state.training_progress import to_finite_float

_X_AXES = ("step", "epoch")  # possible x axes, the finer one first
_NON_METRIC_KEYS = frozenset({"step", "epoch", "total_steps", "epochs", "seconds"})
_NONFINITE_VALUES = ("nan", "inf", "-inf")

CurvePoint = tuple[float, float]  # (step, value); the value may be NaN
MetricReports = list[tuple[float, Mapping[str, Any]]]  # (step, data of the event)


@dataclass(frozen=True)
class TrainingCurve:
    """The metrics of one job."""

    job_id: str
    label: str
    status: str
    series: Mapping[str, tuple[CurvePoint, ...]]  # by metric: loss, accuracy, …
    discarded: Mapping[str, tuple[tuple[CurvePoint, ...], ...]] = field(default_factory=dict)  # repeated after a resume
    resume_steps: tuple[float, ...] = ()  # the steps at which executions resumed

    def last_finite(self, metric: str) -> float | None:
        """Return the latest finite value."""
        return next((value for _, value in reversed(self.series.get(metric, ())) if math.isfinite(value)), None)

    def nonfinite_from(self, metric: str) -> float | None:
        """Return the step from which no value is finite; None if the last value is finite."""
        first_step = None
        for step, value in reversed(self.series.get(metric, ())):
            if math.isfinite(value):
                break
            first_step = step
        return first_step


@dataclass(frozen=True)
class TrainingCurves:
    """The curves of all jobs of a run that reported metrics."""

    run: str
    x_axis: str  # step, epoch or report
    jobs: tuple[TrainingCurve, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of all reported metrics."""
        return tuple(dict.fromkeys(name for job in self.jobs for name in job.series))


def build_training_curves(state: RunState, events: Iterable[Event]) -> TrainingCurves:
    """Build the curves of all jobs that reported metrics."""
    events_by_agent: dict[str, dict[int, Event]] = {}
    for event in events:
        if event.kind == kinds.METRIC:
            events_by_agent.setdefault(event.emitter, {})[event.seq] = event
    reports_by_agent = {
        emitter: [by_seq[seq].data for seq in sorted(by_seq)] for emitter, by_seq in events_by_agent.items()
    }
    x_axis = _choose_x_axis(reports_by_agent.values())
    labels = _curve_labels(state)
    curves = (_build_curve(job, labels[job.id], reports_by_agent, x_axis) for job in state.jobs.values())
    return TrainingCurves(state.run, x_axis, tuple(curve for curve in curves if curve.series))


def format_subtitle(state: RunState) -> str:
    """Return the subtitle of a plot: 100 jobs: 98 succeeded, 2 failed · local."""
    counts = ", ".join(f"{state.count_jobs(status)} {status.value}" for status in JobStatus if state.count_jobs(status))
    jobs = f"{len(state.jobs)} jobs: {counts}" if len(state.jobs) > 1 else counts.removeprefix("1 ")
    return " · ".join(part for part in (jobs, str(state.metadata.get("engine", ""))) if part)


def _choose_x_axis(reports_by_agent: Iterable[list[Mapping[str, Any]]]) -> str:
    reported = {name for reports in reports_by_agent for data in reports for name in data}
    return next((name for name in _X_AXES if name in reported), "report")


def _curve_labels(state: RunState) -> dict[str, str]:
    """Label each job with the matrix parameters that differ between jobs, or with its id."""
    points = {job.id: job.point for job in state.jobs.values()}
    keys = dict.fromkeys(key for point in points.values() for key in point)
    varying = [key for key in keys if len({point.get(key) for point in points.values()}) > 1]
    parameters = {job: [f"{key} {point[key]}" for key in varying if key in point] for job, point in points.items()}
    unique = len({tuple(parts) for parts in parameters.values()}) == len(parameters)
    return {job: ", ".join(parts) if parts and unique else f"job {job}" for job, parts in parameters.items()}


def _build_curve(
    job: JobState, label: str, reports_by_agent: Mapping[str, list[Mapping[str, Any]]], x_axis: str
) -> TrainingCurve:
    retained: MetricReports = []
    discarded: dict[str, list[tuple[CurvePoint, ...]]] = {}
    resume_steps = []
    for execution in _ordered_executions(job):
        reports = _reports_with_step(reports_by_agent.get(execution.emitter, []), x_axis, len(retained))
        if not reports:
            continue
        start = reports[0][0]
        for name, line in _build_series([report for report in retained if report[0] >= start]).items():
            discarded.setdefault(name, []).append(line)
        retained = [report for report in retained if report[0] < start]
        resume_steps += [start] if retained else []
        retained += reports
    discarded_lines = {name: tuple(lines) for name, lines in discarded.items()}
    reached_steps = tuple(step for step in resume_steps if retained and step <= retained[-1][0])
    return TrainingCurve(job.id, label, job.status.value, _build_series(retained), discarded_lines, reached_steps)


def _ordered_executions(job: JobState) -> list[Execution]:
    """Sort by number, with the accepted execution last: of two copies, its values win."""
    accepted = job.result.emitter if job.result else ""
    return sorted(
        job.executions, key=lambda execution: (bool(accepted) and execution.emitter == accepted, execution.number)
    )


def _reports_with_step(reports: list[Mapping[str, Any]], x_axis: str, n_previous: int) -> MetricReports:
    """Pair each report with its step. A report without a step gets that of the report before it."""
    reports_with_step: MetricReports = []
    step = 0.0
    for count, data in enumerate(reports, n_previous + 1):
        reported_step = float(count) if x_axis == "report" else to_finite_float(data.get(x_axis))
        step = step if reported_step is None else reported_step
        reports_with_step.append((step, data))
    return reports_with_step


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
