"""Extract zip archives, including zip64."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import FailedError
from packtrain.transfer.archive.byte_stream import CHUNK_BYTES, ByteStream
from packtrain.transfer.archive.safe_extractor import MemberHandler, SafeExtractor, map_archive_errors
from packtrain.transfer.tasks.cancellation import CancelCheck

if TYPE_CHECKING:
    import zipfile

_ENCRYPTED_FLAG = 0x1
_MAX_LINK_BYTES = 4096


def extract_zip(
    path: Path, extractor: SafeExtractor, check_cancelled: CancelCheck, handle_file: MemberHandler = None
) -> None:
    """Extract a zip archive.

    Args:
        path: The archive.
        extractor: Receives the members.
        check_cancelled: Called for each member and chunk; raises to cancel.
        handle_file: Handles members that are files; None: they are written.

    Raises:
        FailedError: archive_unsafe, archive_broken, archive_too_large, truncated or disk_full.
    """
    with open_zip(path, extractor.archive_name) as archive:
        for member in archive.infolist():
            check_cancelled()
            extract_zip_member(archive, member, extractor, check_cancelled, handle_file)


@contextlib.contextmanager
def open_zip(path: Path, archive_name: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive, and convert the errors that damage causes inside the block to FailedError."""
    import zipfile

    try:
        with map_archive_errors(archive_name), zipfile.ZipFile(path) as archive:
            yield archive
    except zipfile.BadZipFile as error:
        raise _to_archive_error(archive_name, error) from error
    except NotImplementedError as error:
        raise FailedError("archive_broken", f"{archive_name} uses an unsupported compression: {error}") from error


def _to_archive_error(archive_name: str, error: Exception) -> FailedError:
    """Return the error for a damaged zip file; one without the directory at its end is truncated."""
    if "not a zip file" in str(error):
        return FailedError("truncated", f"{archive_name} has no directory at its end; it is truncated")
    return FailedError("archive_broken", f"{archive_name} cannot be read: {error}")


def extract_zip_member(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    extractor: SafeExtractor,
    check_cancelled: CancelCheck,
    handle_file: MemberHandler = None,
) -> None:
    """Extract one member of an open archive. The arguments are those of `extract_zip`."""
    name, mode = member.filename, member.external_attr >> 16
    if member.flag_bits & _ENCRYPTED_FLAG:
        raise FailedError("archive_broken", f"the member {name!r} of {extractor.archive_name} is encrypted")
    if member.is_dir():
        extractor.make_folder(name)
    elif stat.S_ISLNK(mode):
        with archive.open(member) as data:
            extractor.make_symlink(name, data.read(_MAX_LINK_BYTES).decode("utf-8", "surrogateescape"))
    elif stat.S_IFMT(mode) in (0, stat.S_IFREG):
        _extract_file(archive, member, extractor, check_cancelled, handle_file)
    else:
        extractor.reject(name, "a device or pipe")


def _extract_file(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    extractor: SafeExtractor,
    check_cancelled: CancelCheck,
    handle_file: MemberHandler,
) -> None:
    mode = member.external_attr >> 16
    with archive.open(member) as data:

        def read_next() -> bytes:
            check_cancelled()
            return data.read(CHUNK_BYTES)

        stream = ByteStream(read_next)
        if handle_file:
            handle_file(extractor, member.filename, mode, stream)
        else:
            extractor.write_file(member.filename, mode, stream)
        stream.drain()  # zipfile compares the checksum at the end
