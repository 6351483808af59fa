"""The chart of input transfers: a panel per site with a point for each complete or failed transfer.

The x axis is time, or the order of the jobs if there are no timestamps. The y axis is the speed, or the duration if
byte counts are unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from packtrain.formatting import format_duration, format_rate
from packtrain.report.analysis.distribution import quantile
from packtrain.report.analysis.input_transfers import SiteTransfer, collect_site_transfers
from packtrain.report.charts.canvas.axes import (
    SMALL_FONT,
    PlotArea,
    Ticks,
    draw_legend,
    draw_x_axis,
    draw_x_grid,
    draw_y_axis,
    label_column_width,
    legend_height,
)
from packtrain.report.charts.canvas.drawing import Drawing, shorten_to_width, text_width
from packtrain.report.charts.canvas.scales import (
    LinearScale,
    LogScale,
    count_ticks,
    downsample_evenly,
    log_ticks,
    time_ticks,
)
from packtrain.report.charts.palette import TEXT, TRANSFER, WASTED_TRANSFER
from packtrain.report.history import JobHistory

MAX_SITES = 8
MAX_DOTS = 500  # per site and color
_MIN_DURATION_S = 0.001  # shorter ones did not transfer anything
_PANEL, _GAP = 104.0, 38.0
_DURATION_TICKS_S = (1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, 360000.0, 3.6e6, 3.6e7)
_LEGEND = (replace(TRANSFER, label="complete"), replace(WASTED_TRANSFER, label="failed"))


class TransferPoint(NamedTuple):
    """A transfer as a point of the chart."""

    site: str
    x: float  # seconds since the first transfer, or the index of the job
    value: float
    complete: bool


@dataclass(frozen=True)
class TransferPoints:
    """All points of the chart."""

    points: tuple[TransferPoint, ...]
    has_rates: bool  # whether values are bytes per second instead of seconds
    has_timestamps: bool
    max_duration_s: float

    def format_value(self, value: float) -> str:
        return format_rate(value) if self.has_rates else format_duration(value)


def transfer_points_of(history: JobHistory) -> TransferPoints:
    transfers = [item for item in collect_site_transfers(history) if item.transfer.duration_s >= _MIN_DURATION_S]
    has_rates = any(item.bytes_per_s for item in transfers)
    shown = [item for item in transfers if item.bytes_per_s or not (has_rates and item.transfer.complete)]
    start = min((item.transfer.start for item in shown), default=0.0)
    job_indexes = {job.id: index for index, job in enumerate(history.jobs, 1)}

    def point(transfer: SiteTransfer) -> TransferPoint:
        x = transfer.transfer.start - start if history.has_timestamps else float(job_indexes[transfer.job_id])
        value = (transfer.bytes_per_s or 0.0) if has_rates else transfer.transfer.duration_s
        return TransferPoint(transfer.site, x, value, transfer.transfer.complete)

    max_duration_s = max((item.transfer.duration_s for item in shown), default=0.0)
    return TransferPoints(tuple(map(point, shown)), has_rates, history.has_timestamps, max_duration_s)


def draw_transfer_speed(transfers: TransferPoints, width: float) -> Drawing:
    sites = [site for site, _ in Counter(point.site for point in transfers.points).most_common(MAX_SITES)]
    points = [point for point in transfers.points if point.site in sites]
    y_ticks, low, high = _y_ticks([point.value for point in points if point.value > 0] or [1.0], transfers)
    x_ticks, x_max = _x_ticks(transfers, points, width)
    top = legend_height(_LEGEND, width) + 26
    drawing = Drawing(width, top + max(1, len(sites)) * (_PANEL + _GAP) - _GAP + 42)
    draw_legend(drawing, _LEGEND, 0, 0, width)
    left = label_column_width((label for _, label in y_ticks), width / 4)
    for number, site in enumerate(sites):
        y = top + number * (_PANEL + _GAP)
        plot = PlotArea(left, y, width - 10, y + _PANEL)
        x_scale = LinearScale(0, x_max, plot.left + 5, plot.right - 5)
        draw_x_grid(drawing, plot, x_ticks, x_scale)
        y_scale = LogScale(low, high, plot.bottom, plot.top)
        draw_y_axis(drawing, plot, y_ticks, y_scale)
        _draw_site(drawing, plot, [point for point in points if point.site == site], (x_scale, y_scale), transfers)
    if sites:
        title = "since the first transfer" if transfers.has_timestamps else "jobs, in the order of the table"
        draw_x_axis(drawing, plot, x_ticks, x_scale, title)
    return drawing


def _y_ticks(values: Sequence[float], points: TransferPoints) -> tuple[Ticks, float, float]:
    """Return round values and the range of the axis."""
    low, high = min(values) * 0.8, max(values) * 1.25
    candidates = log_ticks(low, high) if points.has_rates else _DURATION_TICKS_S
    ticks = [value for value in candidates if low <= value <= high]
    if len(ticks) < 2:
        ticks = log_ticks(low, high)
        low, high = ticks[0], ticks[-1]
    return [(value, points.format_value(value)) for value in ticks], low, high


def _x_ticks(transfers: TransferPoints, points: Sequence[TransferPoint], width: float) -> tuple[Ticks, float]:
    x_max = max((point.x for point in points), default=0.0) or 1.0
    if not transfers.has_timestamps:
        return count_ticks(int(x_max)), x_max
    return [tick for tick in time_ticks(x_max, 9 if width > 500 else 4) if tick[0] <= x_max], x_max


def _draw_site(
    drawing: Drawing,
    plot: PlotArea,
    points: Sequence[TransferPoint],
    scales: tuple[LinearScale, LogScale],
    transfers: TransferPoints,
) -> None:
    x_scale, y_scale = scales
    complete = sorted(point.value for point in points if point.complete)
    label = f"median {transfers.format_value(quantile(complete, 0.5))}" if complete else "none completed"
    name = shorten_to_width(
        points[0].site or "unknown", plot.right - text_width(label, SMALL_FONT) - 20, 12.5, bold=True
    )
    drawing.text(name, 0, plot.top - 14, size=12.5, bold=True)
    drawing.muted_text(label, plot.right, plot.top - 14, "end", SMALL_FONT)
    for is_complete, color in ((True, TRANSFER), (False, WASTED_TRANSFER)):
        dots = [(x_scale(point.x), y_scale(point.value)) for point in points if point.complete is is_complete]
        sampled = [dots[int(index)] for index in downsample_evenly(range(len(dots)), MAX_DOTS)]
        drawing.dots(sampled, 3.2 if len(points) < 200 else 2.2, color, opacity=0.75)
    if complete:
        y = y_scale(quantile(complete, 0.5))
        drawing.line(((plot.left, y), (plot.right, y)), TEXT, 1.0, dashed=True, opacity=0.6)
