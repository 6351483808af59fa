"""Helpers for files and disks: atomic writes, exclusive locks on open files, free space, and folders for sockets.

A file that is written atomically is complete or absent under its name: readers never see a part of it, and a process
that is killed leaves the old content and perhaps a temporary file beside it.

A locked file is written by one process at a time. The lock belongs to the open file, so the kernel drops it when the
process ends for whatever reason. On a file system without locks, files are written unlocked; there `is_same_file`
detects that another process replaced the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_MAX_SOCKET_FOLDER_BYTES = 107 - len("/pymp-xxxxxxxx/listener-xxxxxxxx")  # a socket's path has at most 107 bytes
_TEMPORARY_MARK = ".tmp-"  # training programs use it for their own temporary files, too (docs/how-to/checkpoints.md)


def atomic_write(path: Path, content: str | bytes, *, durable: bool = False, mode: int = 0o666) -> None:
    """Write a file so that it has either its old or its new content.

    Args:
        path: The file; its folder must exist.
        content: Text is written as UTF-8.
        durable: Return only after the content and the name are on the disk, so that they survive a power cut.
        mode: The permissions of a new file, before the umask.
    """
    with atomic_writer(path, durable=durable, mode=mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def atomic_writer(path: Path, *, durable: bool = False, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends, and is removed if the block raises."""
    temporary = temporary_path(path)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def temporary_path(path: Path) -> Path:
    """Return an unused hidden name in the same folder, for a file or folder that is renamed to `path` when complete."""
    return path.with_name(f".{path.name[-200:]}{_TEMPORARY_MARK}{os.getpid()}-{os.urandom(4).hex()}")


def is_temporary_name(name: str) -> bool:
    """Return whether a name or path names a file that is still being written: `.NAME.tmp-…`."""
    last_part = name.rpartition("/")[2]
    return last_part.startswith(".") and _TEMPORARY_MARK in last_part


def sync_folder(folder: Path) -> None:
    """Make new and renamed entries of a folder survive a power cut, if its file system can."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(fd)


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
        lock_exclusive(fd)
        is_current = is_same_file(fd, path)
        return is_current
    finally:
        if not is_current:
            os.close(fd)


def lock_exclusive(fd: int) -> None:
    """Lock an open file, or do nothing on a file system without locks. Raises BlockingIOError if it is locked."""
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


def can_hold_sockets(folder: str) -> bool:
    """Return whether multiprocessing can create its sockets in a temporary folder, or the path is too long for them.

    The scratch folder that HTCondor names in TMPDIR often is too deep. PyTorch's data loaders then hang silently.
    """
    return len(os.fsencode(folder)) <= _MAX_SOCKET_FOLDER_BYTES
