"""Tar archives of others, read to their end: whatever is wrong with one becomes a sentence."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from packtrain.errors import FailedError

_UNREADABLE = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError)
_BLOCK = 1 << 20


@contextmanager
def reading(archive: Path, otherwise: str) -> Iterator[tarfile.TarFile]:
    """Raises FailedError: not_the_data, with the words `otherwise`, also for a ValueError from inside."""
    try:
        with tarfile.open(archive) as tar:
            yield tar
            while tar.fileobj and tar.fileobj.read(_BLOCK):  # a compressed file has its checksum at the very end
                pass
    except _UNREADABLE as error:
        raise FailedError("not_the_data", f"{archive} {otherwise}: {error}") from error


def member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    """Raises ValueError if there is no such file."""
    try:
        file = tar.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise ValueError(f"it has no file {name}")
    return file
