"""Where the slot hours went: one bar for all of them, and one for each site. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packtrain.report.analysis.by_site import SiteFigures
from packtrain.report.analysis.statistics import Figures
from packtrain.report.analysis.time_accounting import USEFUL, WASTE, Share
from packtrain.report.charts import palette
from packtrain.report.charts.canvas.axes import (
    SMALL,
    Plot,
    draw_along,
    draw_lattice,
    draw_legend,
    legend_height,
    room_for,
)
from packtrain.report.charts.canvas.drawing import Drawing, fitted, width_of
from packtrain.report.charts.canvas.scales import Scale, hour_ticks
from packtrain.report.charts.palette import FAINT, Paint
from packtrain.report.number_format import hours_words, percent_words

MOST_SITES = 12
_BAR, _ROW, _SITE_ROW = 46.0, 23.0, 28.0
_NAMES = 0.37  # of the width at most: real names of sites are whole, on a telephone, too
_COLUMN = 330.0  # the least, of the list below the bar
_HALVES = (("useful", USEFUL), ("wasted", WASTE))
_APART = 16.0
Shares = Mapping[Share, float]


def draw_waste(figures: Figures, width: float) -> Drawing:
    shares = [share for share in Share if figures.shares.get(share, 0.0) > 0]
    columns = max(1, min(3, int(width // _COLUMN)))
    rows = -(-len(shares) // columns)
    drawing = Drawing(width, 24 + _BAR + 20 + rows * _ROW)
    _draw_brackets(drawing, figures.shares, width)
    _draw_bar(drawing, figures.shares, (0, 24, width, _BAR))
    for number, share in enumerate(shares):
        column, row = divmod(number, rows)
        room = (width - (columns - 1) * 30) / columns
        place = (column * (room + 30), 24 + _BAR + 20 + row * _ROW)
        _draw_entry(drawing, share, figures.shares, place, room)
    return drawing


def _draw_brackets(drawing: Drawing, shares: Shares, width: float) -> None:
    """useful 378 h · 50% | wasted 383 h · 50%: above their parts of the bar, at opposite ends. Without the hours, where
    there is no room for them."""
    total = sum(shares.values())
    parts = [(words, sum(shares.get(share, 0.0) for share in which)) for words, which in _HALVES]
    whole = [f"{words} {hours_words(part)} · {percent_words(part / total)}" for words, part in parts if part]
    short = [f"{words} {percent_words(part / total)}" for words, part in parts if part]
    fits = sum(width_of(told, 13, bold=True) for told in whole) + _APART <= width
    for (_, part), place, anchor in zip(parts, (0, width), ("start", "end"), strict=True):
        if part:
            told = (whole if fits else short).pop(0)
            drawing.words(told, place, 13, anchor=anchor, bold=True, size=13)


def _draw_bar(drawing: Drawing, shares: Shares, box: tuple[float, float, float, float]) -> None:
    left, top, width, height = box
    total = sum(shares.values())
    x = left
    for share in Share:
        part = shares.get(share, 0.0) / total * width if total else 0.0
        if part:
            told = f"{share.value}: {hours_words(shares[share])}, {percent_words(shares[share] / total)}"
            drawing.tile((x, top, part, height), palette.OF_SHARE[share], told)
            x += part


def _draw_entry(drawing: Drawing, share: Share, shares: Shares, place: tuple[float, float], room: float) -> None:
    """■ transfer thrown away     334 h  44%"""
    (x, y), total = place, sum(shares.values())
    part = f"{percent_words(shares[share] / total)}"
    hours = hours_words(shares[share])
    drawing.tile((x, y, 12, 12), palette.OF_SHARE[share], rounded=2.5)
    drawing.words(part, x + room, y + 10.5, anchor="end", bold=True)
    drawing.note(hours, x + room - 50, y + 10.5, "end", 12)
    drawing.words(fitted(share.value, room - 68 - width_of(hours), 12), x + 20, y + 10.5)


def draw_site_hours(figures: Figures, width: float) -> Drawing:
    """The busiest sites, each with what became of its hours."""
    sites = figures.sites[:MOST_SITES]
    paints = list(_paints(sites))
    longest = max((site.seconds for site in sites), default=0.0) or 1.0
    told = [_site_words(site) for site in sites]
    room = width * _NAMES
    names = [fitted(site.site or "unknown", room, SMALL) for site in sites]
    top = legend_height(paints, width) + 4
    right = room_for(told, width / 3)
    plot = Plot(room_for(names, room), top, width - right, top + _SITE_ROW * len(sites))
    drawing = Drawing(width, plot.bottom + 24)
    draw_legend(drawing, paints, 0, 0, width)
    ticks = hour_ticks(longest, 4 if plot.width > 200 else 2)
    scale = Scale(0, longest, plot.left, plot.right)
    draw_lattice(drawing, plot, ticks, scale)
    draw_along(drawing, plot, ticks, scale)
    for number, (site, name, words) in enumerate(zip(sites, names, told, strict=True)):
        y = plot.top + number * _SITE_ROW
        drawing.note(name, plot.left - 8, y + 18, "end", SMALL)
        _draw_bar(drawing, site.shares, (plot.left, y + 5, max(1.0, scale(site.seconds) - plot.left), _SITE_ROW - 10))
        drawing.words(words, scale(site.seconds) + 8, y + 18, size=SMALL, paint=FAINT)
    return drawing


def _paints(sites: Sequence[SiteFigures]) -> Iterator[Paint]:
    for share in Share:
        if any(site.shares.get(share, 0.0) > 0 for site in sites):
            yield palette.OF_SHARE[share]


def _site_words(site: SiteFigures) -> str:
    useful = sum(site.shares.get(share, 0.0) for share in USEFUL)
    return f"{percent_words(useful / site.seconds)} useful" if site.seconds else ""
