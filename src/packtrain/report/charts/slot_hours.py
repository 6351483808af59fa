"""The charts of slot time by use: one bar for all jobs, and one bar for each site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packtrain.formatting import format_percent, format_slot_hours
from packtrain.report.analysis.by_site import SiteSummary
from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.analysis.time_accounting import USEFUL, WASTED, TimeUse
from packtrain.report.charts import palette
from packtrain.report.charts.canvas.axes import (
    SMALL_FONT,
    PlotArea,
    draw_legend,
    draw_x_axis,
    draw_x_grid,
    label_column_width,
    legend_height,
)
from packtrain.report.charts.canvas.drawing import Drawing, shorten_to_width, text_width
from packtrain.report.charts.canvas.scales import LinearScale, hour_ticks
from packtrain.report.charts.palette import MUTED, ThemeColor

MAX_SITES = 12
_BAR, _ROW, _SITE_ROW = 46.0, 23.0, 28.0
_MAX_NAME_WIDTH_FRACTION = 0.37  # enough for real site names, even on phones
_MIN_COLUMN_WIDTH = 330.0  # of the list below the bar
_BRACKETS = (("useful", USEFUL), ("wasted", WASTED))
_MIN_SPACING = 16.0
TimeUseSeconds = Mapping[TimeUse, float]


def draw_slot_hours(stats: ReportStats, width: float) -> Drawing:
    used = [use for use in TimeUse if stats.time_use_s.get(use, 0.0) > 0]
    columns = max(1, min(3, int(width // _MIN_COLUMN_WIDTH)))
    rows = -(-len(used) // columns)
    drawing = Drawing(width, 24 + _BAR + 20 + rows * _ROW)
    _draw_brackets(drawing, stats.time_use_s, width)
    _draw_bar(drawing, stats.time_use_s, (0, 24, width, _BAR))
    for number, use in enumerate(used):
        column, row = divmod(number, rows)
        room = (width - (columns - 1) * 30) / columns
        position = (column * (room + 30), 24 + _BAR + 20 + row * _ROW)
        _draw_legend_entry(drawing, use, stats.time_use_s, position, room)
    return drawing


def _draw_brackets(drawing: Drawing, uses: TimeUseSeconds, width: float) -> None:
    """Draw `useful 378 h · 50%` and `wasted 383 h · 50%` at the ends of the bar, without hours if it is narrow."""
    total = sum(uses.values())
    parts = [(name, sum(uses.get(use, 0.0) for use in group)) for name, group in _BRACKETS]
    long = [f"{name} {format_slot_hours(part)} · {format_percent(part / total)}" for name, part in parts if part]
    short = [f"{name} {format_percent(part / total)}" for name, part in parts if part]
    fits = sum(text_width(label, 13, bold=True) for label in long) + _MIN_SPACING <= width
    for (_, part), x, anchor in zip(parts, (0, width), ("start", "end"), strict=True):
        if part:
            label = (long if fits else short).pop(0)
            drawing.text(label, x, 13, anchor=anchor, bold=True, size=13)


def _draw_bar(drawing: Drawing, uses: TimeUseSeconds, box: tuple[float, float, float, float]) -> None:
    left, top, width, height = box
    total = sum(uses.values())
    x = left
    for use in TimeUse:
        part = uses.get(use, 0.0) / total * width if total else 0.0
        if part:
            tooltip = f"{use.value}: {format_slot_hours(uses[use])}, {format_percent(uses[use] / total)}"
            drawing.rect((x, top, part, height), palette.COLOR_BY_TIME_USE[use], tooltip)
            x += part


def _draw_legend_entry(
    drawing: Drawing, use: TimeUse, uses: TimeUseSeconds, position: tuple[float, float], room: float
) -> None:
    """Draw a legend entry: ■ wasted transfer     334 h  44%."""
    (x, y), total = position, sum(uses.values())
    part = f"{format_percent(uses[use] / total)}"
    hours = format_slot_hours(uses[use])
    drawing.rect((x, y, 12, 12), palette.COLOR_BY_TIME_USE[use], rounded=2.5)
    drawing.text(part, x + room, y + 10.5, anchor="end", bold=True)
    drawing.muted_text(hours, x + room - 50, y + 10.5, "end", 12)
    drawing.text(shorten_to_width(use.value, room - 68 - text_width(hours), 12), x + 20, y + 10.5)


def draw_site_hours(stats: ReportStats, width: float) -> Drawing:
    """Draw a bar for each of the busiest sites."""
    sites = stats.sites[:MAX_SITES]
    colors = list(_used_colors(sites))
    longest = max((site.slot_s for site in sites), default=0.0) or 1.0
    labels = [_format_useful(site) for site in sites]
    room = width * _MAX_NAME_WIDTH_FRACTION
    names = [shorten_to_width(site.site or "unknown", room, SMALL_FONT) for site in sites]
    top = legend_height(colors, width) + 4
    right = label_column_width(labels, width / 3)
    plot = PlotArea(label_column_width(names, room), top, width - right, top + _SITE_ROW * len(sites))
    drawing = Drawing(width, plot.bottom + 24)
    draw_legend(drawing, colors, 0, 0, width)
    ticks = hour_ticks(longest, 4 if plot.width > 200 else 2)
    scale = LinearScale(0, longest, plot.left, plot.right)
    draw_x_grid(drawing, plot, ticks, scale)
    draw_x_axis(drawing, plot, ticks, scale)
    for number, (site, name, label) in enumerate(zip(sites, names, labels, strict=True)):
        y = plot.top + number * _SITE_ROW
        drawing.muted_text(name, plot.left - 8, y + 18, "end", SMALL_FONT)
        _draw_bar(
            drawing, site.time_use_s, (plot.left, y + 5, max(1.0, scale(site.slot_s) - plot.left), _SITE_ROW - 10)
        )
        drawing.text(label, scale(site.slot_s) + 8, y + 18, size=SMALL_FONT, color=MUTED)
    return drawing


def _used_colors(sites: Sequence[SiteSummary]) -> Iterator[ThemeColor]:
    for use in TimeUse:
        if any(site.time_use_s.get(use, 0.0) > 0 for site in sites):
            yield palette.COLOR_BY_TIME_USE[use]


def _format_useful(site: SiteSummary) -> str:
    useful = sum(site.time_use_s.get(use, 0.0) for use in USEFUL)
    return f"{format_percent(useful / site.slot_s)} useful" if site.slot_s else ""
