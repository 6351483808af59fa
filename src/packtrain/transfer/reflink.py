"""Copies of files that share their blocks where the file system can (btrfs, XFS, ZFS), and plain copies elsewhere."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.fileutil import DISK_FULL_ERRNOS, atomic_writer
from packtrain.transfer.tasks.cancellation import CancelCheck

_FICLONE = 0x40049409
_COPY_BYTES = 16 << 20


def clone_file(source: Path, target: Path, check_cancelled: CancelCheck) -> None:
    """Copy a file; `target` appears only when the copy is complete.

    Raises:
        FileNotFoundError: `source` does not exist.
        FailedError: The disk is full ("disk_full").
    """
    with open(source, "rb", buffering=0) as old:
        try:
            with atomic_writer(target) as new:
                if not _try_reflink(old.fileno(), new.fileno()):
                    _copy_contents(old.fileno(), new.fileno(), check_cancelled)
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS:
                raise FailedError("disk_full", f"{target.name} cannot be copied: {error.strerror}") from error
            raise


def _try_reflink(source_fd: int, target_fd: int) -> bool:
    try:
        fcntl.ioctl(target_fd, _FICLONE, source_fd)
        return True
    except OSError:
        return False


def _copy_contents(source_fd: int, target_fd: int, check_cancelled: CancelCheck) -> None:
    """Copy with copy_file_range, or with sendfile where that fails: before Linux 5.3 it needed one file system."""
    try:
        while os.copy_file_range(source_fd, target_fd, _COPY_BYTES):
            check_cancelled()
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            raise
        os.lseek(source_fd, 0, os.SEEK_SET)
        os.lseek(target_fd, 0, os.SEEK_SET)
        while os.sendfile(target_fd, source_fd, None, _COPY_BYTES):
            check_cancelled()
