"""Who runs an attempt: the process that made its claim file, and no other.

The lock tells from outside whether the agent or its guard still lives; the file alone tells that
somebody once started. It appears already locked, so that nobody finds it free while its maker lives.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path


def take(path: Path) -> int | None:
    """The locked file's descriptor, to be kept open; None if somebody was here before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = path.with_name(f"{path.name}.{os.uname().nodename}.{os.getpid()}")
    claim = os.open(mine, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
    with suppress(OSError):  # a file system without locks: the probe says so
        fcntl.flock(claim, fcntl.LOCK_EX)
    os.write(claim, f"{os.getpid()} {os.uname().nodename}\n".encode())
    won = _put_in_place(mine, path)
    mine.unlink(missing_ok=True)
    if not won:
        os.close(claim)
    return claim if won else None


def _put_in_place(mine: Path, path: Path) -> bool:
    """False if somebody was here before."""
    try:
        os.link(mine, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links, e.g. AFS across folders or some FUSE ones
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o644))
        except FileExistsError:
            return False
        mine.replace(path)
    return True
