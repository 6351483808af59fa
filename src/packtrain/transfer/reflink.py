"""Copies of files that share their blocks where the file system can (btrfs, XFS, ZFS), else plain copies."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from packtrain.errors import FailedError

_FICLONE = 0x40049409
_BLOCK = 16 << 20
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def clone(source: Path, target: Path, stop: Callable[[], None]) -> None:
    """A file of its own at `target`, complete or not there. Raises FileNotFoundError if there is no source."""
    temporary = target.with_name(target.name + ".part")
    with open(source, "rb", buffering=0) as old:
        try:
            with open(temporary, "wb", buffering=0) as new:
                if not _reflinked(old.fileno(), new.fileno()):
                    _copied(old.fileno(), new.fileno(), stop)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise FailedError("disk_full", f"{target.name} cannot be copied: {error.strerror}") from error
            raise
    temporary.replace(target)


def _reflinked(old: int, new: int) -> bool:
    try:
        fcntl.ioctl(new, _FICLONE, old)
        return True
    except OSError:
        return False


def _copied(old: int, new: int, stop: Callable[[], None]) -> None:
    """In the kernel where it can: from one file system to another it could not before Linux 5.3."""
    try:
        while os.copy_file_range(old, new, _BLOCK):
            stop()
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
        os.lseek(old, 0, os.SEEK_SET)
        os.lseek(new, 0, os.SEEK_SET)
        while os.sendfile(new, old, None, _BLOCK):
            stop()
