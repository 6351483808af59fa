"""Zip archives, zip64 too."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import FailedError
from packtrain.transfer.archive.byte_stream import CHUNK_BYTES, ByteStream
from packtrain.transfer.archive.extract_tar import MemberHandler, map_archive_errors
from packtrain.transfer.archive.safe_extractor import SafeExtractor

if TYPE_CHECKING:
    import zipfile

_ENCRYPTED_FLAG = 0x1
_MAX_LINK_BYTES = 4096


def extract_zip(
    path: Path, extractor: SafeExtractor, check_cancelled: Callable[[], None], handle_file: MemberHandler = None
) -> None:
    import zipfile

    archive = extractor.archive_name
    try:
        with map_archive_errors(archive), zipfile.ZipFile(path) as file:
            for member in file.infolist():
                check_cancelled()
                _extract_member(file, member, extractor, check_cancelled, handle_file)
    except zipfile.BadZipFile as error:
        raise _to_archive_error(archive, error) from error
    except NotImplementedError as error:
        raise FailedError("archive_broken", f"{archive} is compressed in a way that cannot be read: {error}") from error


def _to_archive_error(archive_name: str, error: Exception) -> FailedError:
    """The directory of a zip file stands at its end."""
    if "not a zip file" in str(error):
        return FailedError("truncated", f"{archive_name} has no directory at its end: it was cut")
    return FailedError("archive_broken", f"{archive_name} cannot be read: {error}")


def _extract_member(
    file: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    extractor: SafeExtractor,
    check_cancelled: Callable[[], None],
    handle_file: MemberHandler,
) -> None:
    name, mode = member.filename, member.external_attr >> 16
    if member.flag_bits & _ENCRYPTED_FLAG:
        raise FailedError("archive_broken", f"the member {name!r} of {extractor.archive_name} is encrypted")
    if member.is_dir():
        extractor.make_folder(name)
    elif stat.S_ISLNK(mode):
        with file.open(member) as data:
            extractor.make_symlink(name, data.read(_MAX_LINK_BYTES).decode("utf-8", "surrogateescape"))
    elif stat.S_IFMT(mode) in (0, stat.S_IFREG):
        _extract_file(file, member, extractor, check_cancelled, handle_file)
    else:
        extractor.reject(name, "a device or pipe")


def _extract_file(
    file: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    extractor: SafeExtractor,
    check_cancelled: Callable[[], None],
    handle_file: MemberHandler,
) -> None:
    executable = bool(member.external_attr >> 16 & 0o100)
    with file.open(member) as data:

        def read_next() -> bytes:
            check_cancelled()
            return data.read(CHUNK_BYTES)

        flow = ByteStream(read_next)
        if handle_file:
            handle_file(extractor, member.filename, executable, flow)
        else:
            extractor.write_file(member.filename, executable, flow)
        flow.drain()  # the checksum is compared at the end
