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
from testbed.datasets.images import import_pillow

ARCHIVE_FILENAME = "imagenet-like.tar"
BYTES_PER_IMAGE = 110_000  # about, at 500×375

_FIRST_WORDNET_ID = 1_440_764  # ImageNet's first: n01440764, the tench
_NOISE_SIDE = 256
_NOISE_FRACTION = 0.16  # how much of the image is grain
_JPEG_QUALITY = 95
_IMAGES_PER_CHUNK = 64  # images that are made before they are written

ProgressCallback = Callable[[int, "int | None"], None]
CancelCheck = Callable[[], None]


@dataclass(frozen=True)
class DatasetShape:
    n_classes: int = 10
    images_per_class: int = 100
    width: int = 500
    height: int = 375
    seed: int = 1

    @property
    def n_images(self) -> int:
        return self.n_classes * self.images_per_class


def class_name(number: int) -> str:
    """Sorted as the numbers are."""
    return f"n{_FIRST_WORDNET_ID + 11 * number:08}"


def write_archive(
    path: Path, cifar10_archive: Path, shape: DatasetShape, on_progress: ProgressCallback, check_cancelled: CancelCheck
) -> None:
    """Complete or invisible. `cifar` is CIFAR-10's archive."""
    part = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with open(part, "wb") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
            _ArchiveWriter(shape, _load_images_by_label(cifar10_archive), pool, on_progress, check_cancelled).write(
                file
            )
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _load_images_by_label(cifar10_archive: Path) -> list[list[bytes]]:
    """The training images of each of CIFAR-10's classes."""
    found: list[list[bytes]] = [[] for _ in cifar10.CLASS_NAMES]
    for name, batch in zip(cifar10.BATCHES, cifar10.read_batches(cifar10_archive), strict=True):
        if name != "test_batch":
            for row, label in enumerate(batch[b"labels"]):
                found[label].append(batch[b"data"][row : row + 1].data)
    return found


class _ArchiveWriter:
    def __init__(
        self,
        shape: DatasetShape,
        sources: list[list[bytes]],
        pool: ThreadPoolExecutor,
        on_progress: ProgressCallback,
        check_cancelled: CancelCheck,
    ) -> None:
        self._shape, self._sources, self._pool = shape, sources, pool
        self._on_progress, self._check_cancelled = on_progress, check_cancelled
        self._image_synthesizer = _ImageSynthesizer(shape)
        self._n_images = self._n_bytes = 0

    def write(self, file: IO[bytes]) -> None:
        with tarfile.open(mode="w", fileobj=file, format=tarfile.GNU_FORMAT) as outer:
            for number in range(self._shape.n_classes):
                with tempfile.TemporaryFile() as inner:
                    self._write_class(inner, number)
                    _add_member(outer, f"{class_name(number)}.tar", inner)

    def _write_class(self, file: IO[bytes], number: int) -> None:
        with tarfile.open(mode="w", fileobj=file, format=tarfile.GNU_FORMAT) as tar:
            for index, jpeg in enumerate(self._iter_jpegs(number)):
                _add_member(tar, f"{class_name(number)}_{index}.JPEG", io.BytesIO(jpeg))
                self._count_image(len(jpeg))

    def _iter_jpegs(self, number: int) -> Iterator[bytes]:
        for start in range(0, self._shape.images_per_class, _IMAGES_PER_CHUNK):
            indices = range(start, min(start + _IMAGES_PER_CHUNK, self._shape.images_per_class))
            yield from self._pool.map(lambda index: self._make_jpeg(number, index), indices)

    def _make_jpeg(self, number: int, index: int) -> bytes:
        """Its own dice for each image: the order in which they are made does not matter."""
        dice = random.Random(f"{self._shape.seed}/{number}/{index}")
        source = dice.choice(self._sources[number % len(self._sources)])
        hues = -(-self._shape.n_classes // len(self._sources))
        return self._image_synthesizer.render_jpeg(source, number // len(self._sources) / hues, dice)

    def _count_image(self, n_bytes: int) -> None:
        self._check_cancelled()
        self._n_images += 1
        self._n_bytes += n_bytes
        self._on_progress(self._n_bytes, self._n_bytes * self._shape.n_images // self._n_images)


def _add_member(tar: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    info = tarfile.TarInfo(name)
    info.size = file.seek(0, io.SEEK_END)
    file.seek(0)
    tar.addfile(info, file)


class _ImageSynthesizer:
    """Turns 32×32 pixels into a photograph's worth of bytes."""

    def __init__(self, shape: DatasetShape) -> None:
        self._pillow, self._image_size = import_pillow(), (shape.width, shape.height)
        dice = random.Random(shape.seed)
        side = (_NOISE_SIDE, _NOISE_SIDE)
        tile = self._pillow.frombytes("RGB", side, dice.randbytes(3 * _NOISE_SIDE * _NOISE_SIDE))
        self._noise = self._tile(tile)

    def render_jpeg(self, planes: bytes, hue: float, rng: random.Random) -> bytes:
        left, top = rng.randrange(4), rng.randrange(4)
        box = (left, top, left + cifar10.IMAGE_SIDE - 3, top + cifar10.IMAGE_SIDE - 3)
        image = self._shift_hue(planes, hue).resize(self._image_size, self._pillow.Resampling.BICUBIC, box)
        across, down = rng.randrange(_NOISE_SIDE), rng.randrange(_NOISE_SIDE)
        grain = self._noise.crop((across, down, across + self._image_size[0], down + self._image_size[1]))
        out = io.BytesIO()
        self._pillow.blend(image, grain, _NOISE_FRACTION).save(out, "JPEG", quality=_JPEG_QUALITY)
        return out.getvalue()

    def _shift_hue(self, planes: bytes, hue: float) -> Any:
        """`hue`: how far around the circle of colours, from 0 to 1."""
        side, area = (cifar10.IMAGE_SIDE, cifar10.IMAGE_SIDE), cifar10.IMAGE_SIDE**2
        bands = [self._pillow.frombytes("L", side, planes[at : at + area]) for at in (0, area, 2 * area)]
        image = self._pillow.merge("RGB", bands)
        if not hue:
            return image
        h, s, v = image.convert("HSV").split()
        turned = h.point([(value + round(256 * hue)) % 256 for value in range(256)])
        return self._pillow.merge("HSV", (turned, s, v)).convert("RGB")

    def _tile(self, tile: Any) -> Any:
        width, height = (side + _NOISE_SIDE for side in self._image_size)
        whole = self._pillow.new("RGB", (width, height))
        for x in range(0, width, _NOISE_SIDE):
            for y in range(0, height, _NOISE_SIDE):
                whole.paste(tile, (x, y))
        return whole
