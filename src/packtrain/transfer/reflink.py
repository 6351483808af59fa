"""Copies of files that share their blocks where the file system can (btrfs, XFS, ZFS), else plain copies."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from packtrain.errors import FailedError

_FICLONE = 0x40049409
_COPY_BYTES = 16 << 20
_DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def clone_file(source: Path, target: Path, check_cancelled: Callable[[], None]) -> None:
    """A file of its own at `target`, complete or not there. Raises FileNotFoundError if there is no source."""
    temporary = target.with_name(target.name + ".part")
    with open(source, "rb", buffering=0) as old:
        try:
            with open(temporary, "wb", buffering=0) as new:
                if not _try_reflink(old.fileno(), new.fileno()):
                    _copy_contents(old.fileno(), new.fileno(), check_cancelled)
        except OSError as error:
            if error.errno in _DISK_FULL_ERRNOS:
                raise FailedError("disk_full", f"{target.name} cannot be copied: {error.strerror}") from error
            raise
    temporary.replace(target)


def _try_reflink(source_fd: int, target_fd: int) -> bool:
    try:
        fcntl.ioctl(target_fd, _FICLONE, source_fd)
        return True
    except OSError:
        return False


def _copy_contents(source_fd: int, target_fd: int, check_cancelled: Callable[[], None]) -> None:
    """In the kernel where it can: from one file system to another it could not before Linux 5.3."""
    try:
        while os.copy_file_range(source_fd, target_fd, _COPY_BYTES):
            check_cancelled()
    except OSError as error:
        if error.errno in _DISK_FULL_ERRNOS:
            raise
        os.lseek(source_fd, 0, os.SEEK_SET)
        os.lseek(target_fd, 0, os.SEEK_SET)
        while os.sendfile(target_fd, source_fd, None, _COPY_BYTES):
            check_cancelled()
