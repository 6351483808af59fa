"""Read tar archives to their end; any error becomes a FailedError with a clear message."""

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
    """Open a tar archive in a `with` block.

    Raises FailedError (unexpected_content) with `error_text`, also for a ValueError inside the block.
    """
    try:
        with tarfile.open(archive) as tar:
            yield tar
            while tar.fileobj and tar.fileobj.read(_BLOCK_BYTES):  # the checksum of a compressed file is at its end
                pass
    except _READ_ERRORS as error:
        raise FailedError("unexpected_content", f"{archive} {error_text}: {error}") from error


def open_member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    """Return a member as a file. Raises ValueError if there is none."""
    try:
        file = tar.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise ValueError(f"it has no file {name}")
    return file
