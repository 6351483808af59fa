"""Who runs an attempt: the process that made its claim file, and no other.

The lock tells from outside whether the agent or its guard still lives; the file alone tells that
somebody once started. It appears already locked, so that nobody finds it free while its maker lives.

One exception: an agent that left to go on in place (exit code 85) hands the claim on. Whoever gets its lock then, which
is free only when the former holder and its programs are gone, is the next.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_HANDED_OVER = b"handed on\n"


def acquire_claim(path: Path) -> int | None:
    """The locked file's descriptor, to be kept open; None if somebody was here before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = path.with_name(f"{path.name}.{os.uname().nodename}.{os.getpid()}")
    claim = os.open(mine, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
    with suppress(OSError):  # a file system without locks: the probe says so
        fcntl.flock(claim, fcntl.LOCK_EX)
    os.write(claim, _holder_line())
    won = _publish_claim(mine, path)
    mine.unlink(missing_ok=True)
    if won:
        return claim
    os.close(claim)
    return _take_over(path)


def hand_over_claim(claim_fd: int) -> None:
    """The agent goes, and its successor may have the claim."""
    os.write(claim_fd, _HANDED_OVER)


def _take_over(path: Path) -> int | None:
    claim = os.open(path, os.O_RDWR)
    try:
        with _ignore_missing_locks():
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.pread(claim, 1 << 10, 0).endswith(_HANDED_OVER):
            os.ftruncate(claim, 0)
            os.pwrite(claim, _holder_line(), 0)
            os.lseek(claim, 0, os.SEEK_END)
            return claim
    except BlockingIOError:
        pass
    os.close(claim)
    return None


@contextmanager
def _ignore_missing_locks() -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        raise
    except OSError:  # a file system without them: what the file says must do
        pass


def _holder_line() -> bytes:
    return f"{os.getpid()} {os.uname().nodename}\n".encode()


def _publish_claim(own_file: Path, path: Path) -> bool:
    """False if somebody was here before."""
    try:
        os.link(own_file, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links, e.g. AFS across folders or some FUSE ones
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o644))
        except FileExistsError:
            return False
        own_file.replace(path)
    return True
