"""Zip archives, zip64 too."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import FailedError
from packtrain.transfer.archive.byte_stream import BLOCK, Flow
from packtrain.transfer.archive.extract_tar import LandFile, reading
from packtrain.transfer.archive.safe_extractor import Landing

if TYPE_CHECKING:
    import zipfile

_ENCRYPTED = 0x1
_LONGEST_LINK = 4096


def unzip(path: Path, landing: Landing, stop: Callable[[], None], land_file: LandFile = None) -> None:
    import zipfile

    archive = landing.archive
    try:
        with reading(archive), zipfile.ZipFile(path) as file:
            for member in file.infolist():
                stop()
                _land(file, member, landing, stop, land_file)
    except zipfile.BadZipFile as error:
        raise _damage(archive, error) from error
    except NotImplementedError as error:
        raise FailedError("archive_broken", f"{archive} is compressed in a way that cannot be read: {error}") from error


def _damage(archive: str, error: Exception) -> FailedError:
    """The directory of a zip file stands at its end."""
    if "not a zip file" in str(error):
        return FailedError("truncated", f"{archive} has no directory at its end: it was cut")
    return FailedError("archive_broken", f"{archive} cannot be read: {error}")


def _land(
    file: zipfile.ZipFile, member: zipfile.ZipInfo, landing: Landing, stop: Callable[[], None], land_file: LandFile
) -> None:
    name, mode = member.filename, member.external_attr >> 16
    if member.flag_bits & _ENCRYPTED:
        raise FailedError("archive_broken", f"the member {name!r} of {landing.archive} is encrypted")
    if member.is_dir():
        landing.folder(name)
    elif stat.S_ISLNK(mode):
        with file.open(member) as data:
            landing.symlink(name, data.read(_LONGEST_LINK).decode("utf-8", "surrogateescape"))
    elif stat.S_IFMT(mode) in (0, stat.S_IFREG):
        _land_file(file, member, landing, stop, land_file)
    else:
        landing.refuse(name, "a device or pipe")


def _land_file(
    file: zipfile.ZipFile, member: zipfile.ZipInfo, landing: Landing, stop: Callable[[], None], land_file: LandFile
) -> None:
    executable = bool(member.external_attr >> 16 & 0o100)
    with file.open(member) as data:

        def more() -> bytes:
            stop()
            return data.read(BLOCK)

        flow = Flow(more)
        if land_file:
            land_file(landing, member.filename, executable, flow)
        else:
            landing.file(member.filename, executable, flow)
        flow.drain()  # the checksum is compared at the end
