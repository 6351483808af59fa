"""How quick transfers of inputs were, a panel for each site: those that came whole, and the others. Pure.

Along time where it is known, else in the order of the jobs; where nobody told how many bytes there were, the
time that each transfer took stands in for its speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

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
from packtrain.report.number_format import format_duration_coarse, format_rate

MAX_SITES = 8
MAX_DOTS = 500  # of a site and a colour
_MIN_DURATION_S = 0.001  # what took less was no transfer
_PANEL, _GAP = 104.0, 38.0
_DURATION_TICKS_S = (1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, 360000.0, 3.6e6, 3.6e7)  # seconds
_LEGEND = (replace(TRANSFER, label="came whole"), replace(WASTED_TRANSFER, label="thrown away"))


class TransferPoint(NamedTuple):
    """A transfer, as it is drawn."""

    site: str
    x: float  # seconds, or the place of its job
    value: float
    complete: bool


@dataclass(frozen=True)
class TransferPoints:
    points: tuple[TransferPoint, ...]
    has_rates: bool  # bytes a second; else seconds
    has_timestamps: bool
    max_duration_s: float

    def format_value(self, value: float) -> str:
        return format_rate(value) if self.has_rates else format_duration_coarse(value)


def transfer_points_of(history: JobHistory) -> TransferPoints:
    arrivals = [
        arrival for arrival in collect_site_transfers(history) if arrival.transfer.duration_s >= _MIN_DURATION_S
    ]
    speeds = any(arrival.bytes_per_s for arrival in arrivals)
    chosen = [arrival for arrival in arrivals if arrival.bytes_per_s or not (speeds and arrival.transfer.complete)]
    start = min((arrival.transfer.start for arrival in chosen), default=0.0)
    places = {job.id: place for place, job in enumerate(history.jobs, 1)}

    def point(transfer: SiteTransfer) -> TransferPoint:
        along = transfer.transfer.start - start if history.has_timestamps else float(places[transfer.job_id])
        value = (transfer.bytes_per_s or 0.0) if speeds else transfer.transfer.duration_s
        return TransferPoint(transfer.site, along, value, transfer.transfer.complete)

    longest = max((arrival.transfer.duration_s for arrival in chosen), default=0.0)
    return TransferPoints(tuple(map(point, chosen)), speeds, history.has_timestamps, longest)


def draw_transfer_speed(transfers: TransferPoints, width: float) -> Drawing:
    sites = [site for site, _ in Counter(point.site for point in transfers.points).most_common(MAX_SITES)]
    points = [point for point in transfers.points if point.site in sites]
    upright, low, high = _y_ticks([point.value for point in points if point.value > 0] or [1.0], transfers)
    along, reach = _x_ticks(transfers, points, width)
    top = legend_height(_LEGEND, width) + 26
    drawing = Drawing(width, top + max(1, len(sites)) * (_PANEL + _GAP) - _GAP + 42)
    draw_legend(drawing, _LEGEND, 0, 0, width)
    left = label_column_width((label for _, label in upright), width / 4)
    for number, site in enumerate(sites):
        y = top + number * (_PANEL + _GAP)
        plot = PlotArea(left, y, width - 10, y + _PANEL)
        place = LinearScale(0, reach, plot.left + 5, plot.right - 5)
        draw_x_grid(drawing, plot, along, place)
        rise = LogScale(low, high, plot.bottom, plot.top)
        draw_y_axis(drawing, plot, upright, rise)
        _draw_site(drawing, plot, [point for point in points if point.site == site], (place, rise), transfers)
    if sites:
        title = "since the first transfer" if transfers.has_timestamps else "jobs, in the order of the table"
        draw_x_axis(drawing, plot, along, place, title)
    return drawing


def _y_ticks(values: Sequence[float], points: TransferPoints) -> tuple[Ticks, float, float]:
    """Round values (of times: those that people know), and the range of the axis."""
    low, high = min(values) * 0.8, max(values) * 1.25
    known = log_ticks(low, high) if points.has_rates else _DURATION_TICKS_S
    within = [value for value in known if low <= value <= high]
    if len(within) < 2:
        within = log_ticks(low, high)
        low, high = within[0], within[-1]
    return [(value, points.format_value(value)) for value in within], low, high


def _x_ticks(transfers: TransferPoints, points: Sequence[TransferPoint], width: float) -> tuple[Ticks, float]:
    reach = max((point.x for point in points), default=0.0) or 1.0
    if not transfers.has_timestamps:
        return count_ticks(int(reach)), reach
    return [tick for tick in time_ticks(reach, 9 if width > 500 else 4) if tick[0] <= reach], reach


def _draw_site(
    drawing: Drawing,
    plot: PlotArea,
    points: Sequence[TransferPoint],
    scales: tuple[LinearScale, LogScale],
    transfers: TransferPoints,
) -> None:
    place, rise = scales
    whole = sorted(point.value for point in points if point.complete)
    told = f"median {transfers.format_value(quantile(whole, 0.5))}" if whole else "none came whole"
    name = shorten_to_width(
        points[0].site or "unknown", plot.right - text_width(told, SMALL_FONT) - 20, 12.5, bold=True
    )
    drawing.text(name, 0, plot.top - 14, size=12.5, bold=True)
    drawing.muted_text(told, plot.right, plot.top - 14, "end", SMALL_FONT)
    for came, paint in ((True, TRANSFER), (False, WASTED_TRANSFER)):
        spots = [(place(point.x), rise(point.value)) for point in points if point.complete is came]
        chosen = [spots[int(number)] for number in downsample_evenly(range(len(spots)), MAX_DOTS)]
        drawing.dots(chosen, 3.2 if len(points) < 200 else 2.2, paint, opacity=0.75)
    if whole:
        y = rise(quantile(whole, 0.5))
        drawing.line(((plot.left, y), (plot.right, y)), TEXT, 1.0, dashed=True, opacity=0.6)
