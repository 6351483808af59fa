"""The recipe imagenet-resnet50 decodes by simplejpeg or by Pillow, whichever is there; what only Pillow can, by it."""

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
def decoded(request):
    """The program's own function."""
    tree = ast.parse(PROGRAM.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "decoded"]
    around = {"simplejpeg": request.param, "Image": Image, "io": io, "contextlib": contextlib}
    exec(compile(tree, PROGRAM, "exec"), around)
    return around["decoded"]


def a_picture():
    """A gradient, so that a wrong scale or order of colours shows."""
    rows, columns = np.mgrid[0:375, 0:500]
    return Image.fromarray(np.stack([rows * 255 // 375, columns * 255 // 500, 0 * rows + 90], axis=2).astype("uint8"))


def written(picture, form, **more):
    file = io.BytesIO()
    picture.save(file, form, **more)
    return file.getvalue()


def difference(image, picture):
    wanted = np.asarray(picture.resize(image.size, Image.Resampling.BOX), dtype=float)
    return np.abs(np.asarray(image, dtype=float) - wanted).mean()


def test_a_jpeg_comes_not_much_larger_than_wanted(decoded):
    image = decoded(written(a_picture(), "JPEG", quality=95), SIDE)
    assert image.mode == "RGB"
    assert SIDE <= min(image.size) <= 2 * SIDE
    assert difference(image, a_picture()) < 3


@pytest.mark.parametrize(("mode", "form"), [("RGB", "PNG"), ("CMYK", "JPEG"), ("L", "JPEG")])
def test_what_else_is_in_imagenet(decoded, mode, form):
    image = decoded(written(a_picture().convert(mode), form), SIDE)
    assert image.mode == "RGB"
    assert difference(image, a_picture().convert(mode).convert("RGB")) < 6


def test_what_is_no_image_is_an_error(decoded):
    with pytest.raises(OSError, match="cannot identify image"):
        decoded(b"<html>not found</html>", SIDE)
