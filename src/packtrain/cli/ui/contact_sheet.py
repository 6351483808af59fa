"""A contact sheet: samples as small pictures in rows, each with its class and name below it."""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_CELL_PX, _GAP_PX, _LINE_HEIGHT_PX = 176, 14, 17
_TITLE_HEIGHT_PX, _CAPTION_HEIGHT_PX = 44, 2 * _LINE_HEIGHT_PX + 22  # room for the title, and below each picture
_MIN_SCALED_PX = 96  # what is smaller is drawn larger, pixel by pixel
_BACKGROUND_COLOR, _TEXT_COLOR, _MUTED_COLOR, _BORDER_COLOR, _PLACEHOLDER_COLOR = (
    "#ffffff",
    "#1a1a1a",
    "#6b7280",
    "#d1d5db",
    "#f3f4f6",
)
_LARGE_FONT_PX, _SMALL_FONT_PX = 13, 11
_MAX_TEXT_LENGTH = 300  # letters that are measured


@dataclass(frozen=True)
class Thumbnail:
    """`why` says why there is no image."""

    title: str
    label: str
    image: Image.Image | None
    reason: str = ""


def decode_thumbnail(data: bytes) -> Image.Image | None:
    """As it fits into a cell; None for what is no image that Pillow can read."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.draft("RGB", (2 * _CELL_PX, 2 * _CELL_PX))
            return _resize(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def _resize(image: Image.Image) -> Image.Image:
    scale = _CELL_PX / max(image.size)
    if max(image.size) < _MIN_SCALED_PX:
        scale = _CELL_PX // max(image.size)
        return image.resize((image.width * int(scale), image.height * int(scale)), Image.Resampling.NEAREST)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    return image.resize(size, Image.Resampling.LANCZOS)


def render_contact_sheet(title: str, thumbnails: Sequence[Thumbnail]) -> Image.Image:
    """About as wide as it is high, for it is looked at on a screen."""
    columns = choose_columns(len(thumbnails))
    rows = [thumbnails[at : at + columns] for at in range(0, len(thumbnails), columns)]
    heights = [max((one.image.height if one.image else _CELL_PX // 2) for one in row) for row in rows]
    size = columns * (_CELL_PX + _GAP_PX) + _GAP_PX, sum(heights) + len(rows) * _CAPTION_HEIGHT_PX + _TITLE_HEIGHT_PX
    paper = Image.new("RGB", size, _BACKGROUND_COLOR)
    draw = ImageDraw.Draw(paper)
    _draw_text(draw, title, _GAP_PX, _GAP_PX, _LARGE_FONT_PX, _TEXT_COLOR, size[0] - 2 * _GAP_PX)
    y = _TITLE_HEIGHT_PX
    for row, height in zip(rows, heights, strict=True):
        for column, picture in enumerate(row):
            _draw_cell(paper, draw, picture, column * (_CELL_PX + _GAP_PX) + _GAP_PX, y, height)
        y += height + _CAPTION_HEIGHT_PX
    return paper


def choose_columns(count: int) -> int:
    """Rather such that rows are full."""
    wanted = max(1, round(math.sqrt(count * 1.2)))
    near = [columns for columns in (wanted, wanted - 1, wanted + 1) if columns > 0 and count % columns == 0]
    return min(count, next(iter(near), wanted))


def _draw_cell(
    canvas: Image.Image, draw: ImageDraw.ImageDraw, thumbnail: Thumbnail, x: int, y: int, height: int
) -> None:
    image = thumbnail.image
    if image is None:
        draw.rectangle((x, y, x + _CELL_PX - 1, y + height - 1), fill=_PLACEHOLDER_COLOR, outline=_BORDER_COLOR)
        _draw_text(
            draw,
            thumbnail.reason or "no image",
            x + 8,
            y + height // 2 - _LINE_HEIGHT_PX // 2,
            _SMALL_FONT_PX,
            _MUTED_COLOR,
            _CELL_PX - 16,
        )
    else:
        canvas.paste(image, (x + (_CELL_PX - image.width) // 2, y + (height - image.height) // 2))
    below = y + height + 5
    if thumbnail.label:
        _draw_text(draw, thumbnail.label, x, below, _LARGE_FONT_PX, _TEXT_COLOR, _CELL_PX)
        below += _LINE_HEIGHT_PX
    _draw_text(draw, thumbnail.title.rpartition("/")[2], x, below, _SMALL_FONT_PX, _MUTED_COLOR, _CELL_PX)


def _draw_text(draw: ImageDraw.ImageDraw, text: str, x: int, y: int, size: int, color: str, max_width: int) -> None:
    """On one line; what does not fit is left out of its middle."""
    font = _load_font(size)
    plain = "".join(letter if letter.isprintable() else "·" for letter in text)
    plain = (
        plain
        if len(plain) <= _MAX_TEXT_LENGTH
        else f"{plain[: _MAX_TEXT_LENGTH // 2]}{plain[-_MAX_TEXT_LENGTH // 2 :]}"
    )
    keep, shown = len(plain), plain
    while draw.textlength(shown, font) > max_width and keep > 2:
        keep -= 1
        shown = f"{plain[: keep - keep // 2]}…{plain[len(plain) - keep // 2 :]}"
    draw.text((x, y), shown, color, font)


def _load_font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The one that comes with matplotlib, which knows most alphabets."""
    found = importlib.util.find_spec("matplotlib")
    places = found.submodule_search_locations if found else None
    path = Path(next(iter(places or ()), ""), "mpl-data", "fonts", "ttf", "DejaVuSans.ttf")
    return ImageFont.truetype(str(path), size) if path.is_file() else ImageFont.load_default(size)
