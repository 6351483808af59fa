"""A drawing as a PNG, in the light colours, with its title: for slides. Pillow is imported when one is drawn.

Drawn at twice the size of the result, which smooths edges; the result has two pixels for each of the page's.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packtrain.report.charts.canvas.drawing import Dots, Drawing, Line, Mark, Spot, Tiles, Words
from packtrain.report.charts.palette import PAPER, Paint

if TYPE_CHECKING:
    from PIL import ImageDraw

_SHARP, _SMOOTH = 2, 2
_SCALE = _SHARP * _SMOOTH
_MARGIN, _TITLE = 20.0, 34.0
_DASH, _GAP = 4.0, 3.0


def save_png(drawing: Drawing, title: str, path: Path) -> None:
    """Complete or absent, like everything that packtrain writes."""
    from PIL import Image, ImageDraw

    width, height = drawing.width + 2 * _MARGIN, drawing.height + 2 * _MARGIN + _TITLE
    image = Image.new("RGB", (round(width * _SCALE), round(height * _SCALE)), PAPER.light)
    canvas = _Canvas(ImageDraw.Draw(image, "RGBA"), _MARGIN, _MARGIN)
    canvas.draw(Words(title, 0, 14, size=17, bold=True))
    canvas.top += _TITLE
    for mark in drawing.marks:
        canvas.draw(mark)
    temporary = path.with_name(f".{path.name}.new")
    image.reduce(_SMOOTH).save(temporary, "PNG")
    temporary.replace(path)


class _Canvas:
    def __init__(self, draw: ImageDraw.ImageDraw, left: float, top: float) -> None:
        self._draw, self.left, self.top = draw, left, top

    def draw(self, mark: Mark) -> None:
        if isinstance(mark, Tiles):
            self._tiles(mark)
        elif isinstance(mark, Dots):
            self._dots(mark)
        elif isinstance(mark, Line):
            self._line(mark)
        else:
            self._words(mark)

    def _at(self, x: float, y: float) -> Spot:
        return (x + self.left) * _SCALE, (y + self.top) * _SCALE

    def _tiles(self, mark: Tiles) -> None:
        colour = _rgba(mark.paint, mark.opacity)
        for x, y, width, height in mark.boxes:
            left, top = self._at(x, y)
            right, bottom = self._at(x + width, y + height)
            # Pillow counts the last pixel in.
            edges = (left, top, max(left, right - 1), max(top, bottom - 1))
            if mark.rounded:
                self._draw.rounded_rectangle(edges, min(mark.rounded, width / 2, height / 2) * _SCALE, fill=colour)
            else:
                self._draw.rectangle(edges, fill=colour)

    def _dots(self, mark: Dots) -> None:
        reach, colour = mark.radius * _SCALE, _rgba(mark.paint, mark.opacity)
        for spot in mark.spots:
            x, y = self._at(*spot)
            self._draw.ellipse((x - reach, y - reach, x + reach, y + reach), fill=colour)

    def _line(self, mark: Line) -> None:
        colour, width = _rgba(mark.paint, mark.opacity), max(1, round(mark.width * _SCALE))
        for piece in _dashes(mark) if mark.dashed else (mark.spots,):
            self._draw.line([self._at(*spot) for spot in piece], fill=colour, width=width, joint="curve")

    def _words(self, mark: Words) -> None:
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[mark.anchor]
        font = _font(round(mark.size * _SCALE), mark.bold)
        text = " ".join(mark.text.split())
        self._draw.text(self._at(mark.x, mark.y), text, fill=_rgba(mark.paint), font=font, anchor=anchor)


def _dashes(mark: Line) -> list[tuple[Spot, Spot]]:
    """Of the straight pieces of a line, each by itself."""
    found = []
    for (x, y), (to_x, to_y) in zip(mark.spots, mark.spots[1:], strict=False):
        length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
        for number in range(int(length / (_DASH + _GAP)) + 1 if length else 0):
            start = number * (_DASH + _GAP) / length
            end = min(1.0, start + _DASH / length)
            if start < 1:
                found.append((_between((x, y), (to_x, to_y), start), _between((x, y), (to_x, to_y), end)))
    return found


def _between(one: Spot, other: Spot, share: float) -> Spot:
    return one[0] + (other[0] - one[0]) * share, one[1] + (other[1] - one[1]) * share


def _rgba(paint: Paint, opacity: float = 1.0) -> tuple[int, int, int, int]:
    red, green, blue = (int(paint.light[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue, round(255 * opacity)


@lru_cache(maxsize=32)
def _font(size: int, bold: bool) -> Any:
    from PIL import ImageFont

    return ImageFont.truetype(str(_fonts() / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")), size)


@lru_cache(maxsize=1)
def _fonts() -> Path:
    """matplotlib's, which are on every machine that has packtrain; it is not imported for that."""
    found = importlib.util.find_spec("matplotlib")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("matplotlib, which brings the fonts of pictures, is not installed: pip install matplotlib")
    return Path(found.submodule_search_locations[0]) / "mpl-data/fonts/ttf"
