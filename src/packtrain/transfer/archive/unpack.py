"""Unpacks an archive into a folder, safely. What a file is, its content tells, not its name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from packtrain.errors import FailedError
from packtrain.transfer.archive.byte_stream import Flow, Reader, of_file, of_reader
from packtrain.transfer.archive.decompress import MAGIC, decompressed
from packtrain.transfer.archive.external_tools import FOREIGN, unpack_foreign
from packtrain.transfer.archive.extract_dir import Ground
from packtrain.transfer.archive.extract_tar import LandFile, reading, untar
from packtrain.transfer.archive.extract_zip import unzip
from packtrain.transfer.archive.safe_extractor import Landing
from packtrain.transfer.archive.tar_header import END, HeaderError, parse

Stop = Callable[[], None]
Progress = Callable[[int, Optional[int]], None]

_KINDS = (
    *((magic, kind) for kind, magic in MAGIC.items()),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
)
_COMPRESSION = {"tar": "", **{kind: kind for kind in MAGIC}, **{f"tar.{kind}": kind for kind in MAGIC}}
# Zip files by content, but data to those who use them.
_NOT_FOR_US = (".npz", ".pt", ".pth", ".ckpt", ".keras", ".whl", ".jar", ".docx", ".xlsx", ".pptx", ".epub")
_SUFFIXES = (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", ".tbz2", ".tbz", ".txz", ".tar", ".gz", ".bz2", ".xz")
_EMPTY_TAR = 10240  # two blocks of zeros, padded to a record
_TAR_MAGIC = slice(257, 262)
_PACKED_HEAD = 1 << 20  # a block of bz2, of which nothing can be read before all of it is there


@dataclass(frozen=True)
class Unpacked:
    files: int
    bytes: int


def kind_of(path: Path) -> str | None:
    """tar, tar.gz, tar.bz2, tar.xz, zip, gz, bz2, xz, 7z, rar; None for what is left as it is."""
    if left_alone(path.name):
        return None
    with open(path, "rb") as file:
        return _kind(of_file(file.fileno()))


def left_alone(name: str) -> bool:
    """Whether a file of this name is data, even where it is an archive by its content."""
    return name.lower().endswith(_NOT_FOR_US)


def can_stream(head: bytes) -> bool:
    """Whether what begins so (512 bytes tell) can be unpacked while it comes."""
    return _kind(_once(head)) in _COMPRESSION


def _kind(flow: Flow) -> str | None:
    """Of what begins here; nothing is taken."""
    head = flow.peek(len(END))
    kind = next((kind for magic, kind in _KINDS if head.startswith(magic)), None)
    if kind in MAGIC:
        return f"tar.{kind}" if _holds_tar(flow.peek(_PACKED_HEAD), kind) else kind
    return kind or ("tar" if _is_tar(head if head.strip(b"\0") else flow.peek(_EMPTY_TAR + 1)) else None)


def _holds_tar(packed: bytes, compression: str) -> bool:
    with contextlib.suppress(Exception):
        # Damage is told when it is unpacked; here it only means that no tar is seen.
        return _is_tar(decompressed(_once(packed), compression).peek(_EMPTY_TAR + 1))
    return False


def _once(data: bytes) -> Flow:
    pieces = [data]
    return Flow(lambda: pieces.pop() if pieces else b"")


def _is_tar(head: bytes) -> bool:
    block = head[: len(END)]
    if block == END:
        return len(head) in (2 * len(END), _EMPTY_TAR) and not head.strip(b"\0")
    return len(block) == len(END) and (block[_TAR_MAGIC] == b"ustar" or _parses(block))


def _parses(block: bytes) -> bool:
    """Tars from before POSIX have no magic, but a checksum of the header."""
    try:
        parse(block)
        return True
    except HeaderError:
        return False


def unpack(
    path: Path, folder: Path, *, nested: bool = False, limit_bytes: int | None, stop: Stop, progress: Progress
) -> Unpacked:
    """Everything of the archive stands below the folder, or FailedError says why not.

    `nested`: each tar inside becomes a folder of its name. `progress` gets the bytes unpacked so far
    and an estimate of all, from how much of the archive was read.
    """
    kind = kind_of(path)
    if kind is None:
        raise FailedError(
            "archive_broken", f"{path.name} is no archive that packtrain knows (tar, zip, gz, bz2, xz, 7z, rar)"
        )
    with open(path, "rb", buffering=0) as file:
        flow = of_file(file.fileno())
        with Ground(folder, limit_bytes, path.name, _estimating(progress, flow, path.stat().st_size)) as ground:
            landing = Landing(ground, path.name)
            if kind in FOREIGN:
                unpack_foreign(kind, path, landing, folder, limit_bytes, stop)
            elif kind == "zip":
                unzip(path, landing, stop, _nesting(stop) if nested else None)
            else:
                _unpack_flow(flow, kind, landing, nested, stop)
        return Unpacked(ground.files, ground.room.taken)


def unpack_stream(
    reader: Reader,
    name: str,
    folder: Path,
    *,
    nested: bool = False,
    limit_bytes: int | None,
    stop: Stop,
    progress: Progress,
) -> Unpacked:
    """Like `unpack`, of an archive that is on its way: read once, to its end, and never on the disk.

    Only what `can_stream` says can; anything else is `archive_broken`. `name` is the archive's.
    """
    flow = of_reader(reader)
    kind = _kind(flow)
    if kind not in _COMPRESSION:
        raise FailedError("archive_broken", f"{name} is no archive that packtrain can unpack while it comes")
    with Ground(folder, limit_bytes, name, lambda taken: progress(taken, None)) as ground:
        _unpack_flow(flow, kind, Landing(ground, name), nested, stop)
    return Unpacked(ground.files, ground.room.taken)


def _unpack_flow(flow: Flow, kind: str, landing: Landing, nested: bool, stop: Stop) -> None:
    plain = decompressed(flow, _COMPRESSION[kind])
    if kind.startswith("tar"):
        untar(plain, landing, stop, _nesting(stop) if nested else None)
    else:
        with reading(landing.archive):
            landing.file(_bare(landing.archive), False, plain)
    while len(flow.some()):  # whoever sends it has his checksum at the very end, too
        stop()


def _nesting(stop: Stop) -> LandFile:
    """Tars inside become folders, as they are read."""

    def land(landing: Landing, name: str, executable: bool, data: Flow) -> None:
        kind = None if left_alone(name) else _kind(data)
        if kind is None or not kind.startswith("tar"):
            landing.file(name, executable, data)
            return
        folder, slash, last = name.rpartition("/")
        inner = landing.within(folder + slash + _bare(last), f"{last} in {landing.archive}")
        untar(decompressed(data, _COMPRESSION[kind]), inner, stop)

    return land


def _estimating(progress: Progress, flow: Flow, size: int) -> Callable[[int], None]:
    def wrote(taken: int) -> None:
        read = flow.position
        progress(taken, taken * size // read if read else None)

    return wrote


def _bare(name: str) -> str:
    """The name without what tells the packing; never the same name."""
    suffix = next((suffix for suffix in _SUFFIXES if name.lower().endswith(suffix) and name.lower() != suffix), None)
    return name[: -len(suffix)] if suffix else f"{name}.unpacked"
