"""The chart of completion times: one bar per job, from its first slot to its end, colored by time use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from packtrain.formatting import format_duration, pluralize
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

MAX_BARS = 1000
_MAX_TOOLTIPS = 120
_HEIGHT = 250.0
Bar = tuple[JobRecord, float, dict[ThemeColor, float]]


def completion_bars(history: JobHistory, stats: ReportStats, max_bars: int = MAX_BARS) -> list[Bar]:
    """Return the succeeded jobs, the fastest first. Too many are sampled; the slowest is always included."""
    jobs = [
        (job, row.completion_s)
        for job, row in zip(history.jobs, stats.job_summaries, strict=True)
        if job.outcome is Outcome.SUCCEEDED and row.completion_s is not None
    ]
    jobs.sort(key=lambda bar: (bar[1], bar[0].id))
    step = -(-len(jobs) // max_bars) or 1
    return [(job, seconds, _time_by_color(job, seconds)) for job, seconds in jobs[::-step][::-1]]


def _time_by_color(job: JobRecord, seconds: float) -> dict[ThemeColor, float]:
    """Return the time of a job by color. Time outside of executions is queued."""
    sums: defaultdict[ThemeColor, float] = defaultdict(float)
    for intervals in classify_job_time(job):
        for interval in intervals:
            sums[palette.color_of(interval.phase, interval.use)] += interval.end - interval.start
    slot_s = sum(sums.values())
    if slot_s > seconds > 0:  # two copies ran at the same time: scale them down
        return {color: sums[color] * seconds / slot_s for color in palette.TIME_COLORS if sums[color] > 0}
    sums[palette.QUEUED] += max(0.0, seconds - slot_s)
    return {color: sums[color] for color in palette.TIME_COLORS if sums[color] > 0}


def draw_completion(bars: Sequence[Bar], stats: ReportStats, width: float) -> Drawing:
    longest = max((seconds for _, seconds, _ in bars), default=0.0) or 1.0
    colors = [color for color in palette.TIME_COLORS if any(color in parts for _, _, parts in bars)]
    ticks = time_ticks(longest, 5)
    reference_lines = _reference_lines(stats)
    top = legend_height(colors, width) + 8
    right = width - (
        label_column_width((label for _, label in reference_lines), width / 2, bold=True) + 3 if reference_lines else 0
    )
    plot = PlotArea(label_column_width((label for _, label in ticks), width / 4), top, right, top + _HEIGHT)
    drawing = Drawing(width, plot.bottom + 26)
    draw_legend(drawing, colors, 0, 0, width)
    scale = LinearScale(0, ticks[-1][0], plot.bottom, plot.top)
    draw_y_axis(drawing, plot, ticks, scale)
    _draw_bars(drawing, plot, bars, scale)
    _draw_reference_lines(drawing, plot, reference_lines, scale)
    count = stats.completion_s.count if stats.completion_s else 0
    drawing.muted_text(_axis_label(count, plot.width), plot.left, plot.bottom + 18, size=SMALL_FONT)
    return drawing


def _axis_label(count: int, room: float) -> str:
    label = pluralize(count, "succeeded job")
    longer = f"{label}, from the fastest to the slowest"
    return longer if count > 1 and text_width(longer, SMALL_FONT) <= room else label


def _draw_bars(drawing: Drawing, plot: PlotArea, bars: Sequence[Bar], scale: LinearScale) -> None:
    step = plot.width / max(1, len(bars))
    gap = min(4.0, step * 0.2) if step > 2.5 else 0.0
    bar_width = min(step - gap, 44.0)
    boxes_by_color: dict[ThemeColor, list[Box]] = {}
    for number, (job, seconds, parts) in enumerate(bars):
        x = plot.left + number * step + (step - bar_width) / 2
        for color, box in _stack(parts, x, bar_width, scale):
            if len(bars) <= _MAX_TOOLTIPS:
                part = f"{color.label} {format_duration(parts[color])}"
                drawing.rect(box, color, f"{job.id}: {part} of {format_duration(seconds)}")
            else:
                boxes_by_color.setdefault(color, []).append(box)
    for color, boxes in boxes_by_color.items():
        drawing.rects(boxes, color)


def _stack(
    parts: dict[ThemeColor, float], x: float, width: float, scale: LinearScale
) -> Iterator[tuple[ThemeColor, Box]]:
    bottom_s = 0.0
    for color, seconds in parts.items():
        low, high = scale(bottom_s), scale(bottom_s + seconds)
        yield color, (x, high, width, low - high)
        bottom_s += seconds


def _reference_lines(stats: ReportStats) -> list[tuple[float, str]]:
    completion = stats.completion_s
    if completion is None:
        return []
    lines = [(completion.median, f"median {format_duration(completion.median)}")]
    if completion.count > 1:
        lines += [
            (completion.p95, f"p95 {format_duration(completion.p95)}"),
            (completion.maximum, f"slowest {format_duration(completion.maximum)}"),
        ]
    return lines


def _draw_reference_lines(
    drawing: Drawing, plot: PlotArea, reference_lines: Sequence[tuple[float, str]], scale: LinearScale
) -> None:
    """Draw the lines with their labels on the right, moved so that they do not overlap."""
    line_ys = [scale(value) for value, _ in reference_lines]
    label_ys = spread_positions(line_ys, 16.0, plot.top, plot.bottom)
    for (_, label), line_y, label_y in zip(reference_lines, line_ys, label_ys, strict=True):
        is_median = label.startswith("median")
        drawing.line(((plot.left, line_y), (plot.right + 3, line_y)), TEXT if is_median else MUTED, 1.1, dashed=True)
        drawing.line(((plot.right + 3, line_y), (plot.right + 9, label_y)), MUTED, 0.8)
        drawing.text(label, plot.right + 12, label_y + 4, size=SMALL_FONT, bold=is_median)
