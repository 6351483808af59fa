"""Zip archives, zip64 too."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from packtrain.errors import FailedError
from packtrain.transfer.landing import Landing, Readable
from packtrain.transfer.untar import reading

if TYPE_CHECKING:
    import zipfile

_ENCRYPTED = 0x1
_LONGEST_LINK = 4096


def unzip(path: Path, archive: str, landing: Landing, landed: Callable[[Path], None], stop: Callable[[], None]) -> None:
    import zipfile

    try:
        with reading(archive), zipfile.ZipFile(path) as file:
            for member in file.infolist():
                stop()
                _land(file, member, archive, landing, landed)
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
    file: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    archive: str,
    landing: Landing,
    landed: Callable[[Path], None],
) -> None:
    mode = member.external_attr >> 16
    if member.flag_bits & _ENCRYPTED:
        raise FailedError("archive_broken", f"the member {member.filename!r} of {archive} is encrypted")
    if member.is_dir():
        landing.folder(member.filename)
    elif stat.S_ISLNK(mode):
        with file.open(member) as data:
            landing.symlink(member.filename, data.read(_LONGEST_LINK).decode("utf-8", "surrogateescape"))
    elif stat.S_IFMT(mode) in (0, stat.S_IFREG):
        with file.open(member) as data:
            landed(landing.file(member.filename, bool(mode & 0o100), cast(Readable, data)))
    else:
        landing.refuse(member.filename, "a device or pipe")
