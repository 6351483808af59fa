"""A file that one process at a time writes: it is locked for as long as it is open.

The lock goes with the process, however that ends. A file system without locks is written nevertheless: there `is_at`
tells before the end whether the file is still ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


def held(path: Path, create: bool) -> int | None:
    """The file, opened and ours; None if there is none. Raises BlockingIOError where another process has it."""
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    while True:
        try:
            file = os.open(path, flags, 0o666)
        except FileNotFoundError:
            if create:
                raise
            return None
        if _is_ours(file, path):
            return file


def _is_ours(file: int, path: Path) -> bool:
    """Else it is closed: who had it may have given it its name, or removed it, before we got the lock."""
    ours = False
    try:
        _lock(file)
        ours = is_at(file, path)
        return ours
    finally:
        if not ours:
            os.close(file)


def _lock(file: int) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass


def let_go(file: int) -> None:
    """Closed would do, but for a process that is just being started: it has the file, too, until its program runs."""
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


def is_at(file: int, path: Path) -> bool:
    """Whether the open file is the one that stands there."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), path.stat())
    return False
