"""Is it a whole archive? Read to its very end, with every checksum on the way; nothing is written."""

from __future__ import annotations

from pathlib import Path

from packtrain.agent.outputs.validators import Heed
from packtrain.errors import FailedError
from packtrain.transfer.archive.byte_stream import Flow, of_file
from packtrain.transfer.archive.decompress import decompressed
from packtrain.transfer.archive.extract_tar import reading, untar
from packtrain.transfer.archive.extract_zip import unzip
from packtrain.transfer.archive.safe_extractor import Landing
from packtrain.transfer.archive.unpack import kind_of

_ZIP = b"PK"  # .npz and the like, which are not unpacked


def judge(path: Path, heed: Heed) -> str | None:
    """What is wrong with the archive, or None."""
    kind = kind_of(path) or _zip_after_all(path)
    if kind is None:
        return "it is no archive that packtrain knows"
    if kind in ("7z", "rar"):
        return f"it is a {kind} archive, which cannot be checked; use tar or zip"
    try:
        _read(path, kind, heed)
    except FailedError as error:
        if error.kind not in ("truncated", "archive_broken", "archive_unsafe"):
            raise
        return error.detail
    return None


def _zip_after_all(path: Path) -> str | None:
    with open(path, "rb") as file:
        return "zip" if file.read(len(_ZIP)) == _ZIP else None


def _read(path: Path, kind: str, heed: Heed) -> None:
    if kind == "zip":
        unzip(path, _Nowhere(path.name), heed)
        return
    with open(path, "rb", buffering=0) as file:
        packed = of_file(file.fileno())
        plain = decompressed(packed, kind.rpartition(".")[2] if kind != "tar" else "")
        if kind.startswith("tar"):
            untar(plain, _Nowhere(path.name), heed)
        else:
            _read_through(plain, path.name, heed)


def _read_through(plain: Flow, name: str, heed: Heed) -> None:
    with reading(name):
        while len(plain.some()):
            heed()


class _Nowhere(Landing):
    """Members are read, and land nowhere."""

    def __init__(self, archive: str) -> None:
        self.archive = archive

    def folder(self, name: str) -> None: ...

    def small(self, name: str, executable: bool, views: list[memoryview], size: int) -> None: ...

    def file(self, name: str, executable: bool, data: Flow) -> None:
        data.drain()

    def symlink(self, name: str, target: str) -> None: ...

    def hardlink(self, name: str, target: str) -> None: ...
