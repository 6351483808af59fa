"""The chart of compute times by site: a dot per job, a bar for the middle half, mean and median."""

from __future__ import annotations

from collections.abc import Sequence

from packtrain.formatting import format_duration
from packtrain.report.analysis.by_site import SiteSummary
from packtrain.report.analysis.distribution import Distribution
from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.charts.canvas.axes import SMALL_FONT, PlotArea, draw_x_axis, draw_x_grid, label_column_width
from packtrain.report.charts.canvas.drawing import Drawing, shorten_to_width
from packtrain.report.charts.canvas.scales import LinearScale, downsample_evenly, time_ticks
from packtrain.report.charts.palette import BACKGROUND, EXECUTE, TEXT

MAX_SITES = 12
_ROW = 52.0
MAX_DOTS = 250  # per site
_GOLDEN_RATIO = 0.618  # fractional parts of its multiples are evenly spread


def draw_compute_by_site(stats: ReportStats, width: float) -> Drawing:
    sites = [site for site in stats.sites if site.compute_time_s][:MAX_SITES]
    longest = max((site.compute_time_s.maximum for site in sites if site.compute_time_s), default=0.0) or 1.0
    room = width * 0.42  # enough for real site names, even on phones
    names = [shorten_to_width(site.site or "unknown", room, 12.5) for site in sites]
    plot = PlotArea(
        max(label_column_width(names, room, 12.5), label_column_width(map(_format_job_count, sites), room)),
        22,
        width - 12,
        22 + _ROW * len(sites),
    )
    drawing = Drawing(width, plot.bottom + 24)
    ticks = [tick for tick in time_ticks(longest, 6 if plot.width > 250 else 4) if tick[0] <= longest]
    scale = LinearScale(0, longest, plot.left, plot.right)
    draw_x_grid(drawing, plot, ticks, scale)
    draw_x_axis(drawing, plot, ticks, scale)
    _draw_key(drawing)
    for number, (site, name) in enumerate(zip(sites, names, strict=True)):
        y = plot.top + (number + 0.5) * _ROW
        drawing.text(name, 0, y - 2, size=12.5)
        drawing.muted_text(_format_job_count(site), 0, y + 13, size=SMALL_FONT)
        if site.compute_time_s:
            _draw_values(drawing, site.compute_times_s, y, scale)
            _draw_distribution(drawing, site.compute_time_s, y, scale, name)
    return drawing


def _format_job_count(site: SiteSummary) -> str:
    count = site.compute_time_s.count if site.compute_time_s else 0
    return f"{count:,} job{'' if count == 1 else 's'}"


def _draw_key(drawing: Drawing) -> None:
    """Draw the legend: ● a job   ▬ middle half   | median   ◆ mean."""
    x, y = 0.0, 6.0
    drawing.dots([(x + 4, y)], 3, EXECUTE, opacity=0.6)
    drawing.muted_text("a job", x + 12, y + 4, size=SMALL_FONT)
    drawing.rect((x + 58, y - 4, 18, 8), EXECUTE, opacity=0.35, rounded=3)
    drawing.muted_text("middle half", x + 82, y + 4, size=SMALL_FONT)
    drawing.line(((x + 170, y - 6), (x + 170, y + 6)), TEXT, 2.2)
    drawing.muted_text("median", x + 177, y + 4, size=SMALL_FONT)
    drawing.dots([(x + 242, y)], 4.2, TEXT)
    drawing.dots([(x + 242, y)], 2.2, BACKGROUND)
    drawing.muted_text("mean", x + 251, y + 4, size=SMALL_FONT)


def _draw_values(drawing: Drawing, values: Sequence[float], y: float, scale: LinearScale) -> None:
    dots = downsample_evenly(sorted(values), MAX_DOTS)
    points = [
        (scale(value), y + ((number * _GOLDEN_RATIO) % 1 - 0.5) * _ROW * 0.5) for number, value in enumerate(dots)
    ]
    drawing.dots(points, 2.6 if len(points) > 60 else 3.4, EXECUTE, opacity=0.5)


def _draw_distribution(drawing: Drawing, distribution: Distribution, y: float, scale: LinearScale, name: str) -> None:
    left, right = scale(distribution.p25), scale(distribution.p75)
    middle, mean = scale(distribution.median), scale(distribution.mean)
    values = {"median": distribution.median, "mean": distribution.mean, "max": distribution.maximum}
    tooltip = f"{name}: {', '.join(f'{key} {format_duration(value)}' for key, value in values.items())}"
    drawing.rect((left, y - 9, max(2.0, right - left), 18), EXECUTE, tooltip, rounded=4, opacity=0.35)
    drawing.line(((middle, y - 13), (middle, y + 13)), TEXT, 2.2)
    drawing.dots([(mean, y)], 4.6, TEXT, tooltip)
    drawing.dots([(mean, y)], 2.4, BACKGROUND, tooltip)
