"""The timeline chart: one row per job, colored by phase and time use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from packtrain.formatting import format_duration
from packtrain.report.analysis.statistics import job_labels
from packtrain.report.analysis.time_accounting import classify_job_time
from packtrain.report.charts import palette
from packtrain.report.charts.canvas.axes import (
    SMALL_FONT,
    PlotArea,
    draw_cross,
    draw_legend,
    draw_x_axis,
    draw_x_grid,
    draw_y_axis,
    label_column_width,
    legend_height,
)
from packtrain.report.charts.canvas.drawing import Box, Drawing, shorten_to_width
from packtrain.report.charts.canvas.scales import LinearScale, count_ticks, time_ticks
from packtrain.report.charts.palette import ThemeColor
from packtrain.report.history import JobHistory, JobRecord, Outcome

MAX_ROWS = 1000
_MAX_NAMED_ROWS = 40  # more rows have no room for names
_MAX_ROWS_WITH_TOOLTIPS = 120  # more rows have no tooltips
_MAX_HEIGHT = 760.0  # of all rows, unless a row would be less than a pixel
_WAITING = (palette.QUEUED, palette.HELD)
_NOT_FAILED_OUTCOMES = (Outcome.SUCCEEDED, Outcome.RUNNING, Outcome.QUEUED, Outcome.CHECKPOINTED)


class TimelineBar(NamedTuple):
    """An interval of one color."""

    start: float
    end: float
    color: ThemeColor
    label: str = ""  # part of its tooltip


class TimelineRow(NamedTuple):
    """The bars of one job."""

    job: JobRecord
    name: str
    bars: tuple[TimelineBar, ...]

    @property
    def end(self) -> float:
        return max((bar.end for bar in self.bars), default=0.0)


class TimelineRows(NamedTuple):
    """The rows of the chart, sampled from all jobs."""

    rows: list[TimelineRow]
    step: int  # 1 if all jobs are shown, 20 for every 20th
    n_jobs: int
    has_timestamps: bool


def build_timeline_rows(history: JobHistory, max_rows: int = MAX_ROWS) -> TimelineRows:
    """Sort the jobs by start (without timestamps: by duration) and sample them if there are too many."""
    jobs = sorted((job for job in history.jobs if job.executions or job.waits), key=lambda job: _sort_key(job, history))
    step = -(-len(jobs) // max_rows) or 1
    labels = job_labels(history.jobs)
    rows = [
        TimelineRow(job, f"{job.id}  {labels.get(job.id, '')}".strip(), tuple(_timeline_bars(job)))
        for job in jobs[::step]
    ]
    return TimelineRows(rows, step, len(jobs), history.has_timestamps)


def _sort_key(job: JobRecord, history: JobHistory) -> tuple[float, str]:
    start, end = _time_range(job)
    return (start if history.has_timestamps else end - start, job.id)


def _time_range(job: JobRecord) -> tuple[float, float]:
    spans = [*job.waits, *(span for execution in job.executions for span in execution.spans)]
    return min((span.start for span in spans), default=0.0), max((span.end for span in spans), default=0.0)


def _timeline_bars(job: JobRecord) -> Iterator[TimelineBar]:
    for span in job.waits:
        yield TimelineBar(span.start, span.end, palette.color_of(span.phase, None))
    for execution, intervals in zip(job.executions, classify_job_time(job), strict=True):
        label = f" · execution {execution.number}{' · ' if execution.site else ''}{execution.site}"
        for interval in intervals:
            yield TimelineBar(interval.start, interval.end, palette.color_of(interval.phase, interval.use), label)


def format_tooltip(row: TimelineRow, bar: TimelineBar) -> str:
    """Return a tooltip: 794570.010 · execution 2 · CHTC · wasted transfer 1 h 2 min."""
    return f"{row.name}{bar.label} · {bar.color.label} {format_duration(bar.end - bar.start)}"


def draw_timeline(all_rows: TimelineRows, width: float) -> Drawing:
    rows = all_rows.rows
    colors = _used_colors(rows)
    named = len(rows) <= _MAX_NAMED_ROWS
    room = max(80.0, width * 0.16)
    names = [shorten_to_width(row.name, room, SMALL_FONT) for row in rows] if named else []
    left = label_column_width(names or [f"{all_rows.n_jobs:,}"], room)
    top = legend_height(colors, width)
    height = _row_height(len(rows)) * len(rows)
    drawing = Drawing(width, top + height + 42)
    draw_legend(drawing, colors, 0, 0, width)
    plot = PlotArea(left, top, width - 14, top + height)
    scale = _draw_axes(drawing, plot, rows, all_rows.has_timestamps)
    _draw_rows(drawing, plot, rows, scale)
    if named:
        _draw_names(drawing, plot, names)
    else:
        draw_y_axis(
            drawing, plot, count_ticks(all_rows.n_jobs, 8)[1:], LinearScale(0, all_rows.n_jobs, plot.top, plot.bottom)
        )
    return drawing


def _row_height(count: int) -> float:
    return 17.0 if count <= _MAX_NAMED_ROWS else min(8.0, max(1.0, _MAX_HEIGHT / count))


def _used_colors(rows: Sequence[TimelineRow]) -> list[ThemeColor]:
    used = {bar.color for row in rows for bar in row.bars if bar.end > bar.start}
    colors = [color for color in palette.TIME_COLORS if color in used]
    marks_failures = any(_has_failed(row) for row in rows) and len(rows) <= _MAX_ROWS_WITH_TOOLTIPS
    return [*colors, palette.ERROR] if marks_failures else colors


def _has_failed(row: TimelineRow) -> bool:
    return row.job.outcome not in _NOT_FAILED_OUTCOMES


def _draw_axes(drawing: Drawing, plot: PlotArea, rows: Sequence[TimelineRow], has_timestamps: bool) -> LinearScale:
    bars = [bar for row in rows for bar in row.bars]
    start = min((bar.start for bar in bars), default=0.0)
    longest = max((bar.end for bar in bars), default=start) - start or 1.0
    ticks = [tick for tick in time_ticks(longest, 9 if plot.width > 500 else 4) if tick[0] <= longest]
    scale = LinearScale(start, start + longest, plot.left, plot.right)
    title = "since the first job was submitted" if has_timestamps else "since the beginning of each job"
    draw_x_grid(drawing, plot, ticks, lambda value: scale(start + value))
    draw_x_axis(drawing, plot, ticks, lambda value: scale(start + value), title)
    return scale


def _draw_rows(drawing: Drawing, plot: PlotArea, rows: Sequence[TimelineRow], scale: LinearScale) -> None:
    """Draw the rows: with tooltips if they are few, otherwise as one mark per color."""
    height = _row_height(len(rows))
    boxes_by_color: dict[ThemeColor, list[Box]] = {}
    for number, row in enumerate(rows):
        y = plot.top + number * height
        for bar in row.bars:
            box = _box(bar, y, height, scale)
            if len(rows) <= _MAX_ROWS_WITH_TOOLTIPS:
                drawing.rect(box, bar.color, format_tooltip(row, bar))
            else:
                boxes_by_color.setdefault(bar.color, []).append(box)
        if _has_failed(row) and len(rows) <= _MAX_ROWS_WITH_TOOLTIPS:
            x = scale(row.end) + 7
            draw_cross(drawing, x, y + height / 2, min(3.5, height / 2 - 0.5))
    for color, boxes in boxes_by_color.items():
        drawing.rects(boxes, color)


def _box(bar: TimelineBar, y: float, height: float, scale: LinearScale) -> Box:
    """Return the box of a bar. Waits are thinner if the rows are high enough."""
    gap = 0.18 * height if height > 3 else 0.0
    inset = 0.38 * height if height > 3 and bar.color in _WAITING else gap
    x, end = scale(bar.start), scale(bar.end)
    return x, y + inset, max(end - x, 1.2 if height > 3 else 0.4), height - 2 * inset


def _draw_names(drawing: Drawing, plot: PlotArea, names: Sequence[str]) -> None:
    height = _row_height(len(names))
    for number, name in enumerate(names):
        drawing.muted_text(name, plot.left - 8, plot.top + (number + 0.5) * height + 4, "end", SMALL_FONT)
