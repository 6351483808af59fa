"""What every chart has: room for its plot, lines behind it with their labels, a legend above it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from packtrain.report.charts.canvas.drawing import Drawing, width_of
from packtrain.report.charts.palette import BAD, GRID, Paint

_SWATCH, _ROW, _BETWEEN = 11.0, 20.0, 16.0
SMALL = 11.5
Ticks = Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Plot:
    """Where the marks go."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top


def rows_of_legend(paints: Iterable[Paint], width: float) -> list[list[tuple[float, Paint]]]:
    """Each colour with its words at its place; as many rows as it takes."""
    rows: list[list[tuple[float, Paint]]] = [[]]
    x = 0.0
    for paint in paints:
        room = _SWATCH + 6 + width_of(paint.words, SMALL)
        if rows[-1] and x + room > width:
            rows.append([])
            x = 0.0
        rows[-1].append((x, paint))
        x += room + _BETWEEN
    return rows


def draw_legend(drawing: Drawing, paints: Sequence[Paint], left: float, top: float, width: float) -> float:
    """Below its last row."""
    if not paints:
        return top
    for number, row in enumerate(rows_of_legend(paints, width)):
        y = top + number * _ROW
        for x, paint in row:
            _swatch(drawing, paint, left + x, y)
            drawing.note(paint.words, left + x + _SWATCH + 6, y + 10, size=SMALL)
    return top + len(rows_of_legend(paints, width)) * _ROW + 4


def _swatch(drawing: Drawing, paint: Paint, x: float, y: float) -> None:
    if paint is BAD:
        draw_cross(drawing, x + _SWATCH / 2, y + _SWATCH / 2, 3.5)
    else:
        drawing.tile((x, y, _SWATCH, _SWATCH), paint, rounded=2.5)


def draw_cross(drawing: Drawing, x: float, y: float, reach: float) -> None:
    drawing.line(((x - reach, y - reach), (x + reach, y + reach)), BAD, 1.8)
    drawing.line(((x - reach, y + reach), (x + reach, y - reach)), BAD, 1.8)


def legend_height(paints: Sequence[Paint], width: float) -> float:
    return len(rows_of_legend(paints, width)) * _ROW + 4 if paints else 0.0


def draw_upright(drawing: Drawing, plot: Plot, ticks: Ticks, place: Callable[[float], float]) -> None:
    """Lines across the plot, labels at its left as far as they have room."""
    taken: list[float] = []
    for value, label in ticks:
        y = place(value)
        drawing.line(((plot.left, y), (plot.right, y)), GRID)
        if all(abs(y - other) > SMALL for other in taken):
            drawing.note(label, plot.left - 8, y + 4, "end", SMALL)
            taken.append(y)


def draw_lattice(drawing: Drawing, plot: Plot, ticks: Ticks, place: Callable[[float], float]) -> None:
    """Lines down the plot."""
    for x in (place(value) for value, _ in ticks):
        drawing.line(((x, plot.top), (x, plot.bottom)), GRID)


def draw_along(drawing: Drawing, plot: Plot, ticks: Ticks, place: Callable[[float], float], title: str = "") -> None:
    """Labels below the plot as far as they have room, and what they are."""
    reached = -1e9
    for value, label in ticks:
        left = min(max(place(value) - width_of(label, SMALL) / 2, 0.0), drawing.width - width_of(label, SMALL))
        if left > reached:
            drawing.note(label, left, plot.bottom + 17, size=SMALL)
            reached = left + width_of(label, SMALL) + 6
    if title:
        drawing.note(title, plot.left, plot.bottom + 35, size=SMALL)


def room_for(labels: Iterable[str], most: float, size: float = SMALL, bold: bool = False) -> float:
    """How wide a column of labels is, with the space beside it."""
    return min(most, max((width_of(label, size, bold) for label in labels), default=0.0)) + 10


def settled(places: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """The places, moved until neighbours are so far apart and all are within the range; the order stays."""
    order = sorted(range(len(places)), key=lambda number: places[number])
    spots = list(places)
    reached = low - apart
    for number in order:
        spots[number] = reached = max(spots[number], reached + apart)
    limit = high + apart
    for number in reversed(order):
        spots[number] = limit = min(spots[number], limit - apart)
    return spots
