"""Helpers for files and disks: exclusive locks on open files, and free space.

A locked file is written by one process at a time. The lock belongs to the open file, so the kernel drops it when the
process ends for whatever reason. On a file system without locks, files are written unlocked; there `is_same_file`
detects that another process replaced the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def open_locked(path: Path, create: bool) -> int | None:
    """Open a file for reading and writing and lock it.

    Returns:
        The file descriptor, or None if the file does not exist and `create` is false.

    Raises:
        BlockingIOError: Another process holds the lock.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    while True:
        try:
            fd = os.open(path, flags, 0o666)
        except FileNotFoundError:
            if create:
                raise
            return None
        if _lock_if_current(fd, path):
            return fd


def _lock_if_current(fd: int, path: Path) -> bool:
    """Lock the file, or close it if `path` is another file by now.

    The previous holder of the lock may have renamed or removed the file before it released the lock.
    """
    is_current = False
    try:
        _lock_exclusive(fd)
        is_current = is_same_file(fd, path)
        return is_current
    finally:
        if not is_current:
            os.close(fd)


def _lock_exclusive(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # a file system without locks


def unlock_and_close(fd: int) -> None:
    """Release the lock and close the file.

    Closing alone is not enough while a child process is being started: it shares the open file until it executes its
    program.
    """
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def is_same_file(fd: int, path: Path) -> bool:
    """Return whether `path` exists and is the file that is open as `fd`."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), path.stat())
    return False


def free_bytes(folder: Path) -> int:
    """Return the bytes free for this user on the disk of `folder`, which need not exist yet."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    disk = os.statvfs(existing)
    return disk.f_bavail * disk.f_frsize
