"""Unpacks an archive into a folder, safely. What a file is, its content tells, not its name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from packtrain.errors import FailedError
from packtrain.transfer.archive.byte_stream import ByteStream, ViewReader, stream_from_fd, stream_from_reader
from packtrain.transfer.archive.decompress import COMPRESSION_MAGIC, decompress
from packtrain.transfer.archive.external_tools import EXTERNAL_FORMATS, extract_with_tool
from packtrain.transfer.archive.extract_dir import ExtractDir
from packtrain.transfer.archive.extract_tar import MemberHandler, extract_tar, map_archive_errors
from packtrain.transfer.archive.extract_zip import extract_zip
from packtrain.transfer.archive.safe_extractor import SafeExtractor
from packtrain.transfer.archive.tar_header import END_BLOCK, TarHeaderError, parse_header

CancelCheck = Callable[[], None]
ProgressCallback = Callable[[int, Optional[int]], None]

_FORMAT_BY_MAGIC = (
    *((magic, kind) for kind, magic in COMPRESSION_MAGIC.items()),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
)
_COMPRESSION_BY_FORMAT = {
    "tar": "",
    **{kind: kind for kind in COMPRESSION_MAGIC},
    **{f"tar.{kind}": kind for kind in COMPRESSION_MAGIC},
}
# Zip files by content, but data to those who use them.
_NEVER_UNPACKED_SUFFIXES = (
    ".npz",
    ".pt",
    ".pth",
    ".ckpt",
    ".keras",
    ".whl",
    ".jar",
    ".docx",
    ".xlsx",
    ".pptx",
    ".epub",
)
_ARCHIVE_SUFFIXES = (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", ".tbz2", ".tbz", ".txz", ".tar", ".gz", ".bz2", ".xz")
_EMPTY_TAR_BYTES = 10240  # two blocks of zeros, padded to a record
_TAR_MAGIC_SLICE = slice(257, 262)
_PEEK_BYTES = 1 << 20  # a block of bz2, of which nothing can be read before all of it is there


@dataclass(frozen=True)
class UnpackResult:
    files: int
    bytes: int


def detect_format(path: Path) -> str | None:
    """tar, tar.gz, tar.bz2, tar.xz, zip, gz, bz2, xz, 7z, rar; None for what is left as it is."""
    if is_never_unpacked(path.name):
        return None
    with open(path, "rb") as file:
        return _detect_stream_format(stream_from_fd(file.fileno()))


def is_never_unpacked(name: str) -> bool:
    """Whether a file of this name is data, even where it is an archive by its content."""
    return name.lower().endswith(_NEVER_UNPACKED_SUFFIXES)


def can_stream(head: bytes) -> bool:
    """Whether what begins so (512 bytes tell) can be unpacked while it comes."""
    return _detect_stream_format(_stream_from_bytes(head)) in _COMPRESSION_BY_FORMAT


def _detect_stream_format(stream: ByteStream) -> str | None:
    """Of what begins here; nothing is taken."""
    head = stream.peek(len(END_BLOCK))
    kind = next((kind for magic, kind in _FORMAT_BY_MAGIC if head.startswith(magic)), None)
    if kind in COMPRESSION_MAGIC:
        return f"tar.{kind}" if _contains_tar(stream.peek(_PEEK_BYTES), kind) else kind
    return kind or ("tar" if _is_tar(head if head.strip(b"\0") else stream.peek(_EMPTY_TAR_BYTES + 1)) else None)


def _contains_tar(head: bytes, compression: str) -> bool:
    with contextlib.suppress(Exception):
        # Damage is told when it is unpacked; here it only means that no tar is seen.
        return _is_tar(decompress(_stream_from_bytes(head), compression).peek(_EMPTY_TAR_BYTES + 1))
    return False


def _stream_from_bytes(data: bytes) -> ByteStream:
    pieces = [data]
    return ByteStream(lambda: pieces.pop() if pieces else b"")


def _is_tar(head: bytes) -> bool:
    block = head[: len(END_BLOCK)]
    if block == END_BLOCK:
        return len(head) in (2 * len(END_BLOCK), _EMPTY_TAR_BYTES) and not head.strip(b"\0")
    return len(block) == len(END_BLOCK) and (block[_TAR_MAGIC_SLICE] == b"ustar" or _is_tar_header(block))


def _is_tar_header(block: bytes) -> bool:
    """Tars from before POSIX have no magic, but a checksum of the header."""
    try:
        parse_header(block)
        return True
    except TarHeaderError:
        return False


def unpack(
    path: Path,
    folder: Path,
    *,
    nested: bool = False,
    max_bytes: int | None,
    check_cancelled: CancelCheck,
    on_progress: ProgressCallback,
) -> UnpackResult:
    """Everything of the archive stands below the folder, or FailedError says why not.

    `nested`: each tar inside becomes a folder of its name. `progress` gets the bytes unpacked so far
    and an estimate of all, from how much of the archive was read.
    """
    kind = detect_format(path)
    if kind is None:
        raise FailedError(
            "archive_broken", f"{path.name} is no archive that packtrain knows (tar, zip, gz, bz2, xz, 7z, rar)"
        )
    with open(path, "rb", buffering=0) as file:
        flow = stream_from_fd(file.fileno())
        with ExtractDir(
            folder, max_bytes, path.name, _with_estimated_total(on_progress, flow, path.stat().st_size)
        ) as ground:
            landing = SafeExtractor(ground, path.name)
            if kind in EXTERNAL_FORMATS:
                extract_with_tool(kind, path, landing, folder, max_bytes, check_cancelled)
            elif kind == "zip":
                extract_zip(
                    path, landing, check_cancelled, _make_nested_tar_handler(check_cancelled) if nested else None
                )
            else:
                _unpack_byte_stream(flow, kind, landing, nested, check_cancelled)
        return UnpackResult(ground.n_files, ground.space_budget.used_bytes)


def unpack_stream(
    reader: ViewReader,
    archive_name: str,
    folder: Path,
    *,
    nested: bool = False,
    max_bytes: int | None,
    check_cancelled: CancelCheck,
    on_progress: ProgressCallback,
) -> UnpackResult:
    """Like `unpack`, of an archive that is on its way: read once, to its end, and never on the disk.

    Only what `can_stream` says can; anything else is `archive_broken`. `name` is the archive's.
    """
    flow = stream_from_reader(reader)
    kind = _detect_stream_format(flow)
    if kind not in _COMPRESSION_BY_FORMAT:
        raise FailedError("archive_broken", f"{archive_name} is no archive that packtrain can unpack while it comes")
    with ExtractDir(folder, max_bytes, archive_name, lambda taken: on_progress(taken, None)) as ground:
        _unpack_byte_stream(flow, kind, SafeExtractor(ground, archive_name), nested, check_cancelled)
    return UnpackResult(ground.n_files, ground.space_budget.used_bytes)


def _unpack_byte_stream(
    stream: ByteStream, archive_format: str, extractor: SafeExtractor, nested: bool, check_cancelled: CancelCheck
) -> None:
    plain = decompress(stream, _COMPRESSION_BY_FORMAT[archive_format])
    if archive_format.startswith("tar"):
        extract_tar(plain, extractor, check_cancelled, _make_nested_tar_handler(check_cancelled) if nested else None)
    else:
        with map_archive_errors(extractor.archive_name):
            extractor.write_file(_strip_archive_suffix(extractor.archive_name), False, plain)
    while len(stream.read_chunk()):  # whoever sends it has his checksum at the very end, too
        check_cancelled()


def _make_nested_tar_handler(check_cancelled: CancelCheck) -> MemberHandler:
    """Tars inside become folders, as they are read."""

    def extract(extractor: SafeExtractor, name: str, is_executable: bool, data: ByteStream) -> None:
        kind = None if is_never_unpacked(name) else _detect_stream_format(data)
        if kind is None or not kind.startswith("tar"):
            extractor.write_file(name, is_executable, data)
            return
        folder, slash, last = name.rpartition("/")
        inner = extractor.nested_extractor(
            folder + slash + _strip_archive_suffix(last), f"{last} in {extractor.archive_name}"
        )
        extract_tar(decompress(data, _COMPRESSION_BY_FORMAT[kind]), inner, check_cancelled)

    return extract


def _with_estimated_total(
    on_progress: ProgressCallback, stream: ByteStream, archive_bytes: int
) -> Callable[[int], None]:
    def on_written(written_bytes: int) -> None:
        read = stream.position
        on_progress(written_bytes, written_bytes * archive_bytes // read if read else None)

    return on_written


def _strip_archive_suffix(name: str) -> str:
    """The name without what tells the packing; never the same name."""
    suffix = next(
        (suffix for suffix in _ARCHIVE_SUFFIXES if name.lower().endswith(suffix) and name.lower() != suffix), None
    )
    return name[: -len(suffix)] if suffix else f"{name}.unpacked"
