"""One row a job, coloured by what it was doing: stalls show at a glance. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
from packtrain.report.number_format import format_duration_coarse

MAX_ROWS = 1000
_MAX_NAMED_ROWS = 40  # more rows have no room for names
_MAX_ROWS_WITH_TOOLTIPS = 120  # more rows have no words to point at
_MAX_HEIGHT = 760.0  # of all rows, as long as each has a pixel
_WAITING = (palette.QUEUED, palette.HELD)
_NOT_FAILED_OUTCOMES = (Outcome.SUCCEEDED, Outcome.RUNNING, Outcome.CHECKPOINTED)


class TimelineBar(NamedTuple):
    start: float
    end: float
    color: ThemeColor
    label: str = ""  # what is told of it when one points at it


class TimelineRow(NamedTuple):
    job: JobRecord
    name: str
    bars: tuple[TimelineBar, ...]

    @property
    def end(self) -> float:
        return max((piece.end for piece in self.bars), default=0.0)


class TimelineRows(NamedTuple):
    rows: list[TimelineRow]
    step: int  # 1: all of them; 20: every 20th
    n_jobs: int
    has_timestamps: bool


def build_timeline_rows(history: JobHistory, max_rows: int = MAX_ROWS) -> TimelineRows:
    """In order of their beginning (where all begin at 0: of their length); of too many jobs every so-manyth."""
    jobs = sorted((job for job in history.jobs if job.executions or job.waits), key=lambda job: _sort_key(job, history))
    step = -(-len(jobs) // max_rows) or 1
    points = job_labels(history.jobs)
    rows = [
        TimelineRow(job, f"{job.id}  {points.get(job.id, '')}".strip(), tuple(_timeline_bars(job)))
        for job in jobs[::step]
    ]
    return TimelineRows(rows, step, len(jobs), history.has_timestamps)


def _sort_key(job: JobRecord, history: JobHistory) -> tuple[float, str]:
    start, end = _time_range(job)
    return (start if history.has_timestamps else end - start, job.id)


def _time_range(job: JobRecord) -> tuple[float, float]:
    spans = [*job.waits, *(span for attempt in job.executions for span in attempt.spans)]
    return min((span.start for span in spans), default=0.0), max((span.end for span in spans), default=0.0)


def _timeline_bars(job: JobRecord) -> Iterator[TimelineBar]:
    for span in job.waits:
        yield TimelineBar(span.start, span.end, palette.color_of(span.phase, None))
    for attempt, pieces in zip(job.executions, classify_job_time(job), strict=True):
        place = f" · attempt {attempt.number}{' · ' if attempt.site else ''}{attempt.site}"
        for piece in pieces:
            yield TimelineBar(piece.start, piece.end, palette.color_of(piece.phase, piece.use), place)


def format_tooltip(row: TimelineRow, bar: TimelineBar) -> str:
    """794570.010 · attempt 2 · CHTC · transfer thrown away 1 h 2 min"""
    return f"{row.name}{bar.label} · {bar.color.label} {format_duration_coarse(bar.end - bar.start)}"


def draw_timeline(all_rows: TimelineRows, width: float) -> Drawing:
    rows = all_rows.rows
    paints = _used_colors(rows)
    named = len(rows) <= _MAX_NAMED_ROWS
    room = max(80.0, width * 0.16)
    names = [shorten_to_width(row.name, room, SMALL_FONT) for row in rows] if named else []
    left = label_column_width(names or [f"{all_rows.n_jobs:,}"], room)
    top = legend_height(paints, width)
    height = _row_height(len(rows)) * len(rows)
    drawing = Drawing(width, top + height + 42)
    draw_legend(drawing, paints, 0, 0, width)
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
    seen = {piece.color for row in rows for piece in row.bars if piece.end > piece.start}
    found = [paint for paint in palette.TIME_COLORS if paint in seen]
    return (
        [*found, palette.ERROR]
        if any(_has_failed(row) for row in rows) and len(rows) <= _MAX_ROWS_WITH_TOOLTIPS
        else found
    )


def _has_failed(row: TimelineRow) -> bool:
    return row.job.outcome not in _NOT_FAILED_OUTCOMES


def _draw_axes(drawing: Drawing, plot: PlotArea, rows: Sequence[TimelineRow], absolute: bool) -> LinearScale:
    pieces = [piece for row in rows for piece in row.bars]
    start = min((piece.start for piece in pieces), default=0.0)
    longest = max((piece.end for piece in pieces), default=start) - start or 1.0
    ticks = [tick for tick in time_ticks(longest, 9 if plot.width > 500 else 4) if tick[0] <= longest]
    scale = LinearScale(start, start + longest, plot.left, plot.right)
    title = "since the first job was submitted" if absolute else "since the beginning of each job"
    draw_x_grid(drawing, plot, ticks, lambda value: scale(start + value))
    draw_x_axis(drawing, plot, ticks, lambda value: scale(start + value), title)
    return scale


def _draw_rows(drawing: Drawing, plot: PlotArea, rows: Sequence[TimelineRow], scale: LinearScale) -> None:
    """With words to point at while they are few; else all of one colour at once."""
    height = _row_height(len(rows))
    heap: dict[ThemeColor, list[Box]] = {}
    for number, row in enumerate(rows):
        y = plot.top + number * height
        for piece in row.bars:
            box = _box(piece, y, height, scale)
            if len(rows) <= _MAX_ROWS_WITH_TOOLTIPS:
                drawing.rect(box, piece.color, format_tooltip(row, piece))
            else:
                heap.setdefault(piece.color, []).append(box)
        if _has_failed(row) and len(rows) <= _MAX_ROWS_WITH_TOOLTIPS:
            x = scale(row.end) + 7
            draw_cross(drawing, x, y + height / 2, min(3.5, height / 2 - 0.5))
    for paint, boxes in heap.items():
        drawing.rects(boxes, paint)


def _box(piece: TimelineBar, y: float, height: float, scale: LinearScale) -> Box:
    """Waiting is drawn thin, where there is room for a difference."""
    gap = 0.18 * height if height > 3 else 0.0
    inset = 0.38 * height if height > 3 and piece.color in _WAITING else gap
    x, end = scale(piece.start), scale(piece.end)
    return x, y + inset, max(end - x, 1.2 if height > 3 else 0.4), height - 2 * inset


def _draw_names(drawing: Drawing, plot: PlotArea, names: Sequence[str]) -> None:
    height = _row_height(len(names))
    for number, name in enumerate(names):
        drawing.muted_text(name, plot.left - 8, plot.top + (number + 0.5) * height + 4, "end", SMALL_FONT)
