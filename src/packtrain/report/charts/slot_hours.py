"""Where the slot hours went: one bar for all of them, and one for each site. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
from packtrain.report.number_format import format_hours, format_percent

MAX_SITES = 12
_BAR, _ROW, _SITE_ROW = 46.0, 23.0, 28.0
_MAX_NAME_WIDTH_FRACTION = 0.37  # of the width at most: real names of sites are whole, on a telephone, too
_MIN_COLUMN_WIDTH = 330.0  # the least, of the list below the bar
_BRACKETS = (("useful", USEFUL), ("wasted", WASTED))
_MIN_SPACING = 16.0
TimeUseSeconds = Mapping[TimeUse, float]


def draw_slot_hours(stats: ReportStats, width: float) -> Drawing:
    shares = [share for share in TimeUse if stats.time_use_s.get(share, 0.0) > 0]
    columns = max(1, min(3, int(width // _MIN_COLUMN_WIDTH)))
    rows = -(-len(shares) // columns)
    drawing = Drawing(width, 24 + _BAR + 20 + rows * _ROW)
    _draw_brackets(drawing, stats.time_use_s, width)
    _draw_bar(drawing, stats.time_use_s, (0, 24, width, _BAR))
    for number, share in enumerate(shares):
        column, row = divmod(number, rows)
        room = (width - (columns - 1) * 30) / columns
        place = (column * (room + 30), 24 + _BAR + 20 + row * _ROW)
        _draw_legend_entry(drawing, share, stats.time_use_s, place, room)
    return drawing


def _draw_brackets(drawing: Drawing, uses: TimeUseSeconds, width: float) -> None:
    """useful 378 h · 50% | wasted 383 h · 50%: above their parts of the bar, at opposite ends. Without the hours, where
    there is no room for them."""
    total = sum(uses.values())
    parts = [(words, sum(uses.get(share, 0.0) for share in which)) for words, which in _BRACKETS]
    whole = [f"{words} {format_hours(part)} · {format_percent(part / total)}" for words, part in parts if part]
    short = [f"{words} {format_percent(part / total)}" for words, part in parts if part]
    fits = sum(text_width(told, 13, bold=True) for told in whole) + _MIN_SPACING <= width
    for (_, part), place, anchor in zip(parts, (0, width), ("start", "end"), strict=True):
        if part:
            told = (whole if fits else short).pop(0)
            drawing.text(told, place, 13, anchor=anchor, bold=True, size=13)


def _draw_bar(drawing: Drawing, uses: TimeUseSeconds, box: tuple[float, float, float, float]) -> None:
    left, top, width, height = box
    total = sum(uses.values())
    x = left
    for share in TimeUse:
        part = uses.get(share, 0.0) / total * width if total else 0.0
        if part:
            told = f"{share.value}: {format_hours(uses[share])}, {format_percent(uses[share] / total)}"
            drawing.rect((x, top, part, height), palette.COLOR_BY_TIME_USE[share], told)
            x += part


def _draw_legend_entry(
    drawing: Drawing, use: TimeUse, uses: TimeUseSeconds, place: tuple[float, float], room: float
) -> None:
    """■ transfer thrown away     334 h  44%"""
    (x, y), total = place, sum(uses.values())
    part = f"{format_percent(uses[use] / total)}"
    hours = format_hours(uses[use])
    drawing.rect((x, y, 12, 12), palette.COLOR_BY_TIME_USE[use], rounded=2.5)
    drawing.text(part, x + room, y + 10.5, anchor="end", bold=True)
    drawing.muted_text(hours, x + room - 50, y + 10.5, "end", 12)
    drawing.text(shorten_to_width(use.value, room - 68 - text_width(hours), 12), x + 20, y + 10.5)


def draw_site_hours(stats: ReportStats, width: float) -> Drawing:
    """The busiest sites, each with what became of its hours."""
    sites = stats.sites[:MAX_SITES]
    paints = list(_paints(sites))
    longest = max((site.slot_s for site in sites), default=0.0) or 1.0
    told = [_format_useful(site) for site in sites]
    room = width * _MAX_NAME_WIDTH_FRACTION
    names = [shorten_to_width(site.site or "unknown", room, SMALL_FONT) for site in sites]
    top = legend_height(paints, width) + 4
    right = label_column_width(told, width / 3)
    plot = PlotArea(label_column_width(names, room), top, width - right, top + _SITE_ROW * len(sites))
    drawing = Drawing(width, plot.bottom + 24)
    draw_legend(drawing, paints, 0, 0, width)
    ticks = hour_ticks(longest, 4 if plot.width > 200 else 2)
    scale = LinearScale(0, longest, plot.left, plot.right)
    draw_x_grid(drawing, plot, ticks, scale)
    draw_x_axis(drawing, plot, ticks, scale)
    for number, (site, name, words) in enumerate(zip(sites, names, told, strict=True)):
        y = plot.top + number * _SITE_ROW
        drawing.muted_text(name, plot.left - 8, y + 18, "end", SMALL_FONT)
        _draw_bar(
            drawing, site.time_use_s, (plot.left, y + 5, max(1.0, scale(site.slot_s) - plot.left), _SITE_ROW - 10)
        )
        drawing.text(words, scale(site.slot_s) + 8, y + 18, size=SMALL_FONT, color=MUTED)
    return drawing


def _paints(sites: Sequence[SiteSummary]) -> Iterator[ThemeColor]:
    for share in TimeUse:
        if any(site.time_use_s.get(share, 0.0) > 0 for site in sites):
            yield palette.COLOR_BY_TIME_USE[share]


def _format_useful(site: SiteSummary) -> str:
    useful = sum(site.time_use_s.get(share, 0.0) for share in USEFUL)
    return f"{format_percent(useful / site.slot_s)} useful" if site.slot_s else ""
