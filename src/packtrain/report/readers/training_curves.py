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
from packtrain.state import Attempt, JobState, JobStatus, RunState
from packtrain.state.training_progress import number

_COUNTS = ("step", "epoch")  # what lines can go along, the finer one first
_NO_METRICS = frozenset({"step", "epoch", "total_steps", "epochs", "seconds"})
_NOT_FINITE = ("nan", "inf", "-inf")

Point = tuple[float, float]  # (step, value); the value may be NaN
Reports = list[tuple[float, Mapping[str, Any]]]


@dataclass(frozen=True)
class Curve:
    """One job's training."""

    job: str
    label: str
    status: str
    lines: Mapping[str, tuple[Point, ...]]  # by name: loss, accuracy, …
    lost: Mapping[str, tuple[tuple[Point, ...], ...]] = field(default_factory=dict)  # what was done again
    resumed: tuple[float, ...] = ()  # the steps from which attempts went on

    def last(self, name: str) -> float | None:
        """The newest finite value."""
        return next((value for _, value in reversed(self.lines.get(name, ())) if math.isfinite(value)), None)

    def broken_at(self, name: str) -> float | None:
        """The step from which on no value was finite."""
        found = None
        for step, value in reversed(self.lines.get(name, ())):
            if math.isfinite(value):
                break
            found = step
        return found


@dataclass(frozen=True)
class Curves:
    run: str
    along: str  # step, epoch, or report: what the lines go along
    jobs: tuple[Curve, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every metric that some job reported."""
        return tuple(dict.fromkeys(name for job in self.jobs for name in job.lines))


def curves_of(state: RunState, events: Iterable[Event]) -> Curves:
    """Of the jobs that reported anything."""
    heard: dict[str, dict[int, Event]] = {}
    for event in events:
        if event.kind == kinds.METRIC:
            heard.setdefault(event.emitter, {})[event.seq] = event
    by_agent = {emitter: [told[seq].data for seq in sorted(told)] for emitter, told in heard.items()}
    along = _along(by_agent.values())
    labels = _labels(state)
    made = (_curve(job, labels[job.id], by_agent, along) for job in state.jobs.values())
    return Curves(state.run, along, tuple(curve for curve in made if curve.lines))


def subtitle_of(state: RunState) -> str:
    """100 jobs: 98 succeeded, 2 failed · local"""
    told = ", ".join(f"{state.count(status)} {status.value}" for status in JobStatus if state.count(status))
    jobs = f"{len(state.jobs)} jobs: {told}" if len(state.jobs) > 1 else told.removeprefix("1 ")
    return " · ".join(part for part in (jobs, str(state.about.get("engine", ""))) if part)


def _along(told: Iterable[list[Mapping[str, Any]]]) -> str:
    named = {name for reports in told for data in reports for name in data}
    return next((count for count in _COUNTS if count in named), "report")


def _labels(state: RunState) -> dict[str, str]:
    """What tells the jobs from one another: keys of the matrix that all have alike say nothing."""
    points = {job.id: job.point for job in state.jobs.values()}
    keys = dict.fromkeys(key for point in points.values() for key in point)
    telling = [key for key in keys if len({point.get(key) for point in points.values()}) > 1]
    told = {job: [f"{key} {point[key]}" for key in telling if key in point] for job, point in points.items()}
    unique = len({tuple(parts) for parts in told.values()}) == len(told)
    return {job: ", ".join(parts) if parts and unique else f"job {job}" for job, parts in told.items()}


def _curve(job: JobState, label: str, by_agent: Mapping[str, list[Mapping[str, Any]]], along: str) -> Curve:
    kept: Reports = []
    lost: dict[str, list[tuple[Point, ...]]] = {}
    resumed = []
    for attempt in _in_order(job):
        reports = _placed(by_agent.get(attempt.emitter, []), along, len(kept))
        if not reports:
            continue
        start = reports[0][0]
        for name, line in _lines([report for report in kept if report[0] >= start]).items():
            lost.setdefault(name, []).append(line)
        kept = [report for report in kept if report[0] < start]
        resumed += [start] if kept else []
        kept += reports
    lost_lines = {name: tuple(lines) for name, lines in lost.items()}
    still = tuple(step for step in resumed if kept and step <= kept[-1][0])
    return Curve(job.id, label, job.status.value, _lines(kept), lost_lines, still)


def _in_order(job: JobState) -> list[Attempt]:
    """By their numbers; of two that ran at once, the accepted one has the last word."""
    accepted = job.verdict.emitter if job.verdict else ""
    return sorted(job.attempts, key=lambda attempt: (bool(accepted) and attempt.emitter == accepted, attempt.number))


def _placed(told: list[Mapping[str, Any]], along: str, before: int) -> Reports:
    """Each report at its step; one that names none is at the step before it."""
    placed: Reports = []
    at = 0.0
    for count, data in enumerate(told, before + 1):
        given = float(count) if along == "report" else number(data.get(along))
        at = at if given is None else given
        placed.append((at, data))
    return placed


def _lines(reports: Reports) -> dict[str, tuple[Point, ...]]:
    lines: dict[str, list[Point]] = {}
    for step, name, value in _values(reports):
        lines.setdefault(name, []).append((step, value))
    return {name: tuple(line) for name, line in lines.items()}


def _values(reports: Reports) -> Iterator[tuple[float, str, float]]:
    for step, data in reports:
        for name, value in data.items():
            if name not in _NO_METRICS and (number(value) is not None or value in _NOT_FINITE):
                yield step, name, float(value)
