"""A tar of class tars of JPEGs in the format of ImageNet, of any size, built from CIFAR-10's training images.

Classes are named like n01440764. Class k shows CIFAR-10's class k mod 10 with a hue of its own, so that any number of
classes can be learned. Scaled up with added noise, an image of 500×375 pixels takes about 110 kB, as in ImageNet. The
bytes depend only on the seed and the version of Pillow.
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
BYTES_PER_IMAGE = 110_000  # approximately, at 500×375 pixels

_FIRST_WORDNET_ID = 1_440_764  # the first class of ImageNet: n01440764, tench
_NOISE_SIDE = 256
_NOISE_FRACTION = 0.16  # weight of the noise in the image
_JPEG_QUALITY = 95
_IMAGES_PER_CHUNK = 64  # images rendered in parallel before they are written

ProgressCallback = Callable[[int, "int | None"], None]
CancelCheck = Callable[[], None]


@dataclass(frozen=True)
class DatasetShape:
    """Size of a dataset, image size in pixels, and seed."""

    n_classes: int = 10
    images_per_class: int = 100
    width: int = 500
    height: int = 375
    seed: int = 1

    @property
    def n_images(self) -> int:
        return self.n_classes * self.images_per_class


def class_name(number: int) -> str:
    """Return the name of a class; names sort like their numbers."""
    return f"n{_FIRST_WORDNET_ID + 11 * number:08}"


def write_archive(
    path: Path, cifar10_archive: Path, shape: DatasetShape, on_progress: ProgressCallback, check_cancelled: CancelCheck
) -> None:
    """Write the archive; `path` appears only when it is complete."""
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
    """Return the training images of each class of CIFAR-10."""
    images: list[list[bytes]] = [[] for _ in cifar10.CLASS_NAMES]
    for name, batch in zip(cifar10.BATCHES, cifar10.read_batches(cifar10_archive), strict=True):
        if name != "test_batch":
            for row, label in enumerate(batch[b"labels"]):
                images[label].append(batch[b"data"][row : row + 1].data)
    return images


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
        """Render an image with its own random generator, so that the order of rendering does not matter."""
        rng = random.Random(f"{self._shape.seed}/{number}/{index}")
        source = rng.choice(self._sources[number % len(self._sources)])
        hues = -(-self._shape.n_classes // len(self._sources))
        return self._image_synthesizer.render_jpeg(source, number // len(self._sources) / hues, rng)

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
    """Scales 32×32 pixels up to a JPEG with the size of a photograph."""

    def __init__(self, shape: DatasetShape) -> None:
        self._pillow, self._image_size = import_pillow(), (shape.width, shape.height)
        rng = random.Random(shape.seed)
        side = (_NOISE_SIDE, _NOISE_SIDE)
        tile = self._pillow.frombytes("RGB", side, rng.randbytes(3 * _NOISE_SIDE * _NOISE_SIDE))
        self._noise = self._tile(tile)

    def render_jpeg(self, planes: bytes, hue: float, rng: random.Random) -> bytes:
        left, top = rng.randrange(4), rng.randrange(4)
        box = (left, top, left + cifar10.IMAGE_SIDE - 3, top + cifar10.IMAGE_SIDE - 3)
        image = self._shift_hue(planes, hue).resize(self._image_size, self._pillow.Resampling.BICUBIC, box)
        across, down = rng.randrange(_NOISE_SIDE), rng.randrange(_NOISE_SIDE)
        noise = self._noise.crop((across, down, across + self._image_size[0], down + self._image_size[1]))
        out = io.BytesIO()
        self._pillow.blend(image, noise, _NOISE_FRACTION).save(out, "JPEG", quality=_JPEG_QUALITY)
        return out.getvalue()

    def _shift_hue(self, planes: bytes, hue: float) -> Any:
        """Rotate the hue by a fraction of the colour circle, 0 to 1."""
        side, area = (cifar10.IMAGE_SIDE, cifar10.IMAGE_SIDE), cifar10.IMAGE_SIDE**2
        bands = [self._pillow.frombytes("L", side, planes[start : start + area]) for start in (0, area, 2 * area)]
        image = self._pillow.merge("RGB", bands)
        if not hue:
            return image
        h, s, v = image.convert("HSV").split()
        shifted = h.point([(value + round(256 * hue)) % 256 for value in range(256)])
        return self._pillow.merge("HSV", (shifted, s, v)).convert("RGB")

    def _tile(self, tile: Any) -> Any:
        width, height = (side + _NOISE_SIDE for side in self._image_size)
        canvas = self._pillow.new("RGB", (width, height))
        for x in range(0, width, _NOISE_SIDE):
            for y in range(0, height, _NOISE_SIDE):
                canvas.paste(tile, (x, y))
        return canvas
