"""The training chart of the page: loss above, metric below, one line per job. `training` draws the same as a file.

Up to eight jobs have their own color and label. Of more jobs, only the best, the median and the worst are labeled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from packtrain.report.charts import palette
from packtrain.report.charts.canvas.axes import (
    SMALL_FONT,
    PlotArea,
    draw_x_axis,
    draw_x_grid,
    draw_y_axis,
    spread_positions,
)
from packtrain.report.charts.canvas.drawing import Drawing, shorten_to_width
from packtrain.report.charts.canvas.scales import LinearScale, LogScale, log_ticks, value_ticks
from packtrain.report.charts.palette import ThemeColor
from packtrain.report.charts.smoothing import downsample, smooth_line
from packtrain.report.charts.training import MetricPanel, choose_panels
from packtrain.report.readers.training_curves import CurvePoint, TrainingCurve, TrainingCurves

MAX_NAMED_JOBS = 8
MAX_LINES = 200
_PANEL, _GAP = 190.0, 58.0
_MIN_LABEL_SPACING = 15.0
_MIN_RATIO_FOR_LOG_AXIS = 40.0
_LINE_COLORS = (
    palette.UNPACK, palette.WASTED_TRANSFER, palette.EXECUTE, palette.TIME_LIMIT, palette.EVICTION, palette.TRANSFER,
    palette.DISCONNECTED, palette.HELD,
)  # fmt: skip
AxisScale = Callable[[float], float]


@dataclass(frozen=True)
class ChartLine:
    """The line of one job."""

    curve: TrainingCurve
    points: tuple[CurvePoint, ...]
    color: ThemeColor
    name: str = ""  # the label at its end; empty for none

    @property
    def last(self) -> float:
        return self.points[-1][1]


def draw_training(curves: TrainingCurves, width: float) -> Drawing:
    panels = choose_panels(curves)
    drawing = Drawing(width, 24 + len(panels) * (_PANEL + _GAP))
    x_max = max((step for job in curves.jobs for line in job.series.values() for step, _ in line), default=0.0) or 1.0
    right = width - min(200.0, width * 0.34)
    for number, panel in enumerate(panels):
        top = 24 + number * (_PANEL + _GAP)
        plot = PlotArea(52, top, right, top + _PANEL)
        drawing.text(shorten_to_width(panel.title, width, 12.5, bold=True), 0, top - 11, size=12.5, bold=True)
        lines = list(_chart_lines(curves, panel))
        x_scale = LinearScale(0, x_max, plot.left, plot.right)
        ticks = [(value, f"{value:,.6g}") for value in value_ticks(0, x_max, 6 if width > 500 else 3)]
        draw_x_grid(drawing, plot, ticks, x_scale)
        _draw_panel(drawing, plot, panel, lines, x_scale)
        draw_x_axis(drawing, plot, ticks, x_scale, curves.x_axis if panel is panels[-1] else "")
    return drawing


def _chart_lines(curves: TrainingCurves, panel: MetricPanel) -> Iterator[ChartLine]:
    """Yield the lines of the main metric."""
    name, few = panel.metrics[0], len(curves.jobs) <= MAX_NAMED_JOBS
    lines = [(curve, points) for curve in curves.jobs if (points := _finite_points(curve.series.get(name, ()), few))]
    lines.sort(key=lambda line: line[1][-1][1], reverse="loss" not in name)
    if few:
        order = {curve.job_id: number for number, curve in enumerate(curves.jobs)}
        for curve, points in lines:
            yield ChartLine(curve, points, _LINE_COLORS[order[curve.job_id]], curve.label)
        return
    last = len(lines) - 1
    labeled = {last: "worst", last // 2: "median", 0: "best"}
    colors = {0: palette.EXECUTE, last: palette.WASTED_TRANSFER}
    step = -(-len(lines) // MAX_LINES)
    for number, (curve, points) in enumerate(lines):
        if number in labeled or number % step == 0:
            yield ChartLine(curve, points, colors.get(number, palette.UNPACK), labeled.get(number, ""))


def _finite_points(line: Sequence[CurvePoint], few: bool) -> tuple[CurvePoint, ...]:
    return tuple(point for point in smooth_line(downsample(line, 300 if few else 60)) if math.isfinite(point[1]))


def _draw_panel(
    drawing: Drawing, plot: PlotArea, panel: MetricPanel, lines: Sequence[ChartLine], x_scale: AxisScale
) -> None:
    values = [value for line in lines for _, value in line.points]
    if not values:
        drawing.muted_text("no finite values", plot.left + 8, plot.top + 20)
        return
    ticks, y_scale = _y_axis(plot, panel, values)
    draw_y_axis(drawing, plot, ticks, y_scale)
    labeled = [line for line in lines if line.name]
    for line in (*(line for line in lines if not line.name), *labeled):
        is_named = bool(line.name)
        points = [(x_scale(step), y_scale(value)) for step, value in line.points]
        drawing.line(points, line.color, 2.0 if is_named else 1.0, opacity=1.0 if is_named else 0.35)
        if len(points) == 1:
            drawing.dots(points, 3, line.color)
    label_ys = spread_positions([y_scale(line.last) for line in labeled], _MIN_LABEL_SPACING, plot.top, plot.bottom)
    for line, y in zip(labeled, label_ys, strict=True):
        _draw_line_label(drawing, plot, panel, line, y)


def _draw_line_label(drawing: Drawing, plot: PlotArea, panel: MetricPanel, line: ChartLine, y: float) -> None:
    is_nonfinite = line.curve.nonfinite_from(panel.metrics[0]) is not None
    value = "not finite" if is_nonfinite else panel.format_value(line.last)
    label = f"{line.name} {value}" if line.name != line.curve.label else f"{value}  {line.name}"
    drawing.dots([(plot.right + 10, y)], 3.5, line.color)
    drawing.text(
        shorten_to_width(label, drawing.width - plot.right - 20, SMALL_FONT), plot.right + 18, y + 4, size=SMALL_FONT
    )


def _y_axis(plot: PlotArea, panel: MetricPanel, values: Sequence[float]) -> tuple[list[tuple[float, str]], AxisScale]:
    low, high = min(values), max(values)
    if "loss" in panel.metrics[0] and low > 0 and high / low > _MIN_RATIO_FOR_LOG_AXIS:
        ticks = log_ticks(low, high)
        return [(tick, f"{tick:g}") for tick in ticks], LogScale(ticks[0], ticks[-1], plot.bottom, plot.top)
    low, high = (0.0 if low > 0 and low < high * 0.7 else low), (high if high > low else low + 1)
    return [
        (tick, f"{100 * tick:.4g}%" if panel.is_percent else f"{tick:.4g}") for tick in value_ticks(low, high, 5)
    ], LinearScale(low, high, plot.bottom, plot.top)
