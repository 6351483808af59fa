"""A file that one process at a time writes: it is locked for as long as it is open.

The lock goes with the process, however that ends. A file system without locks is written nevertheless: there `is_at`
tells before the end whether the file is still ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


def open_locked(path: Path, create: bool) -> int | None:
    """The file, opened and ours; None if there is none. Raises BlockingIOError where another process has it."""
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    while True:
        try:
            file = os.open(path, flags, 0o666)
        except FileNotFoundError:
            if create:
                raise
            return None
        if _lock_if_current(file, path):
            return file


def _lock_if_current(fd: int, path: Path) -> bool:
    """Else it is closed: who had it may have given it its name, or removed it, before we got the lock."""
    ours = False
    try:
        _lock_exclusive(fd)
        ours = is_same_file(fd, path)
        return ours
    finally:
        if not ours:
            os.close(fd)


def _lock_exclusive(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass


def unlock_and_close(fd: int) -> None:
    """Closed would do, but for a process that is just being started: it has the file, too, until its program runs."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def is_same_file(fd: int, path: Path) -> bool:
    """Whether the open file is the one that stands there."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), path.stat())
    return False
