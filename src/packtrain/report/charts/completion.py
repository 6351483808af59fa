"""How long each job took from its first slot to its end, and what that time was. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from packtrain.report.analysis.statistics import Figures
from packtrain.report.analysis.time_accounting import judged
from packtrain.report.charts import palette
from packtrain.report.charts.canvas.axes import SMALL, Plot, draw_legend, draw_upright, legend_height, room_for, settled
from packtrain.report.charts.canvas.drawing import Box, Drawing, width_of
from packtrain.report.charts.canvas.scales import Scale, time_ticks
from packtrain.report.charts.palette import FAINT, INK, Paint
from packtrain.report.history import History, Job, Outcome
from packtrain.report.number_format import time_words

MOST_BARS = 1000
_TOLD = 120
_HEIGHT = 250.0
Bar = tuple[Job, float, dict[Paint, float]]


def bars_of(history: History, figures: Figures, most: int = MOST_BARS) -> list[Bar]:
    """The jobs that succeeded, the quickest first; of too many every so-manyth, the slowest always."""
    found = [
        (job, row.completion_s)
        for job, row in zip(history.jobs, figures.rows, strict=True)
        if job.outcome is Outcome.SUCCEEDED and row.completion_s is not None
    ]
    found.sort(key=lambda bar: (bar[1], bar[0].id))
    step = -(-len(found) // most) or 1
    return [(job, seconds, _parts(job, seconds)) for job, seconds in found[::-step][::-1]]


def _parts(job: Job, seconds: float) -> dict[Paint, float]:
    """What the time was, of those attempts that lie within it; the rest of it was waiting for another slot."""
    sums: defaultdict[Paint, float] = defaultdict(float)
    for pieces in judged(job):
        for piece in pieces:
            sums[palette.of_piece(piece.phase, piece.share)] += piece.end - piece.start
    slots = sum(sums.values())
    if slots > seconds > 0:  # two copies at once: their shares of the time
        return {paint: sums[paint] * seconds / slots for paint in palette.SECONDS if sums[paint] > 0}
    sums[palette.QUEUED] += max(0.0, seconds - slots)
    return {paint: sums[paint] for paint in palette.SECONDS if sums[paint] > 0}


def draw_completion(bars: Sequence[Bar], figures: Figures, width: float) -> Drawing:
    longest = max((seconds for _, seconds, _ in bars), default=0.0) or 1.0
    paints = [paint for paint in palette.SECONDS if any(paint in parts for _, _, parts in bars)]
    ticks = time_ticks(longest, 5)
    marks = _marks(figures)
    top = legend_height(paints, width) + 8
    right = width - (room_for((words for _, words in marks), width / 2, bold=True) + 3 if marks else 0)
    plot = Plot(room_for((label for _, label in ticks), width / 4), top, right, top + _HEIGHT)
    drawing = Drawing(width, plot.bottom + 26)
    draw_legend(drawing, paints, 0, 0, width)
    scale = Scale(0, ticks[-1][0], plot.bottom, plot.top)
    draw_upright(drawing, plot, ticks, scale)
    _draw_bars(drawing, plot, bars, scale)
    _draw_marks(drawing, plot, marks, scale)
    count = figures.completion.count if figures.completion else 0
    drawing.note(_axis_words(count, plot.width), plot.left, plot.bottom + 18, size=SMALL)
    return drawing


def _axis_words(count: int, room: float) -> str:
    told = f"{count:,} job{'s' if count != 1 else ''} that succeeded"
    longer = f"{told}, from the quickest to the slowest"
    return longer if count > 1 and width_of(longer, SMALL) <= room else told


def _draw_bars(drawing: Drawing, plot: Plot, bars: Sequence[Bar], scale: Scale) -> None:
    step = plot.width / max(1, len(bars))
    gap = min(4.0, step * 0.2) if step > 2.5 else 0.0
    bar_width = min(step - gap, 44.0)
    heap: dict[Paint, list[Box]] = {}
    for number, (job, seconds, parts) in enumerate(bars):
        x = plot.left + number * step + (step - bar_width) / 2
        for paint, box in _stack(parts, x, bar_width, scale):
            if len(bars) <= _TOLD:
                told = f"{job.id}: {time_words(seconds)}, of it {paint.words} {time_words(parts[paint])}"
                drawing.tile(box, paint, told)
            else:
                heap.setdefault(paint, []).append(box)
    for paint, boxes in heap.items():
        drawing.tiles(boxes, paint)


def _stack(parts: dict[Paint, float], x: float, width: float, scale: Scale) -> Iterator[tuple[Paint, Box]]:
    reached = 0.0
    for paint, seconds in parts.items():
        low, high = scale(reached), scale(reached + seconds)
        yield paint, (x, high, width, low - high)
        reached += seconds


def _marks(figures: Figures) -> list[tuple[float, str]]:
    told = figures.completion
    if told is None:
        return []
    found = [(told.median, f"median {time_words(told.median)}")]
    if told.count > 1:
        found += [(told.p95, f"p95 {time_words(told.p95)}"), (told.high, f"slowest {time_words(told.high)}")]
    return found


def _draw_marks(drawing: Drawing, plot: Plot, marks: Sequence[tuple[float, str]], scale: Scale) -> None:
    """Their words stand at the right, apart from one another and within the picture."""
    places = [scale(value) for value, _ in marks]
    spots = settled(places, 16.0, plot.top, plot.bottom)
    for (_, words), place, spot in zip(marks, places, spots, strict=True):
        median = words.startswith("median")
        drawing.line(((plot.left, place), (plot.right + 3, place)), INK if median else FAINT, 1.1, dashed=True)
        drawing.line(((plot.right + 3, place), (plot.right + 9, spot)), FAINT, 0.8)
        drawing.words(words, plot.right + 12, spot + 4, size=SMALL, bold=median)
