"""How long the compute of a job took at each site: every job a dot, the middle half a bar, mean and median. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from packtrain.report.analysis.by_site import SiteFigures
from packtrain.report.analysis.distribution import Spread
from packtrain.report.analysis.statistics import Figures
from packtrain.report.charts.canvas.axes import SMALL, Plot, draw_along, draw_lattice, room_for
from packtrain.report.charts.canvas.drawing import Drawing, fitted
from packtrain.report.charts.canvas.scales import Scale, thinned_evenly, time_ticks
from packtrain.report.charts.palette import EXECUTE, INK, PAPER
from packtrain.report.number_format import time_words

MOST_SITES = 12
_ROW = 52.0
MOST_DOTS = 250  # of a site; the distribution stays
_GOLDEN = 0.618  # multiples of it, without their whole part, are spread evenly


def draw_sites(figures: Figures, width: float) -> Drawing:
    sites = [site for site in figures.sites if site.compute][:MOST_SITES]
    longest = max((site.compute.high for site in sites if site.compute), default=0.0) or 1.0
    room = width * 0.42  # at most: real names of sites are whole, on a telephone, too
    names = [fitted(site.site or "unknown", room, 12.5) for site in sites]
    plot = Plot(
        max(room_for(names, room, 12.5), room_for(map(_count, sites), room)), 22, width - 12, 22 + _ROW * len(sites)
    )
    drawing = Drawing(width, plot.bottom + 24)
    ticks = [tick for tick in time_ticks(longest, 6 if plot.width > 250 else 4) if tick[0] <= longest]
    scale = Scale(0, longest, plot.left, plot.right)
    draw_lattice(drawing, plot, ticks, scale)
    draw_along(drawing, plot, ticks, scale)
    _draw_key(drawing)
    for number, (site, name) in enumerate(zip(sites, names, strict=True)):
        y = plot.top + (number + 0.5) * _ROW
        drawing.words(name, 0, y - 2, size=12.5)
        drawing.note(_count(site), 0, y + 13, size=SMALL)
        if site.compute:
            _draw_values(drawing, site.compute_s, y, scale)
            _draw_spread(drawing, site.compute, y, scale, name)
    return drawing


def _count(site: SiteFigures) -> str:
    count = site.compute.count if site.compute else 0
    return f"{count:,} job{'' if count == 1 else 's'}"


def _draw_key(drawing: Drawing) -> None:
    """● a job   ▬ the middle half   | median   ◆ mean"""
    x, y = 0.0, 6.0
    drawing.dots([(x + 4, y)], 3, EXECUTE, opacity=0.6)
    drawing.note("a job", x + 12, y + 4, size=SMALL)
    drawing.tile((x + 58, y - 4, 18, 8), EXECUTE, opacity=0.35, rounded=3)
    drawing.note("middle half", x + 82, y + 4, size=SMALL)
    drawing.line(((x + 170, y - 6), (x + 170, y + 6)), INK, 2.2)
    drawing.note("median", x + 177, y + 4, size=SMALL)
    drawing.dots([(x + 242, y)], 4.2, INK)
    drawing.dots([(x + 242, y)], 2.2, PAPER)
    drawing.note("mean", x + 251, y + 4, size=SMALL)


def _draw_values(drawing: Drawing, values: Sequence[float], y: float, scale: Scale) -> None:
    dots = thinned_evenly(sorted(values), MOST_DOTS)
    spots = [(scale(value), y + ((number * _GOLDEN) % 1 - 0.5) * _ROW * 0.5) for number, value in enumerate(dots)]
    drawing.dots(spots, 2.6 if len(spots) > 60 else 3.4, EXECUTE, opacity=0.5)


def _draw_spread(drawing: Drawing, spread: Spread, y: float, scale: Scale, name: str) -> None:
    left, right = scale(spread.quarter), scale(spread.three_quarters)
    middle, mean = scale(spread.median), scale(spread.mean)
    told = (
        f"{name}: median {time_words(spread.median)}, mean {time_words(spread.mean)}, longest {time_words(spread.high)}"
    )
    drawing.tile((left, y - 9, max(2.0, right - left), 18), EXECUTE, told, rounded=4, opacity=0.35)
    drawing.line(((middle, y - 13), (middle, y + 13)), INK, 2.2)
    drawing.dots([(mean, y)], 4.6, INK, told)
    drawing.dots([(mean, y)], 2.4, PAPER, told)
