"""Builders of archives, and the two methods to unpack them: from a file, and while they download."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import random
import tarfile
import zipfile
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.transfer.archive.unpack import UnpackResult, can_stream, unpack, unpack_stream

SAMPLE_FILES = {"a.txt": b"alpha", "deep/er/b.bin": bytes(range(256)) * 5000, "empty": b"", "ü ñ.txt": b"names"}
RANDOM_DATA = random.Random(1).randbytes(300_000)


def make_member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname, info.mode = len(data), kind, link, mode
    return info, data


def make_tar(members, mode: str = "w", tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tar_format) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def make_zip(files, method: int = zipfile.ZIP_DEFLATED, force_zip64: bool = False) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in files.items():
            with archive.open(name, "w", force_zip64=force_zip64) as file:
                file.write(data)
    return buffer.getvalue()


def make_plain_tar(files=None) -> bytes:
    return make_tar(make_member(name, data) for name, data in (SAMPLE_FILES if files is None else files).items())


def read_folder(folder: Path) -> dict:
    """The content of each file below a folder, by relative path."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


class ChunkedReader:
    """A download that arrives in chunks of odd sizes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._sizes = memoryview(data), itertools.cycle((1, 700, 13, 66_000, 512, 4096))

    def read(self, size: int) -> bytes:
        return b"".join(self.read_views(size))

    def read_views(self, size: int) -> list:
        views = []
        while size and len(self._data):
            n_bytes = min(size, next(self._sizes))
            views.append(self._data[:n_bytes])
            self._data, size = self._data[n_bytes:], size - len(views[-1])
        return views


def unpack_from_file(path: Path, folder: Path, **options) -> UnpackResult:
    return unpack(path, folder, **options)


def unpack_from_stream(path: Path, folder: Path, **options) -> UnpackResult:
    """Stream the archive if its format allows that."""
    data = path.read_bytes()
    if not can_stream(data[:512]):
        return unpack(path, folder, **options)
    path.rename(path.with_name("hidden"))
    try:
        return unpack_stream(ChunkedReader(data), path.name, folder, **options)
    finally:
        path.with_name("hidden").rename(path)


UNPACK_METHODS = {"file": unpack_from_file, "stream": unpack_from_stream}
CURRENT_METHOD = [unpack_from_file]


def unpack_data(folder: Path, data: bytes, name: str = "data", **more_options) -> UnpackResult:
    """Write an archive as folder/name and unpack it to folder/into."""
    path = folder / name
    path.write_bytes(data)
    options = {"max_bytes": None, "check_cancelled": lambda: None, "on_progress": lambda d, t: None, **more_options}
    return CURRENT_METHOD[0](path, folder / "into", **options)


def unpack_error(folder: Path, data: bytes, name: str = "data", **more_options) -> FailedError:
    """The error of an archive that must be rejected and write nothing outside of folder/into."""
    with pytest.raises(FailedError) as caught:
        unpack_data(folder, data, name, **more_options)
    assert sorted(p.name for p in folder.iterdir() if p.name != "into") == sorted([name, "witness"])
    assert (folder / "witness").read_text() == "untouched"
    return caught.value


SAMPLE_ARCHIVES = {
    "tar": make_plain_tar(),
    "tar.gz": gzip.compress(make_plain_tar()),
    "tar.bz2": bz2.compress(make_plain_tar()),
    "tar.xz": lzma.compress(make_plain_tar()),
    "zip": make_zip(SAMPLE_FILES),
}
