"""Elements that all charts share: plot area, axes, grid lines and legend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from packtrain.report.charts.canvas.drawing import Drawing, text_width
from packtrain.report.charts.palette import ERROR, GRID, ThemeColor

_SWATCH, _ROW, _LEGEND_SPACING = 11.0, 20.0, 16.0
SMALL_FONT = 11.5
Ticks = Sequence[tuple[float, str]]


@dataclass(frozen=True)
class PlotArea:
    """The rectangle of the marks, inside the axes."""

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


def layout_legend(colors: Iterable[ThemeColor], width: float) -> list[list[tuple[float, ThemeColor]]]:
    """Arrange the entries of a legend in rows of (x, color)."""
    rows: list[list[tuple[float, ThemeColor]]] = [[]]
    x = 0.0
    for color in colors:
        entry_width = _SWATCH + 6 + text_width(color.label, SMALL_FONT)
        if rows[-1] and x + entry_width > width:
            rows.append([])
            x = 0.0
        rows[-1].append((x, color))
        x += entry_width + _LEGEND_SPACING
    return rows


def draw_legend(drawing: Drawing, colors: Sequence[ThemeColor], left: float, top: float, width: float) -> float:
    """Draw a legend and return the y position below it."""
    if not colors:
        return top
    for number, row in enumerate(layout_legend(colors, width)):
        y = top + number * _ROW
        for x, color in row:
            _swatch(drawing, color, left + x, y)
            drawing.muted_text(color.label, left + x + _SWATCH + 6, y + 10, size=SMALL_FONT)
    return top + len(layout_legend(colors, width)) * _ROW + 4


def _swatch(drawing: Drawing, color: ThemeColor, x: float, y: float) -> None:
    if color is ERROR:
        draw_cross(drawing, x + _SWATCH / 2, y + _SWATCH / 2, 3.5)
    else:
        drawing.rect((x, y, _SWATCH, _SWATCH), color, rounded=2.5)


def draw_cross(drawing: Drawing, x: float, y: float, half_size: float) -> None:
    drawing.line(((x - half_size, y - half_size), (x + half_size, y + half_size)), ERROR, 1.8)
    drawing.line(((x - half_size, y + half_size), (x + half_size, y - half_size)), ERROR, 1.8)


def legend_height(colors: Sequence[ThemeColor], width: float) -> float:
    return len(layout_legend(colors, width)) * _ROW + 4 if colors else 0.0


def draw_y_axis(drawing: Drawing, plot: PlotArea, ticks: Ticks, scale: Callable[[float], float]) -> None:
    """Draw horizontal grid lines, with labels on the left if they do not overlap."""
    label_ys: list[float] = []
    for value, label in ticks:
        y = scale(value)
        drawing.line(((plot.left, y), (plot.right, y)), GRID)
        if all(abs(y - other) > SMALL_FONT for other in label_ys):
            drawing.muted_text(label, plot.left - 8, y + 4, "end", SMALL_FONT)
            label_ys.append(y)


def draw_x_grid(drawing: Drawing, plot: PlotArea, ticks: Ticks, scale: Callable[[float], float]) -> None:
    """Draw vertical grid lines."""
    for x in (scale(value) for value, _ in ticks):
        drawing.line(((x, plot.top), (x, plot.bottom)), GRID)


def draw_x_axis(
    drawing: Drawing, plot: PlotArea, ticks: Ticks, scale: Callable[[float], float], title: str = ""
) -> None:
    """Draw labels below the plot if they do not overlap, and the title of the axis."""
    right_edge = -1e9
    for value, label in ticks:
        left = min(
            max(scale(value) - text_width(label, SMALL_FONT) / 2, 0.0), drawing.width - text_width(label, SMALL_FONT)
        )
        if left > right_edge:
            drawing.muted_text(label, left, plot.bottom + 17, size=SMALL_FONT)
            right_edge = left + text_width(label, SMALL_FONT) + 6
    if title:
        drawing.muted_text(title, plot.left, plot.bottom + 35, size=SMALL_FONT)


def label_column_width(labels: Iterable[str], max_width: float, size: float = SMALL_FONT, bold: bool = False) -> float:
    """Return the width of a column of labels with its padding."""
    return min(max_width, max((text_width(label, size, bold) for label in labels), default=0.0)) + 10


def spread_positions(positions: Sequence[float], min_spacing: float, low: float, high: float) -> list[float]:
    """Move positions until neighbors are `min_spacing` apart and all are within the range, in the same order."""
    order = sorted(range(len(positions)), key=lambda number: positions[number])
    spread = list(positions)
    lower = low - min_spacing
    for number in order:
        spread[number] = lower = max(spread[number], lower + min_spacing)
    upper = high + min_spacing
    for number in reversed(order):
        spread[number] = upper = min(spread[number], upper - min_spacing)
    return spread
