"""Image functions that need Pillow, an optional dependency: `pip install 'packtrain[images]'`."""

from __future__ import annotations

import io
from typing import Any

from packtrain.errors import UsageError


def import_pillow() -> Any:
    """Return the module PIL.Image. Raises UsageError if it is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise UsageError("creating images needs Pillow; pip install 'packtrain[images]'") from None
    return Image


def png_to_planes(png: bytes, pixels_per_image: int) -> bytes:
    """Convert a PNG that has one image per row to the red, green and blue bytes of each image.

    Raises ValueError or OSError if the PNG is not readable or has another width.
    """
    with import_pillow().open(io.BytesIO(png)) as opened:
        sheet = opened.convert("RGB")
    if sheet.width != pixels_per_image:
        raise ValueError(f"the image is {sheet.width} pixels wide, not {pixels_per_image}")
    planes = [plane.tobytes() for plane in sheet.split()]
    starts = range(0, len(planes[0]), pixels_per_image)
    return b"".join(plane[start : start + pixels_per_image] for start in starts for plane in planes)
