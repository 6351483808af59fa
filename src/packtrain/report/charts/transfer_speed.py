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
from packtrain.report.analysis.input_transfers import Arrival, arrivals_of
from packtrain.report.charts.canvas.axes import (
    SMALL,
    Plot,
    Ticks,
    draw_along,
    draw_lattice,
    draw_legend,
    draw_upright,
    legend_height,
    room_for,
)
from packtrain.report.charts.canvas.drawing import Drawing, fitted, width_of
from packtrain.report.charts.canvas.scales import LogScale, Scale, count_ticks, log_ticks, thinned_evenly, time_ticks
from packtrain.report.charts.palette import INK, THROWN_AWAY, TRANSFER
from packtrain.report.history import History
from packtrain.report.number_format import speed_words, time_words

MOST_SITES = 8
MOST_DOTS = 500  # of a site and a colour
_SHORTEST_S = 0.001  # what took less was no transfer
_PANEL, _GAP = 104.0, 38.0
_KNOWN = (1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, 360000.0, 3.6e6, 3.6e7)  # seconds
_LEGEND = (replace(TRANSFER, words="came whole"), replace(THROWN_AWAY, words="thrown away"))


class Point(NamedTuple):
    """A transfer, as it is drawn."""

    site: str
    along: float  # seconds, or the place of its job
    value: float
    whole: bool


@dataclass(frozen=True)
class Moves:
    points: tuple[Point, ...]
    speeds: bool  # bytes a second; else seconds
    absolute: bool
    longest_s: float

    def told(self, value: float) -> str:
        return speed_words(value) if self.speeds else time_words(value)


def moves_of(history: History) -> Moves:
    arrivals = [arrival for arrival in arrivals_of(history) if arrival.move.seconds >= _SHORTEST_S]
    speeds = any(arrival.speed for arrival in arrivals)
    chosen = [arrival for arrival in arrivals if arrival.speed or not (speeds and arrival.move.whole)]
    start = min((arrival.move.start for arrival in chosen), default=0.0)
    places = {job.id: place for place, job in enumerate(history.jobs, 1)}

    def point(arrival: Arrival) -> Point:
        along = arrival.move.start - start if history.absolute else float(places[arrival.job])
        value = (arrival.speed or 0.0) if speeds else arrival.move.seconds
        return Point(arrival.site, along, value, arrival.move.whole)

    longest = max((arrival.move.seconds for arrival in chosen), default=0.0)
    return Moves(tuple(map(point, chosen)), speeds, history.absolute, longest)


def draw_speeds(moves: Moves, width: float) -> Drawing:
    sites = [site for site, _ in Counter(point.site for point in moves.points).most_common(MOST_SITES)]
    points = [point for point in moves.points if point.site in sites]
    upright, low, high = _upright([point.value for point in points if point.value > 0] or [1.0], moves)
    along, reach = _along(moves, points, width)
    top = legend_height(_LEGEND, width) + 26
    drawing = Drawing(width, top + max(1, len(sites)) * (_PANEL + _GAP) - _GAP + 42)
    draw_legend(drawing, _LEGEND, 0, 0, width)
    left = room_for((label for _, label in upright), width / 4)
    for number, site in enumerate(sites):
        y = top + number * (_PANEL + _GAP)
        plot = Plot(left, y, width - 10, y + _PANEL)
        place = Scale(0, reach, plot.left + 5, plot.right - 5)
        draw_lattice(drawing, plot, along, place)
        rise = LogScale(low, high, plot.bottom, plot.top)
        draw_upright(drawing, plot, upright, rise)
        _draw_site(drawing, plot, [point for point in points if point.site == site], (place, rise), moves)
    if sites:
        title = "since the first transfer" if moves.absolute else "jobs, in the order of the table"
        draw_along(drawing, plot, along, place, title)
    return drawing


def _upright(values: Sequence[float], moves: Moves) -> tuple[Ticks, float, float]:
    """Round values (of times: those that people know), and the range of the axis."""
    low, high = min(values) * 0.8, max(values) * 1.25
    known = log_ticks(low, high) if moves.speeds else _KNOWN
    within = [value for value in known if low <= value <= high]
    if len(within) < 2:
        within = log_ticks(low, high)
        low, high = within[0], within[-1]
    return [(value, moves.told(value)) for value in within], low, high


def _along(moves: Moves, points: Sequence[Point], width: float) -> tuple[Ticks, float]:
    reach = max((point.along for point in points), default=0.0) or 1.0
    if not moves.absolute:
        return count_ticks(int(reach)), reach
    return [tick for tick in time_ticks(reach, 9 if width > 500 else 4) if tick[0] <= reach], reach


def _draw_site(
    drawing: Drawing, plot: Plot, points: Sequence[Point], scales: tuple[Scale, LogScale], moves: Moves
) -> None:
    place, rise = scales
    whole = sorted(point.value for point in points if point.whole)
    told = f"median {moves.told(quantile(whole, 0.5))}" if whole else "none came whole"
    name = fitted(points[0].site or "unknown", plot.right - width_of(told, SMALL) - 20, 12.5, bold=True)
    drawing.words(name, 0, plot.top - 14, size=12.5, bold=True)
    drawing.note(told, plot.right, plot.top - 14, "end", SMALL)
    for came, paint in ((True, TRANSFER), (False, THROWN_AWAY)):
        spots = [(place(point.along), rise(point.value)) for point in points if point.whole is came]
        chosen = [spots[int(number)] for number in thinned_evenly(range(len(spots)), MOST_DOTS)]
        drawing.dots(chosen, 3.2 if len(points) < 200 else 2.2, paint, opacity=0.75)
    if whole:
        y = rise(quantile(whole, 0.5))
        drawing.line(((plot.left, y), (plot.right, y)), INK, 1.0, dashed=True, opacity=0.6)
