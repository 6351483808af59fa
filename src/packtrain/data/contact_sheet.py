"""A contact sheet: samples as thumbnails in rows, each with its class and name below it."""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_CELL_PX, _GAP_PX, _LINE_HEIGHT_PX = 176, 14, 17
_TITLE_HEIGHT_PX, _CAPTION_HEIGHT_PX = 44, 2 * _LINE_HEIGHT_PX + 22  # title; text below each thumbnail
_MIN_SCALED_PX = 96  # smaller images are enlarged by a whole factor
_BACKGROUND_COLOR, _TEXT_COLOR, _MUTED_COLOR, _BORDER_COLOR, _PLACEHOLDER_COLOR = (
    "#ffffff",
    "#1a1a1a",
    "#6b7280",
    "#d1d5db",
    "#f3f4f6",
)
_LARGE_FONT_PX, _SMALL_FONT_PX = 13, 11
_MAX_TEXT_LENGTH = 300  # characters; longer texts are shortened before they are measured


@dataclass(frozen=True)
class Thumbnail:
    """A decoded sample. `reason` explains why `image` is None."""

    title: str
    label: str
    image: Image.Image | None
    reason: str = ""


def decode_thumbnail(data: bytes) -> Image.Image | None:
    """Decode an image and fit it into a cell. Return None if Pillow cannot read it."""
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
    """Draw the thumbnails in rows, on a sheet about as wide as it is high."""
    columns = choose_columns(len(thumbnails))
    rows = [thumbnails[at : at + columns] for at in range(0, len(thumbnails), columns)]
    heights = [max((cell.image.height if cell.image else _CELL_PX // 2) for cell in row) for row in rows]
    size = columns * (_CELL_PX + _GAP_PX) + _GAP_PX, sum(heights) + len(rows) * _CAPTION_HEIGHT_PX + _TITLE_HEIGHT_PX
    canvas = Image.new("RGB", size, _BACKGROUND_COLOR)
    draw = ImageDraw.Draw(canvas)
    _draw_text(draw, title, _GAP_PX, _GAP_PX, _LARGE_FONT_PX, _TEXT_COLOR, size[0] - 2 * _GAP_PX)
    y = _TITLE_HEIGHT_PX
    for row, height in zip(rows, heights, strict=True):
        for column, thumbnail in enumerate(row):
            _draw_cell(canvas, draw, thumbnail, column * (_CELL_PX + _GAP_PX) + _GAP_PX, y, height)
        y += height + _CAPTION_HEIGHT_PX
    return canvas


def choose_columns(count: int) -> int:
    """Choose a number of columns near the square root, preferably one that fills all rows."""
    target = max(1, round(math.sqrt(count * 1.2)))
    full = [columns for columns in (target, target - 1, target + 1) if columns > 0 and count % columns == 0]
    return min(count, next(iter(full), target))


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
    """Draw text on one line, with an ellipsis in its middle if it is too wide."""
    font = _load_font(size)
    plain = "".join(char if char.isprintable() else "·" for char in text)
    if len(plain) > _MAX_TEXT_LENGTH:
        plain = f"{plain[: _MAX_TEXT_LENGTH // 2]}{plain[-_MAX_TEXT_LENGTH // 2 :]}"
    n_chars, line = len(plain), plain
    while draw.textlength(line, font) > max_width and n_chars > 2:
        n_chars -= 1
        line = f"{plain[: n_chars - n_chars // 2]}…{plain[len(plain) - n_chars // 2 :]}"
    draw.text((x, y), line, color, font)


def _load_font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Load the font that comes with matplotlib, which covers most alphabets."""
    spec = importlib.util.find_spec("matplotlib")
    folders = spec.submodule_search_locations if spec else None
    path = Path(next(iter(folders or ()), ""), "mpl-data", "fonts", "ttf", "DejaVuSans.ttf")
    return ImageFont.truetype(str(path), size) if path.is_file() else ImageFont.load_default(size)
