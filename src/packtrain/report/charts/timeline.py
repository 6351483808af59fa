"""One row a job, coloured by what it was doing: stalls show at a glance. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from packtrain.report.analysis.job_labels import points_of
from packtrain.report.analysis.time_accounting import judged
from packtrain.report.charts import palette
from packtrain.report.charts.canvas.axes import (
    SMALL,
    Plot,
    draw_along,
    draw_cross,
    draw_lattice,
    draw_legend,
    draw_upright,
    legend_height,
    room_for,
)
from packtrain.report.charts.canvas.drawing import Box, Drawing, fitted
from packtrain.report.charts.canvas.scales import Scale, count_ticks, time_ticks
from packtrain.report.charts.palette import Paint
from packtrain.report.history import History, Job, Outcome
from packtrain.report.number_format import time_words

MOST_ROWS = 1000
_NAMED = 40  # more rows have no room for names
_TOLD = 120  # more rows have no words to point at
_HEIGHT = 760.0  # of all rows, as long as each has a pixel
_WAITING = (palette.QUEUED, palette.HELD)
_GOOD = (Outcome.SUCCEEDED, Outcome.RUNNING, Outcome.CONTINUES)


class Piece(NamedTuple):
    start: float
    end: float
    paint: Paint
    place: str = ""  # what is told of it when one points at it


class Row(NamedTuple):
    job: Job
    name: str
    pieces: tuple[Piece, ...]

    @property
    def end(self) -> float:
        return max((piece.end for piece in self.pieces), default=0.0)


class Rows(NamedTuple):
    shown: list[Row]
    step: int  # 1: all of them; 20: every 20th
    jobs: int
    absolute: bool


def rows_of(history: History, most: int = MOST_ROWS) -> Rows:
    """In order of their beginning (where all begin at 0: of their length); of too many jobs every so-manyth."""
    jobs = sorted((job for job in history.jobs if job.attempts or job.waits), key=lambda job: _order(job, history))
    step = -(-len(jobs) // most) or 1
    points = points_of(history.jobs)
    rows = [Row(job, f"{job.id}  {points.get(job.id, '')}".strip(), tuple(_pieces(job))) for job in jobs[::step]]
    return Rows(rows, step, len(jobs), history.absolute)


def _order(job: Job, history: History) -> tuple[float, str]:
    start, end = _reach(job)
    return (start if history.absolute else end - start, job.id)


def _reach(job: Job) -> tuple[float, float]:
    spans = [*job.waits, *(span for attempt in job.attempts for span in attempt.spans)]
    return min((span.start for span in spans), default=0.0), max((span.end for span in spans), default=0.0)


def _pieces(job: Job) -> Iterator[Piece]:
    for span in job.waits:
        yield Piece(span.start, span.end, palette.of_piece(span.phase, None))
    for attempt, pieces in zip(job.attempts, judged(job), strict=True):
        place = f" · attempt {attempt.number}{' · ' if attempt.site else ''}{attempt.site}"
        for piece in pieces:
            yield Piece(piece.start, piece.end, palette.of_piece(piece.phase, piece.share), place)


def told(row: Row, piece: Piece) -> str:
    """794570.010 · attempt 2 · CHTC · transfer thrown away 1 h 2 min"""
    return f"{row.name}{piece.place} · {piece.paint.words} {time_words(piece.end - piece.start)}"


def draw_timeline(all_rows: Rows, width: float) -> Drawing:
    rows = all_rows.shown
    paints = _paints(rows)
    named = len(rows) <= _NAMED
    room = max(80.0, width * 0.16)
    names = [fitted(row.name, room, SMALL) for row in rows] if named else []
    left = room_for(names or [f"{all_rows.jobs:,}"], room)
    top = legend_height(paints, width)
    height = _row_height(len(rows)) * len(rows)
    drawing = Drawing(width, top + height + 42)
    draw_legend(drawing, paints, 0, 0, width)
    plot = Plot(left, top, width - 14, top + height)
    scale = _draw_axes(drawing, plot, rows, all_rows.absolute)
    _draw_rows(drawing, plot, rows, scale)
    if named:
        _draw_names(drawing, plot, names)
    else:
        draw_upright(drawing, plot, count_ticks(all_rows.jobs, 8)[1:], Scale(0, all_rows.jobs, plot.top, plot.bottom))
    return drawing


def _row_height(count: int) -> float:
    return 17.0 if count <= _NAMED else min(8.0, max(1.0, _HEIGHT / count))


def _paints(rows: Sequence[Row]) -> list[Paint]:
    seen = {piece.paint for row in rows for piece in row.pieces if piece.end > piece.start}
    found = [paint for paint in palette.SECONDS if paint in seen]
    return [*found, palette.BAD] if any(_failed(row) for row in rows) and len(rows) <= _TOLD else found


def _failed(row: Row) -> bool:
    return row.job.outcome not in _GOOD


def _draw_axes(drawing: Drawing, plot: Plot, rows: Sequence[Row], absolute: bool) -> Scale:
    pieces = [piece for row in rows for piece in row.pieces]
    start = min((piece.start for piece in pieces), default=0.0)
    longest = max((piece.end for piece in pieces), default=start) - start or 1.0
    ticks = [tick for tick in time_ticks(longest, 9 if plot.width > 500 else 4) if tick[0] <= longest]
    scale = Scale(start, start + longest, plot.left, plot.right)
    title = "since the first job was submitted" if absolute else "since the beginning of each job"
    draw_lattice(drawing, plot, ticks, lambda value: scale(start + value))
    draw_along(drawing, plot, ticks, lambda value: scale(start + value), title)
    return scale


def _draw_rows(drawing: Drawing, plot: Plot, rows: Sequence[Row], scale: Scale) -> None:
    """With words to point at while they are few; else all of one colour at once."""
    height = _row_height(len(rows))
    heap: dict[Paint, list[Box]] = {}
    for number, row in enumerate(rows):
        y = plot.top + number * height
        for piece in row.pieces:
            box = _box(piece, y, height, scale)
            if len(rows) <= _TOLD:
                drawing.tile(box, piece.paint, told(row, piece))
            else:
                heap.setdefault(piece.paint, []).append(box)
        if _failed(row) and len(rows) <= _TOLD:
            x = scale(row.end) + 7
            draw_cross(drawing, x, y + height / 2, min(3.5, height / 2 - 0.5))
    for paint, boxes in heap.items():
        drawing.tiles(boxes, paint)


def _box(piece: Piece, y: float, height: float, scale: Scale) -> Box:
    """Waiting is drawn thin, where there is room for a difference."""
    gap = 0.18 * height if height > 3 else 0.0
    inset = 0.38 * height if height > 3 and piece.paint in _WAITING else gap
    x, end = scale(piece.start), scale(piece.end)
    return x, y + inset, max(end - x, 1.2 if height > 3 else 0.4), height - 2 * inset


def _draw_names(drawing: Drawing, plot: Plot, names: Sequence[str]) -> None:
    height = _row_height(len(names))
    for number, name in enumerate(names):
        drawing.note(name, plot.left - 8, plot.top + (number + 0.5) * height + 4, "end", SMALL)
