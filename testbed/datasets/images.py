"""What Pillow does for the data sets. It is an extra: `pip install 'packtrain[images]'`."""

from __future__ import annotations

import io
from typing import Any

from packtrain.errors import UsageError


def import_pillow() -> Any:
    """The module PIL.Image."""
    try:
        from PIL import Image
    except ImportError:
        raise UsageError("making images needs Pillow: pip install 'packtrain[images]'") from None
    return Image


def png_to_planes(png: bytes, pixels_per_image: int) -> bytes:
    """A picture with one image of so many RGB pixels in each row → for each image its reds, greens and blues.

    Raises ValueError or OSError for what is no such picture."""
    with import_pillow().open(io.BytesIO(png)) as opened:
        picture = opened.convert("RGB")
    if picture.width != pixels_per_image:
        raise ValueError(f"the picture is {picture.width} pixels wide, not {pixels_per_image}")
    planes = [plane.tobytes() for plane in picture.split()]
    starts = range(0, len(planes[0]), pixels_per_image)
    return b"".join(plane[start : start + pixels_per_image] for start in starts for plane in planes)
