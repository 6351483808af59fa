"""What trainings reported: loss above, metric below, one line a job. Pure; `report.plots` draws the same as a file.

Few jobs have a colour and a name each; of many the best, the median and the worst are named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from packtrain.report.charts import palette
from packtrain.report.charts.canvas.axes import SMALL, Plot, draw_along, draw_lattice, draw_upright, settled
from packtrain.report.charts.canvas.drawing import Drawing, fitted
from packtrain.report.charts.canvas.scales import LogScale, Scale, log_ticks, value_ticks
from packtrain.report.charts.palette import Paint
from packtrain.report.charts.smoothing import smoothed, thinned
from packtrain.report.charts.training import Panel, panels_of
from packtrain.report.readers.training_curves import Curve, Curves, Point

FEW = 8
MOST_LINES = 200
_PANEL, _GAP = 190.0, 58.0
_APART = 15.0
_LOG_FROM = 40.0
_PAINTS = (
    palette.UNPACK, palette.THROWN_AWAY, palette.EXECUTE, palette.TIME_LIMIT, palette.EVICTION, palette.TRANSFER,
    palette.DISCONNECTED, palette.HELD,
)  # fmt: skip
Place = Callable[[float], float]


@dataclass(frozen=True)
class Drawn:
    """A job's line, fit to be drawn."""

    curve: Curve
    spots: tuple[Point, ...]
    paint: Paint
    name: str = ""  # at its end; empty: none

    @property
    def last(self) -> float:
        return self.spots[-1][1]


def draw_training(curves: Curves, width: float) -> Drawing:
    panels = panels_of(curves)
    drawing = Drawing(width, 24 + len(panels) * (_PANEL + _GAP))
    reach = max((step for job in curves.jobs for line in job.lines.values() for step, _ in line), default=0.0) or 1.0
    right = width - min(200.0, width * 0.34)
    for number, panel in enumerate(panels):
        top = 24 + number * (_PANEL + _GAP)
        plot = Plot(52, top, right, top + _PANEL)
        drawing.words(fitted(panel.title, width, 12.5, bold=True), 0, top - 11, size=12.5, bold=True)
        lines = list(_lines(curves, panel))
        place = Scale(0, reach, plot.left, plot.right)
        ticks = [(value, f"{value:,.6g}") for value in value_ticks(0, reach, 6 if width > 500 else 3)]
        draw_lattice(drawing, plot, ticks, place)
        _draw_panel(drawing, plot, panel, lines, place)
        draw_along(drawing, plot, ticks, place, curves.along if panel is panels[-1] else "")
    return drawing


def _lines(curves: Curves, panel: Panel) -> Iterator[Drawn]:
    """Of the metric that counts."""
    name, few = panel.names[0], len(curves.jobs) <= FEW
    found = [(curve, spots) for curve in curves.jobs if (spots := _spots(curve.lines.get(name, ()), few))]
    found.sort(key=lambda line: line[1][-1][1], reverse="loss" not in name)
    if few:
        order = {curve.job: number for number, curve in enumerate(curves.jobs)}
        for curve, spots in found:
            yield Drawn(curve, spots, _PAINTS[order[curve.job]], curve.label)
        return
    last = len(found) - 1
    named = {last: "worst", last // 2: "median", 0: "best"}
    paints = {0: palette.EXECUTE, last: palette.THROWN_AWAY}
    step = -(-len(found) // MOST_LINES)
    for number, (curve, spots) in enumerate(found):
        if number in named or number % step == 0:
            yield Drawn(curve, spots, paints.get(number, palette.UNPACK), named.get(number, ""))


def _spots(line: Sequence[Point], few: bool) -> tuple[Point, ...]:
    return tuple(point for point in smoothed(thinned(line, 300 if few else 60)) if math.isfinite(point[1]))


def _draw_panel(drawing: Drawing, plot: Plot, panel: Panel, lines: Sequence[Drawn], place: Place) -> None:
    values = [value for line in lines for _, value in line.spots]
    if not values:
        drawing.note("no value was finite", plot.left + 8, plot.top + 20)
        return
    ticks, rise = _upright(plot, panel, values)
    draw_upright(drawing, plot, ticks, rise)
    named = [line for line in lines if line.name]
    for line in (*(line for line in lines if not line.name), *named):
        strong = bool(line.name)
        spots = [(place(step), rise(value)) for step, value in line.spots]
        drawing.line(spots, line.paint, 2.0 if strong else 1.0, opacity=1.0 if strong else 0.35)
        if len(spots) == 1:
            drawing.dots(spots, 3, line.paint)
    places = settled([rise(line.last) for line in named], _APART, plot.top, plot.bottom)
    for line, y in zip(named, places, strict=True):
        _draw_end(drawing, plot, panel, line, y)


def _draw_end(drawing: Drawing, plot: Plot, panel: Panel, line: Drawn, y: float) -> None:
    broken = line.curve.broken_at(panel.names[0]) is not None
    value = "not finite" if broken else f"{line.last:.1%}" if panel.percent else f"{line.last:.3g}"
    words = f"{line.name} {value}" if line.name != line.curve.label else f"{value}  {line.name}"
    drawing.dots([(plot.right + 10, y)], 3.5, line.paint)
    drawing.words(fitted(words, drawing.width - plot.right - 20, SMALL), plot.right + 18, y + 4, size=SMALL)


def _upright(plot: Plot, panel: Panel, values: Sequence[float]) -> tuple[list[tuple[float, str]], Place]:
    low, high = min(values), max(values)
    if "loss" in panel.names[0] and low > 0 and high / low > _LOG_FROM:
        ticks = log_ticks(low, high)
        return [(tick, f"{tick:g}") for tick in ticks], LogScale(ticks[0], ticks[-1], plot.bottom, plot.top)
    low, high = (0.0 if low > 0 and low < high * 0.7 else low), (high if high > low else low + 1)
    return [
        (tick, f"{100 * tick:.4g}%" if panel.percent else f"{tick:.4g}") for tick in value_ticks(low, high, 5)
    ], Scale(low, high, plot.bottom, plot.top)
