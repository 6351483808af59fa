"""Unpacks an archive into a folder, safely. What a file is, its content tells, not its name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Optional

from packtrain.errors import FailedError
from packtrain.transfer.foreign import FOREIGN, unpack_foreign
from packtrain.transfer.landing import Landing, Room
from packtrain.transfer.untar import Forward, decompressed, reading, untar
from packtrain.transfer.unzip import unzip

Stop = Callable[[], None]
Progress = Callable[[int, Optional[int]], None]

_MAGIC = (
    (b"\x1f\x8b", "gz"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
)
_COMPRESSIONS = ("gz", "bz2", "xz")
_COMPRESSION = {"tar": "", **{kind: kind for kind in _COMPRESSIONS}, **{f"tar.{kind}": kind for kind in _COMPRESSIONS}}
# Zip files by content, but data to those who use them.
_NOT_FOR_US = (".npz", ".pt", ".pth", ".ckpt", ".keras", ".whl", ".jar", ".docx", ".xlsx", ".pptx", ".epub")
_SUFFIXES = (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", ".tbz2", ".tbz", ".txz", ".tar", ".gz", ".bz2", ".xz")
_TAR_BLOCK = 512
_EMPTY_TAR = 10240  # two blocks of zeros, padded to a record
_TAR_MAGIC = slice(257, 262)
_TAR_CHECKSUM = slice(148, 156)


@dataclass(frozen=True)
class Unpacked:
    files: int
    bytes: int


def kind_of(path: Path) -> str | None:
    """tar, tar.gz, tar.bz2, tar.xz, zip, gz, bz2, xz, 7z, rar; None for what is left as it is."""
    if path.name.lower().endswith(_NOT_FOR_US):
        return None
    with open(path, "rb") as file:
        head = file.read(_TAR_BLOCK)
    kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)
    if kind in _COMPRESSIONS:
        return f"tar.{kind}" if _holds_tar(path, kind) else kind
    return kind or ("tar" if _holds_tar(path, "") else None)


def _holds_tar(path: Path, compression: str) -> bool:
    with contextlib.suppress(Exception), decompressed(path, compression) as (stream, _):
        # Damage is told when it is unpacked; here it only means that no tar is seen.
        return _is_tar(stream.read(_EMPTY_TAR + 1))
    return False


def _is_tar(head: bytes) -> bool:
    block = head[:_TAR_BLOCK]
    if len(block) < _TAR_BLOCK:
        return False
    if not block.strip(b"\0"):
        return len(head) in (2 * _TAR_BLOCK, _EMPTY_TAR) and not head.strip(b"\0")
    return block[_TAR_MAGIC] == b"ustar" or _old_checksum_holds(block)


def _old_checksum_holds(block: bytes) -> bool:
    """Tars from before POSIX have no magic, but a checksum of the header."""
    stated = block[_TAR_CHECKSUM].strip(b"\0 ")
    counted = sum(block) - sum(block[_TAR_CHECKSUM]) + 8 * ord(" ")
    return stated.isdigit() and not stated.strip(b"01234567") and int(stated, 8) == counted


def unpack(
    path: Path, folder: Path, *, nested: bool = False, limit_bytes: int | None, stop: Stop, progress: Progress
) -> Unpacked:
    """Everything of the archive stands below the folder, or FailedError says why not.

    `nested`: each tar inside becomes a folder of its name. `progress` gets the bytes unpacked so far
    and an estimate of all, from how much of the archive was read.
    """
    kind = kind_of(path)
    if kind is None:
        raise FailedError("archive_broken", f"{path.name} is no archive that packtrain knows")
    work = _Unpacking(path, Room(folder, limit_bytes, path.name), nested, stop, progress)
    if kind in FOREIGN:
        work.foreign(kind, folder, limit_bytes)
    else:
        work.own(kind, folder)
    return Unpacked(work.files, work.room.taken)


class _Unpacking:
    def __init__(self, path: Path, room: Room, nested: bool, stop: Stop, progress: Progress) -> None:
        self.room, self.files = room, 0
        self._path, self._size, self._nested = path, path.stat().st_size, nested
        self._stop, self._progress = stop, progress
        self._raw: BinaryIO | None = None

    def own(self, kind: str, folder: Path) -> None:
        landing = self._landing(folder, self._path.name)
        if kind == "zip":
            unzip(self._path, self._path.name, landing, self._landed, self._stop)
        else:
            self._stream(kind, landing)
        self.files += landing.files

    def foreign(self, kind: str, folder: Path, limit: int | None) -> None:
        landing = self._landing(folder, self._path.name)
        unpack_foreign(kind, self._path, landing, folder, limit, self._stop)
        self.files += landing.files

    def _landing(self, folder: Path, archive: str) -> Landing:
        return Landing(folder, self.room, archive, self._wrote)

    def _stream(self, kind: str, landing: Landing) -> None:
        name = self._path.name
        with decompressed(self._path, _COMPRESSION[kind]) as (stream, self._raw):
            if kind.startswith("tar"):
                untar(stream, name, landing, self._landed, self._stop)
            else:
                with reading(name):
                    landing.file(_bare(name), False, Forward(stream, self._stop))

    def _landed(self, path: Path) -> None:
        """An inner tar is unpacked and removed at once: all of them packed and unpacked would need twice the disk."""
        kind = kind_of(path) if self._nested else None
        if kind is None or not kind.startswith("tar"):
            return
        packed = path.rename(path.with_name(path.name + ".packed"))
        self._inner(packed, kind, path.with_name(_bare(path.name)), f"{path.name} in {self._path.name}")

    def _inner(self, packed: Path, kind: str, folder: Path, archive: str) -> None:
        landing = self._landing(folder, archive)
        with decompressed(packed, _COMPRESSION[kind]) as (stream, _):
            untar(stream, archive, landing, lambda path: None, self._stop)
        self.room.give_back(packed.stat().st_size)
        packed.unlink()
        self.files += landing.files - 1  # the inner tar is a file no more

    def _wrote(self) -> None:
        read = self._raw.tell() if self._raw is not None else 0
        self._progress(self.room.taken, self.room.taken * self._size // read if read else None)


def _bare(name: str) -> str:
    """The name without what tells the packing; never the same name."""
    suffix = next((suffix for suffix in _SUFFIXES if name.lower().endswith(suffix) and name.lower() != suffix), None)
    return name[: -len(suffix)] if suffix else f"{name}.unpacked"
