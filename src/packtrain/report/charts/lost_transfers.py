"""What each job lost to transfers that were thrown away, the worst first, and how few of them are most of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from packtrain.report.analysis.statistics import Figures
from packtrain.report.analysis.time_accounting import Share
from packtrain.report.charts.canvas.axes import SMALL, Plot, draw_upright, room_for
from packtrain.report.charts.canvas.drawing import Drawing, width_of
from packtrain.report.charts.canvas.scales import Scale, time_ticks
from packtrain.report.charts.palette import FAINT, INK, THROWN_AWAY
from packtrain.report.number_format import hours_words, time_words

MOST_BARS = 1000
_TOLD = 120
_HEIGHT = 230.0
_MOST_OF_IT = 0.8
Loss = tuple[str, float]


def losses_of(figures: Figures) -> list[Loss]:
    """Of the jobs that lost anything, the most first."""
    found = [(row.job, row.shares.get(Share.THROWN_AWAY, 0.0)) for row in figures.rows]
    return sorted((loss for loss in found if loss[1] > 0), key=lambda loss: (-loss[1], loss[0]))


def draw_stalls(figures: Figures, width: float) -> Drawing:
    losses = losses_of(figures)
    longest = losses[0][1] if losses else 1.0
    ticks = time_ticks(longest, 5)
    plot = Plot(room_for((label for _, label in ticks), width / 4), 26, width - 4, 26 + _HEIGHT)
    drawing = Drawing(width, plot.bottom + 26)
    scale = Scale(0, ticks[-1][0], plot.bottom, plot.top)
    draw_upright(drawing, plot, ticks, scale)
    shown = losses[:: -(-len(losses) // MOST_BARS) or 1]
    _draw_bars(drawing, plot, shown, scale)
    _draw_few(drawing, plot, losses)
    drawing.note(_axis_words(losses, figures.jobs, plot.width), plot.left, plot.bottom + 18, size=SMALL)
    return drawing


def _axis_words(losses: Sequence[Loss], jobs: int, room: float) -> str:
    told = f"{len(losses):,} of {jobs:,} job{'s' if jobs != 1 else ''}"
    longer = f"{told} lost {hours_words(sum(loss for _, loss in losses))} this way, the worst first"
    return longer if width_of(longer, SMALL) <= room else told


def _draw_bars(drawing: Drawing, plot: Plot, losses: Sequence[Loss], scale: Scale) -> None:
    step = plot.width / max(1, len(losses))
    gap = min(4.0, step * 0.2) if step > 2.5 else 0.0
    width = min(step - gap, 44.0)
    for number, (job, loss) in enumerate(losses if len(losses) <= _TOLD else ()):
        x = plot.left + number * step + (step - width) / 2
        y = scale(loss)
        drawing.tile((x, y, width, plot.bottom - y), THROWN_AWAY, f"{job}: {time_words(loss)}")
    if len(losses) > _TOLD:
        tops = [(plot.left + number * step, scale(loss)) for number, (_, loss) in enumerate(losses)]
        drawing.tiles(((x, y, step, plot.bottom - y) for x, y in tops), THROWN_AWAY)


def _draw_few(drawing: Drawing, plot: Plot, losses: Sequence[Loss]) -> None:
    """A line after the jobs that account for most of it, if that says anything."""
    few = few_of(losses)
    if not 0 < few < len(losses) * 0.75:
        return
    x = plot.left + plot.width * few / len(losses)
    told = f"{few:,} job{'s' if few > 1 else ''}: {_MOST_OF_IT:.0%} of all that was lost"
    drawing.line(((x, plot.top - 8), (x, plot.bottom)), FAINT, 1.0, dashed=True)
    left = min(x - 4, plot.right - width_of(told, 12, bold=True))
    drawing.words(told, left, plot.top - 14, paint=INK, bold=True)


def few_of(losses: Sequence[Loss]) -> int:
    """How many of the worst make up most of the whole."""
    whole = sum(loss for _, loss in losses)
    sums = accumulate(loss for _, loss in losses)
    return next((number for number, total in enumerate(sums, 1) if total >= _MOST_OF_IT * whole), 0)
