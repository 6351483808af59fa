"""A contact sheet: samples as small pictures in rows, each with its class and name below it."""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_CELL, _GAP, _LINE = 176, 14, 17
_TOP, _BELOW = 44, 2 * _LINE + 22  # room for the title, and below each picture
_SMALLEST = 96  # what is smaller is drawn larger, pixel by pixel
_PAPER, _INK, _FAINT, _FRAME, _MISSING = "#ffffff", "#1a1a1a", "#6b7280", "#d1d5db", "#f3f4f6"
_LARGE, _SMALL = 13, 11
_LONGEST = 300  # letters that are measured


@dataclass(frozen=True)
class Picture:
    """`why` says why there is no image."""

    title: str
    label: str
    image: Image.Image | None
    why: str = ""


def decoded(data: bytes) -> Image.Image | None:
    """As it fits into a cell; None for what is no image that Pillow can read."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.draft("RGB", (2 * _CELL, 2 * _CELL))
            return _fitted(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def _fitted(image: Image.Image) -> Image.Image:
    scale = _CELL / max(image.size)
    if max(image.size) < _SMALLEST:
        scale = _CELL // max(image.size)
        return image.resize((image.width * int(scale), image.height * int(scale)), Image.Resampling.NEAREST)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    return image.resize(size, Image.Resampling.LANCZOS)


def sheet(title: str, pictures: Sequence[Picture]) -> Image.Image:
    """About as wide as it is high, for it is looked at on a screen."""
    columns = columns_for(len(pictures))
    rows = [pictures[at : at + columns] for at in range(0, len(pictures), columns)]
    heights = [max((one.image.height if one.image else _CELL // 2) for one in row) for row in rows]
    size = columns * (_CELL + _GAP) + _GAP, sum(heights) + len(rows) * _BELOW + _TOP
    paper = Image.new("RGB", size, _PAPER)
    draw = ImageDraw.Draw(paper)
    _write(draw, title, _GAP, _GAP, _LARGE, _INK, size[0] - 2 * _GAP)
    y = _TOP
    for row, height in zip(rows, heights, strict=True):
        for column, picture in enumerate(row):
            _draw(paper, draw, picture, column * (_CELL + _GAP) + _GAP, y, height)
        y += height + _BELOW
    return paper


def columns_for(count: int) -> int:
    """Rather such that rows are full."""
    wanted = max(1, round(math.sqrt(count * 1.2)))
    near = [columns for columns in (wanted, wanted - 1, wanted + 1) if columns > 0 and count % columns == 0]
    return min(count, next(iter(near), wanted))


def _draw(paper: Image.Image, draw: ImageDraw.ImageDraw, picture: Picture, x: int, y: int, height: int) -> None:
    image = picture.image
    if image is None:
        draw.rectangle((x, y, x + _CELL - 1, y + height - 1), fill=_MISSING, outline=_FRAME)
        _write(draw, picture.why or "no image", x + 8, y + height // 2 - _LINE // 2, _SMALL, _FAINT, _CELL - 16)
    else:
        paper.paste(image, (x + (_CELL - image.width) // 2, y + (height - image.height) // 2))
    below = y + height + 5
    if picture.label:
        _write(draw, picture.label, x, below, _LARGE, _INK, _CELL)
        below += _LINE
    _write(draw, picture.title.rpartition("/")[2], x, below, _SMALL, _FAINT, _CELL)


def _write(draw: ImageDraw.ImageDraw, text: str, x: int, y: int, size: int, ink: str, room: int) -> None:
    """On one line; what does not fit is left out of its middle."""
    font = _font(size)
    plain = "".join(letter if letter.isprintable() else "·" for letter in text)
    plain = plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST // 2]}{plain[-_LONGEST // 2 :]}"
    keep, shown = len(plain), plain
    while draw.textlength(shown, font) > room and keep > 2:
        keep -= 1
        shown = f"{plain[: keep - keep // 2]}…{plain[len(plain) - keep // 2 :]}"
    draw.text((x, y), shown, ink, font)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The one that comes with matplotlib, which knows most alphabets."""
    found = importlib.util.find_spec("matplotlib")
    places = found.submodule_search_locations if found else None
    path = Path(next(iter(places or ()), ""), "mpl-data", "fonts", "ttf", "DejaVuSans.ttf")
    return ImageFont.truetype(str(path), size) if path.is_file() else ImageFont.load_default(size)
