"""Writes a drawing as a PNG with its title, in the light theme. Pillow is imported when one is written.

The drawing is rendered at twice the final size for antialiasing. The result has two pixels per unit.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packtrain.fileutil import atomic_writer
from packtrain.report.charts.canvas.drawing import XY, DotMarks, Drawing, DrawingMark, LineMark, RectMarks, TextMark
from packtrain.report.charts.palette import BACKGROUND, ThemeColor

if TYPE_CHECKING:
    from PIL import ImageDraw

_PIXEL_RATIO, _SUPERSAMPLING = 2, 2
_SCALE = _PIXEL_RATIO * _SUPERSAMPLING
_MARGIN, _TITLE = 20.0, 34.0
_DASH, _GAP = 4.0, 3.0


def save_png(drawing: Drawing, title: str, path: Path) -> None:
    """Write a PNG file. It is either complete or absent."""
    from PIL import Image, ImageDraw

    width, height = drawing.width + 2 * _MARGIN, drawing.height + 2 * _MARGIN + _TITLE
    image = Image.new("RGB", (round(width * _SCALE), round(height * _SCALE)), BACKGROUND.light)
    canvas = _PngCanvas(ImageDraw.Draw(image, "RGBA"), _MARGIN, _MARGIN)
    canvas.draw(TextMark(title, 0, 14, size=17, bold=True))
    canvas.top += _TITLE
    for mark in drawing.marks:
        canvas.draw(mark)
    with atomic_writer(path) as file:
        image.reduce(_SUPERSAMPLING).save(file, "PNG")


class _PngCanvas:
    """Draws marks with Pillow."""

    def __init__(self, draw: ImageDraw.ImageDraw, left: float, top: float) -> None:
        self._draw, self.left, self.top = draw, left, top

    def draw(self, mark: DrawingMark) -> None:
        if isinstance(mark, RectMarks):
            self._draw_rects(mark)
        elif isinstance(mark, DotMarks):
            self._draw_dots(mark)
        elif isinstance(mark, LineMark):
            self._draw_line(mark)
        else:
            self._draw_text(mark)

    def _to_pixels(self, x: float, y: float) -> XY:
        return (x + self.left) * _SCALE, (y + self.top) * _SCALE

    def _draw_rects(self, mark: RectMarks) -> None:
        color = _to_rgba(mark.color, mark.opacity)
        for x, y, width, height in mark.boxes:
            left, top = self._to_pixels(x, y)
            right, bottom = self._to_pixels(x + width, y + height)
            # Pillow includes the last pixel.
            edges = (left, top, max(left, right - 1), max(top, bottom - 1))
            if mark.rounded:
                self._draw.rounded_rectangle(edges, min(mark.rounded, width / 2, height / 2) * _SCALE, fill=color)
            else:
                self._draw.rectangle(edges, fill=color)

    def _draw_dots(self, mark: DotMarks) -> None:
        radius, color = mark.radius * _SCALE, _to_rgba(mark.color, mark.opacity)
        for point in mark.points:
            x, y = self._to_pixels(*point)
            self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color)

    def _draw_line(self, mark: LineMark) -> None:
        color, width = _to_rgba(mark.color, mark.opacity), max(1, round(mark.width * _SCALE))
        for segment in _dash_segments(mark) if mark.dashed else (mark.points,):
            self._draw.line([self._to_pixels(*point) for point in segment], fill=color, width=width, joint="curve")

    def _draw_text(self, mark: TextMark) -> None:
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[mark.anchor]
        font = _load_font(round(mark.size * _SCALE), mark.bold)
        text = " ".join(mark.text.split())
        self._draw.text(self._to_pixels(mark.x, mark.y), text, fill=_to_rgba(mark.color), font=font, anchor=anchor)


def _dash_segments(mark: LineMark) -> list[tuple[XY, XY]]:
    """Split each straight segment of a line into dashes."""
    dashes = []
    for (x, y), (to_x, to_y) in zip(mark.points, mark.points[1:], strict=False):
        length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
        for number in range(int(length / (_DASH + _GAP)) + 1 if length else 0):
            start = number * (_DASH + _GAP) / length
            end = min(1.0, start + _DASH / length)
            if start < 1:
                dashes.append((_interpolate((x, y), (to_x, to_y), start), _interpolate((x, y), (to_x, to_y), end)))
    return dashes


def _interpolate(start: XY, end: XY, fraction: float) -> XY:
    return start[0] + (end[0] - start[0]) * fraction, start[1] + (end[1] - start[1]) * fraction


def _to_rgba(color: ThemeColor, opacity: float = 1.0) -> tuple[int, int, int, int]:
    red, green, blue = (int(color.light[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue, round(255 * opacity)


@lru_cache(maxsize=32)
def _load_font(size: int, bold: bool) -> Any:
    from PIL import ImageFont

    return ImageFont.truetype(str(_font_dir() / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")), size)


@lru_cache(maxsize=1)
def _font_dir() -> Path:
    """Return the folder of the fonts that matplotlib includes, without importing matplotlib."""
    spec = importlib.util.find_spec("matplotlib")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("matplotlib, which provides the fonts of charts, is not installed: pip install matplotlib")
    return Path(spec.submodule_search_locations[0]) / "mpl-data/fonts/ttf"
