"""How long each job took from its first slot to its end, and what that time was. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.analysis.time_accounting import classify_job_time
from packtrain.report.charts import palette
from packtrain.report.charts.canvas.axes import (
    SMALL_FONT,
    PlotArea,
    draw_legend,
    draw_y_axis,
    label_column_width,
    legend_height,
    spread_positions,
)
from packtrain.report.charts.canvas.drawing import Box, Drawing, text_width
from packtrain.report.charts.canvas.scales import LinearScale, time_ticks
from packtrain.report.charts.palette import MUTED, TEXT, ThemeColor
from packtrain.report.history import JobHistory, JobRecord, Outcome
from packtrain.report.number_format import format_duration_coarse

MAX_BARS = 1000
_MAX_TOOLTIPS = 120
_HEIGHT = 250.0
Bar = tuple[JobRecord, float, dict[ThemeColor, float]]


def completion_bars(history: JobHistory, stats: ReportStats, max_bars: int = MAX_BARS) -> list[Bar]:
    """The jobs that succeeded, the quickest first; of too many every so-manyth, the slowest always."""
    found = [
        (job, row.completion_s)
        for job, row in zip(history.jobs, stats.job_summaries, strict=True)
        if job.outcome is Outcome.SUCCEEDED and row.completion_s is not None
    ]
    found.sort(key=lambda bar: (bar[1], bar[0].id))
    step = -(-len(found) // max_bars) or 1
    return [(job, seconds, _time_by_color(job, seconds)) for job, seconds in found[::-step][::-1]]


def _time_by_color(job: JobRecord, seconds: float) -> dict[ThemeColor, float]:
    """What the time was, of those attempts that lie within it; the rest of it was waiting for another slot."""
    sums: defaultdict[ThemeColor, float] = defaultdict(float)
    for pieces in classify_job_time(job):
        for piece in pieces:
            sums[palette.color_of(piece.phase, piece.use)] += piece.end - piece.start
    slots = sum(sums.values())
    if slots > seconds > 0:  # two copies at once: their shares of the time
        return {paint: sums[paint] * seconds / slots for paint in palette.TIME_COLORS if sums[paint] > 0}
    sums[palette.QUEUED] += max(0.0, seconds - slots)
    return {paint: sums[paint] for paint in palette.TIME_COLORS if sums[paint] > 0}


def draw_completion(bars: Sequence[Bar], stats: ReportStats, width: float) -> Drawing:
    longest = max((seconds for _, seconds, _ in bars), default=0.0) or 1.0
    paints = [paint for paint in palette.TIME_COLORS if any(paint in parts for _, _, parts in bars)]
    ticks = time_ticks(longest, 5)
    marks = _reference_lines(stats)
    top = legend_height(paints, width) + 8
    right = width - (label_column_width((words for _, words in marks), width / 2, bold=True) + 3 if marks else 0)
    plot = PlotArea(label_column_width((label for _, label in ticks), width / 4), top, right, top + _HEIGHT)
    drawing = Drawing(width, plot.bottom + 26)
    draw_legend(drawing, paints, 0, 0, width)
    scale = LinearScale(0, ticks[-1][0], plot.bottom, plot.top)
    draw_y_axis(drawing, plot, ticks, scale)
    _draw_bars(drawing, plot, bars, scale)
    _draw_reference_lines(drawing, plot, marks, scale)
    count = stats.completion_s.count if stats.completion_s else 0
    drawing.muted_text(_axis_label(count, plot.width), plot.left, plot.bottom + 18, size=SMALL_FONT)
    return drawing


def _axis_label(count: int, room: float) -> str:
    told = f"{count:,} job{'s' if count != 1 else ''} that succeeded"
    longer = f"{told}, from the quickest to the slowest"
    return longer if count > 1 and text_width(longer, SMALL_FONT) <= room else told


def _draw_bars(drawing: Drawing, plot: PlotArea, bars: Sequence[Bar], scale: LinearScale) -> None:
    step = plot.width / max(1, len(bars))
    gap = min(4.0, step * 0.2) if step > 2.5 else 0.0
    bar_width = min(step - gap, 44.0)
    heap: dict[ThemeColor, list[Box]] = {}
    for number, (job, seconds, parts) in enumerate(bars):
        x = plot.left + number * step + (step - bar_width) / 2
        for paint, box in _stack(parts, x, bar_width, scale):
            if len(bars) <= _MAX_TOOLTIPS:
                told = f"{job.id}: {format_duration_coarse(seconds)}, of it {paint.label} {format_duration_coarse(parts[paint])}"
                drawing.rect(box, paint, told)
            else:
                heap.setdefault(paint, []).append(box)
    for paint, boxes in heap.items():
        drawing.rects(boxes, paint)


def _stack(
    parts: dict[ThemeColor, float], x: float, width: float, scale: LinearScale
) -> Iterator[tuple[ThemeColor, Box]]:
    reached = 0.0
    for paint, seconds in parts.items():
        low, high = scale(reached), scale(reached + seconds)
        yield paint, (x, high, width, low - high)
        reached += seconds


def _reference_lines(stats: ReportStats) -> list[tuple[float, str]]:
    told = stats.completion_s
    if told is None:
        return []
    found = [(told.median, f"median {format_duration_coarse(told.median)}")]
    if told.count > 1:
        found += [
            (told.p95, f"p95 {format_duration_coarse(told.p95)}"),
            (told.maximum, f"slowest {format_duration_coarse(told.maximum)}"),
        ]
    return found


def _draw_reference_lines(
    drawing: Drawing, plot: PlotArea, marks: Sequence[tuple[float, str]], scale: LinearScale
) -> None:
    """Their words stand at the right, apart from one another and within the picture."""
    places = [scale(value) for value, _ in marks]
    spots = spread_positions(places, 16.0, plot.top, plot.bottom)
    for (_, words), place, spot in zip(marks, places, spots, strict=True):
        median = words.startswith("median")
        drawing.line(((plot.left, place), (plot.right + 3, place)), TEXT if median else MUTED, 1.1, dashed=True)
        drawing.line(((plot.right + 3, place), (plot.right + 9, spot)), MUTED, 0.8)
        drawing.text(words, plot.right + 12, spot + 4, size=SMALL_FONT, bold=median)
