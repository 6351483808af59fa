"""What Pillow does for the data sets. It is an extra: `pip install 'packtrain[images]'`."""

from __future__ import annotations

import io
from typing import Any

from packtrain.errors import UsageError


def pillow() -> Any:
    """The module PIL.Image."""
    try:
        from PIL import Image
    except ImportError:
        raise UsageError("making images needs Pillow: pip install 'packtrain[images]'") from None
    return Image


def png_planes(png: bytes, pixels: int) -> bytes:
    """A picture with one image of so many RGB pixels in each row → for each image its reds, greens and blues.

    Raises ValueError or OSError for what is no such picture."""
    with pillow().open(io.BytesIO(png)) as opened:
        picture = opened.convert("RGB")
    if picture.width != pixels:
        raise ValueError(f"the picture is {picture.width} pixels wide, not {pixels}")
    planes = [plane.tobytes() for plane in picture.split()]
    starts = range(0, len(planes[0]), pixels)
    return b"".join(plane[start : start + pixels] for start in starts for plane in planes)
