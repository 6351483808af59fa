"""Unpack an archive into a folder, safely. The format is detected from the content, not from the name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.transfer.archive.byte_stream import (
    ByteStream,
    ViewReader,
    stream_from_bytes,
    stream_from_fd,
    stream_from_reader,
)
from packtrain.transfer.archive.decompress import decompress
from packtrain.transfer.archive.external_tools import EXTERNAL_FORMATS, extract_with_tool
from packtrain.transfer.archive.extract_dir import ExtractDir
from packtrain.transfer.archive.extract_tar import extract_tar
from packtrain.transfer.archive.extract_zip import extract_zip
from packtrain.transfer.archive.formats import (
    COMPRESSIONS,
    FORMATS,
    format_from_magic,
    is_never_unpacked,
    strip_archive_suffix,
)
from packtrain.transfer.archive.safe_extractor import MemberHandler, SafeExtractor, map_archive_errors
from packtrain.transfer.archive.tar_header import END_BLOCK, TarHeaderError, parse_header
from packtrain.transfer.progress import ProgressCallback
from packtrain.transfer.tasks.cancellation import CancelCheck

_COMPRESSION_BY_FORMAT = {
    "tar": "",
    **{compression: compression for compression in COMPRESSIONS},
    **{f"tar.{compression}": compression for compression in COMPRESSIONS},
}
_EMPTY_TAR_BYTES = 10240  # two blocks of zeros, padded to a record of GNU tar
_TAR_MAGIC_SLICE = slice(257, 262)
_PEEK_BYTES = 1 << 20  # contains a complete bz2 block, the smallest unit that can be decompressed


@dataclass(frozen=True)
class UnpackResult:
    """What an archive contained."""

    files: int
    bytes: int


def detect_format(path: Path) -> str | None:
    """Return tar, tar.gz, tar.bz2, tar.xz, zip, gz, bz2, xz, 7z or rar; None for a file that is not unpacked."""
    if is_never_unpacked(path.name):
        return None
    with open(path, "rb") as file:
        return _detect_stream_format(stream_from_fd(file.fileno()))


def can_stream(head: bytes) -> bool:
    """Return whether a file with these first 512 bytes can be unpacked while it downloads."""
    return _detect_stream_format(stream_from_bytes(head)) in _COMPRESSION_BY_FORMAT


def _detect_stream_format(stream: ByteStream) -> str | None:
    """Return the format of a stream without consuming bytes."""
    head = stream.peek(len(END_BLOCK))
    archive_format = format_from_magic(head)
    if archive_format is None:
        is_tar = _is_tar(head if head.strip(b"\0") else stream.peek(_EMPTY_TAR_BYTES + 1))
        return "tar" if is_tar else None
    name = archive_format.name
    if name in COMPRESSIONS:
        return f"tar.{name}" if _contains_tar(stream.peek(_PEEK_BYTES), name) else name
    return name if archive_format.can_unpack else None


def _contains_tar(head: bytes, compression: str) -> bool:
    with contextlib.suppress(Exception):
        # Damage is reported when the archive is unpacked.
        return _is_tar(decompress(stream_from_bytes(head), compression).peek(_EMPTY_TAR_BYTES + 1))
    return False


def _is_tar(head: bytes) -> bool:
    block = head[: len(END_BLOCK)]
    if block == END_BLOCK:
        return len(head) in (2 * len(END_BLOCK), _EMPTY_TAR_BYTES) and not head.strip(b"\0")
    return len(block) == len(END_BLOCK) and (block[_TAR_MAGIC_SLICE] == b"ustar" or _is_tar_header(block))


def _is_tar_header(block: bytes) -> bool:
    """Return whether a block is a tar header; tars from before POSIX have no magic, but a checksum."""
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
    """Unpack an archive into a folder.

    Args:
        path: The archive.
        folder: The target folder, which is created if necessary.
        nested: Unpack each tar inside of the archive to a folder of its name.
        max_bytes: Limit for the unpacked size; None: the free disk space.
        check_cancelled: Called for each member and chunk; raises to cancel.
        on_progress: Receives the bytes unpacked so far, and an estimate of the total from the part of the archive that
            was read.

    Raises:
        FailedError: archive_unsafe, archive_broken, archive_too_large, truncated or disk_full.
    """
    archive_format = detect_format(path)
    if archive_format is None:
        supported = ", ".join(one.name for one in FORMATS if one.can_unpack)
        raise FailedError("archive_broken", f"{path.name} is not an archive that packtrain supports ({supported})")
    with open(path, "rb", buffering=0) as file:
        stream = stream_from_fd(file.fileno())
        on_written = _with_estimated_total(on_progress, stream, path.stat().st_size)
        with ExtractDir(folder, max_bytes, path.name, on_written) as extract_dir:
            extractor = SafeExtractor(extract_dir, path.name)
            if archive_format in EXTERNAL_FORMATS:
                extract_with_tool(archive_format, path, extractor, folder, max_bytes, check_cancelled)
            elif archive_format == "zip":
                handle_file = _make_nested_tar_handler(check_cancelled) if nested else None
                extract_zip(path, extractor, check_cancelled, handle_file)
            else:
                _unpack_byte_stream(stream, archive_format, extractor, nested, check_cancelled)
        return UnpackResult(extract_dir.n_files, extract_dir.space_budget.used_bytes)


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
    """Unpack an archive while it downloads, without storing it on disk.

    The arguments are those of `unpack`, except for these:

    Args:
        reader: The download, which is read once to its end.
        archive_name: The name of the archive, for messages and for the name of a single compressed file.

    Raises:
        FailedError: As `unpack`; also archive_broken for a format that `can_stream` rejects.
    """
    stream = stream_from_reader(reader)
    archive_format = _detect_stream_format(stream)
    if archive_format not in _COMPRESSION_BY_FORMAT:
        detail = f"{archive_name} is not an archive that packtrain can unpack while it downloads"
        raise FailedError("archive_broken", detail)
    with ExtractDir(folder, max_bytes, archive_name, lambda n_bytes: on_progress(n_bytes, None)) as extract_dir:
        extractor = SafeExtractor(extract_dir, archive_name)
        _unpack_byte_stream(stream, archive_format, extractor, nested, check_cancelled)
    return UnpackResult(extract_dir.n_files, extract_dir.space_budget.used_bytes)


def _unpack_byte_stream(
    stream: ByteStream, archive_format: str, extractor: SafeExtractor, nested: bool, check_cancelled: CancelCheck
) -> None:
    decompressed = decompress(stream, _COMPRESSION_BY_FORMAT[archive_format])
    if archive_format.startswith("tar"):
        handle_file = _make_nested_tar_handler(check_cancelled) if nested else None
        extract_tar(decompressed, extractor, check_cancelled, handle_file)
    else:
        with map_archive_errors(extractor.archive_name):
            extractor.write_file(strip_archive_suffix(extractor.archive_name), 0, decompressed)
    while len(stream.read_chunk()):  # the download is verified at its very end
        check_cancelled()


def _make_nested_tar_handler(check_cancelled: CancelCheck) -> MemberHandler:
    """Return a handler that extracts each tar inside of an archive to a folder of its name."""

    def extract(extractor: SafeExtractor, name: str, mode: int, data: ByteStream) -> None:
        archive_format = None if is_never_unpacked(name) else _detect_stream_format(data)
        if archive_format is None or not archive_format.startswith("tar"):
            extractor.write_file(name, mode, data)
            return
        folder, slash, last = name.rpartition("/")
        nested_extractor = extractor.nested_extractor(
            folder + slash + strip_archive_suffix(last), f"{last} in {extractor.archive_name}"
        )
        extract_tar(decompress(data, _COMPRESSION_BY_FORMAT[archive_format]), nested_extractor, check_cancelled)

    return extract


def _with_estimated_total(
    on_progress: ProgressCallback, stream: ByteStream, archive_bytes: int
) -> Callable[[int], None]:
    def on_written(written_bytes: int) -> None:
        read_bytes = stream.position
        on_progress(written_bytes, written_bytes * archive_bytes // read_bytes if read_bytes else None)

    return on_written
