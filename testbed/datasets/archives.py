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

_READ_ERRORS = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError)
_BLOCK_BYTES = 1 << 20


@contextmanager
def open_tar(archive: Path, error_text: str) -> Iterator[tarfile.TarFile]:
    """Raises FailedError: unexpected_content, with the words `otherwise`, also for a ValueError from inside."""
    try:
        with tarfile.open(archive) as tar:
            yield tar
            while tar.fileobj and tar.fileobj.read(_BLOCK_BYTES):  # a compressed file has its checksum at the very end
                pass
    except _READ_ERRORS as error:
        raise FailedError("unexpected_content", f"{archive} {error_text}: {error}") from error


def open_member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    """Raises ValueError if there is no such file."""
    try:
        file = tar.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise ValueError(f"it has no file {name}")
    return file
