"""Tests of the decoder of the recipe imagenet-resnet50: simplejpeg if installed, else Pillow."""

import ast
import contextlib
import io
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from packtrain import recipes

PROGRAM = Path(recipes.__file__).parent / "imagenet-resnet50" / "train.py"
SIDE = 64


@pytest.fixture(params=[simplejpeg, None], ids=["simplejpeg", "Pillow"])
def decode_image(request):
    """The function of the program, without running the program."""
    tree = ast.parse(PROGRAM.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "decode_image"]
    namespace = {"simplejpeg": request.param, "Image": Image, "io": io, "contextlib": contextlib}
    exec(compile(tree, PROGRAM, "exec"), namespace)
    return namespace["decode_image"]


def make_picture():
    """Return a gradient, so that a wrong scale or colour order is visible."""
    rows, columns = np.mgrid[0:375, 0:500]
    return Image.fromarray(np.stack([rows * 255 // 375, columns * 255 // 500, 0 * rows + 90], axis=2).astype("uint8"))


def encode(picture, image_format, **options):
    file = io.BytesIO()
    picture.save(file, image_format, **options)
    return file.getvalue()


def mean_difference(image, picture):
    expected = np.asarray(picture.resize(image.size, Image.Resampling.BOX), dtype=float)
    return np.abs(np.asarray(image, dtype=float) - expected).mean()


def test_jpeg_is_scaled_down(decode_image):
    image = decode_image(encode(make_picture(), "JPEG", quality=95), SIDE)
    assert image.mode == "RGB"
    assert SIDE <= min(image.size) <= 2 * SIDE
    assert mean_difference(image, make_picture()) < 3


@pytest.mark.parametrize(("mode", "image_format"), [("RGB", "PNG"), ("CMYK", "JPEG"), ("L", "JPEG")])
def test_other_formats_in_imagenet(decode_image, mode, image_format):
    image = decode_image(encode(make_picture().convert(mode), image_format), SIDE)
    assert image.mode == "RGB"
    assert mean_difference(image, make_picture().convert(mode).convert("RGB")) < 6


def test_file_that_is_not_an_image(decode_image):
    with pytest.raises(OSError, match="cannot identify image"):
        decode_image(b"<html>not found</html>", SIDE)
