"""A tar of class tars of JPEGs, of ImageNet's shape and any size, made from CIFAR-10's training images.

Class n01440764 and its like: class k shows CIFAR-10's class k mod 10, in a hue of its own, so that there is something
to learn however many classes there are. Scaled up with some grain, an image of 500×375 takes about 110 kB, as
ImageNet's do. The seed decides every byte (and the version of Pillow, which compresses).
"""

from __future__ import annotations

import io
import os
import random
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from testbed.datasets import cifar10
from testbed.datasets.images import pillow

NAME = "imagenet-like.tar"
BYTES_AN_IMAGE = 110_000  # about, at 500×375

_FIRST_CLASS = 1_440_764  # ImageNet's first: n01440764, the tench
_GRAIN_SIDE = 256
_GRAIN = 0.16  # how much of the image is grain
_QUALITY = 95
_TOGETHER = 64  # images that are made before they are written

Progress = Callable[[int, "int | None"], None]
Stop = Callable[[], None]


@dataclass(frozen=True)
class Shape:
    classes: int = 10
    per_class: int = 100
    width: int = 500
    height: int = 375
    seed: int = 1

    @property
    def images(self) -> int:
        return self.classes * self.per_class


def class_name(number: int) -> str:
    """Sorted as the numbers are."""
    return f"n{_FIRST_CLASS + 11 * number:08}"


def write(path: Path, cifar: Path, shape: Shape, progress: Progress, stop: Stop) -> None:
    """Complete or invisible. `cifar` is CIFAR-10's archive."""
    part = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with open(part, "wb") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
            _Maker(shape, _by_label(cifar), pool, progress, stop).write(file)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _by_label(cifar: Path) -> list[list[bytes]]:
    """The training images of each of CIFAR-10's classes."""
    found: list[list[bytes]] = [[] for _ in cifar10.CLASSES]
    for name, batch in zip(cifar10.BATCHES, cifar10.read(cifar), strict=True):
        if name != "test_batch":
            for row, label in enumerate(batch[b"labels"]):
                found[label].append(batch[b"data"][row : row + 1].data)
    return found


class _Maker:
    def __init__(
        self, shape: Shape, sources: list[list[bytes]], pool: ThreadPoolExecutor, progress: Progress, stop: Stop
    ) -> None:
        self._shape, self._sources, self._pool = shape, sources, pool
        self._progress, self._stop = progress, stop
        self._painter = _Painter(shape)
        self._made = self._bytes = 0

    def write(self, file: IO[bytes]) -> None:
        with tarfile.open(mode="w", fileobj=file, format=tarfile.GNU_FORMAT) as outer:
            for number in range(self._shape.classes):
                with tempfile.TemporaryFile() as inner:
                    self._write_class(inner, number)
                    _add(outer, f"{class_name(number)}.tar", inner)

    def _write_class(self, file: IO[bytes], number: int) -> None:
        with tarfile.open(mode="w", fileobj=file, format=tarfile.GNU_FORMAT) as tar:
            for index, jpeg in enumerate(self._jpegs(number)):
                _add(tar, f"{class_name(number)}_{index}.JPEG", io.BytesIO(jpeg))
                self._count(len(jpeg))

    def _jpegs(self, number: int) -> Iterator[bytes]:
        for start in range(0, self._shape.per_class, _TOGETHER):
            indices = range(start, min(start + _TOGETHER, self._shape.per_class))
            yield from self._pool.map(lambda index: self._jpeg(number, index), indices)

    def _jpeg(self, number: int, index: int) -> bytes:
        """Its own dice for each image: the order in which they are made does not matter."""
        dice = random.Random(f"{self._shape.seed}/{number}/{index}")
        source = dice.choice(self._sources[number % len(self._sources)])
        hues = -(-self._shape.classes // len(self._sources))
        return self._painter.jpeg(source, number // len(self._sources) / hues, dice)

    def _count(self, size: int) -> None:
        self._stop()
        self._made += 1
        self._bytes += size
        self._progress(self._bytes, self._bytes * self._shape.images // self._made)


def _add(tar: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    info = tarfile.TarInfo(name)
    info.size = file.seek(0, io.SEEK_END)
    file.seek(0)
    tar.addfile(info, file)


class _Painter:
    """Turns 32×32 pixels into a photograph's worth of bytes."""

    def __init__(self, shape: Shape) -> None:
        self._pillow, self._size = pillow(), (shape.width, shape.height)
        dice = random.Random(shape.seed)
        side = (_GRAIN_SIDE, _GRAIN_SIDE)
        tile = self._pillow.frombytes("RGB", side, dice.randbytes(3 * _GRAIN_SIDE * _GRAIN_SIDE))
        self._grain = self._tiled(tile)

    def jpeg(self, planes: bytes, hue: float, dice: random.Random) -> bytes:
        left, top = dice.randrange(4), dice.randrange(4)
        box = (left, top, left + cifar10.SIDE - 3, top + cifar10.SIDE - 3)
        image = self._coloured(planes, hue).resize(self._size, self._pillow.Resampling.BICUBIC, box)
        across, down = dice.randrange(_GRAIN_SIDE), dice.randrange(_GRAIN_SIDE)
        grain = self._grain.crop((across, down, across + self._size[0], down + self._size[1]))
        out = io.BytesIO()
        self._pillow.blend(image, grain, _GRAIN).save(out, "JPEG", quality=_QUALITY)
        return out.getvalue()

    def _coloured(self, planes: bytes, hue: float) -> Any:
        """`hue`: how far around the circle of colours, from 0 to 1."""
        side, area = (cifar10.SIDE, cifar10.SIDE), cifar10.SIDE**2
        bands = [self._pillow.frombytes("L", side, planes[at : at + area]) for at in (0, area, 2 * area)]
        image = self._pillow.merge("RGB", bands)
        if not hue:
            return image
        h, s, v = image.convert("HSV").split()
        turned = h.point([(value + round(256 * hue)) % 256 for value in range(256)])
        return self._pillow.merge("HSV", (turned, s, v)).convert("RGB")

    def _tiled(self, tile: Any) -> Any:
        width, height = (side + _GRAIN_SIDE for side in self._size)
        whole = self._pillow.new("RGB", (width, height))
        for x in range(0, width, _GRAIN_SIDE):
            for y in range(0, height, _GRAIN_SIDE):
                whole.paste(tile, (x, y))
        return whole
