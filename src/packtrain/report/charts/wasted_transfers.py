"""The chart of wasted transfer time by job, the largest first, with the jobs that account for most of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from packtrain.formatting import format_duration, format_percent, format_slot_hours, pluralize
from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.charts.canvas.axes import SMALL_FONT, PlotArea, draw_y_axis, label_column_width
from packtrain.report.charts.canvas.drawing import Drawing, text_width
from packtrain.report.charts.canvas.scales import LinearScale, time_ticks
from packtrain.report.charts.palette import MUTED, TEXT, WASTED_TRANSFER

MAX_BARS = 1000
_MAX_TOOLTIPS = 120
_HEIGHT = 230.0
_MAJORITY = 0.8
Loss = tuple[str, float]


def losses_by_job(stats: ReportStats) -> list[Loss]:
    """Return the jobs with wasted transfer time, the largest first."""
    losses = [(row.job, row.time_use_s.get(TimeUse.WASTED_TRANSFER, 0.0)) for row in stats.job_summaries]
    return sorted((loss for loss in losses if loss[1] > 0), key=lambda loss: (-loss[1], loss[0]))


def draw_wasted_transfers(stats: ReportStats, width: float) -> Drawing:
    losses = losses_by_job(stats)
    longest = losses[0][1] if losses else 1.0
    ticks = time_ticks(longest, 5)
    plot = PlotArea(label_column_width((label for _, label in ticks), width / 4), 26, width - 4, 26 + _HEIGHT)
    drawing = Drawing(width, plot.bottom + 26)
    scale = LinearScale(0, ticks[-1][0], plot.bottom, plot.top)
    draw_y_axis(drawing, plot, ticks, scale)
    sampled = losses[:: -(-len(losses) // MAX_BARS) or 1]
    _draw_bars(drawing, plot, sampled, scale)
    _draw_majority_line(drawing, plot, losses)
    drawing.muted_text(_axis_label(losses, stats.jobs, plot.width), plot.left, plot.bottom + 18, size=SMALL_FONT)
    return drawing


def _axis_label(losses: Sequence[Loss], jobs: int, room: float) -> str:
    label = f"{len(losses):,} of {pluralize(jobs, 'job')}"
    longer = f"{label} wasted {format_slot_hours(sum(loss for _, loss in losses))}, the largest loss first"
    return longer if text_width(longer, SMALL_FONT) <= room else label


def _draw_bars(drawing: Drawing, plot: PlotArea, losses: Sequence[Loss], scale: LinearScale) -> None:
    step = plot.width / max(1, len(losses))
    gap = min(4.0, step * 0.2) if step > 2.5 else 0.0
    width = min(step - gap, 44.0)
    for number, (job, loss) in enumerate(losses if len(losses) <= _MAX_TOOLTIPS else ()):
        x = plot.left + number * step + (step - width) / 2
        y = scale(loss)
        drawing.rect((x, y, width, plot.bottom - y), WASTED_TRANSFER, f"{job}: {format_duration(loss)}")
    if len(losses) > _MAX_TOOLTIPS:
        tops = [(plot.left + number * step, scale(loss)) for number, (_, loss) in enumerate(losses)]
        drawing.rects(((x, y, step, plot.bottom - y) for x, y in tops), WASTED_TRANSFER)


def _draw_majority_line(drawing: Drawing, plot: PlotArea, losses: Sequence[Loss]) -> None:
    """Draw a line after the jobs that account for most of the loss, if they are count."""
    count = count_majority(losses)
    if not 0 < count < len(losses) * 0.75:
        return
    x = plot.left + plot.width * count / len(losses)
    label = f"{pluralize(count, 'job')}: {format_percent(_MAJORITY)} of the wasted time"
    drawing.line(((x, plot.top - 8), (x, plot.bottom)), MUTED, 1.0, dashed=True)
    left = min(x - 4, plot.right - text_width(label, 12, bold=True))
    drawing.text(label, left, plot.top - 14, color=TEXT, bold=True)


def count_majority(losses: Sequence[Loss]) -> int:
    """Return how many of the largest losses make up most of the total."""
    total_s = sum(loss for _, loss in losses)
    sums = accumulate(loss for _, loss in losses)
    return next((number for number, total in enumerate(sums, 1) if total >= _MAJORITY * total_s), 0)
