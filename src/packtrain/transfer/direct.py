"""Bytes from a connection into a file that never pass through this program: the kernel moves them, through a pipe.

That halves what a download costs. It needs Linux, Python 3.10, a connection without TLS, and nobody who wants to see
the bytes before they are written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from typing import Any

_splice: Any = getattr(os, "splice", None)
_SET_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 1031)
_NOT_FOR_THE_PIPE = 2  # SPLICE_F_NONBLOCK, which Python names from 3.12 on
_SIZE = 1 << 20  # as much as an ordinary user may have
_CARRIED_AT_ONCE = 1 << 18
# Of a file system that cannot, a kernel that has no such call (gVisor), a sandbox that forbids it.
_REFUSALS = frozenset({errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP})
_refused = threading.Event()


def possible() -> bool:
    """Until the kernel has refused once, be it for one file: what passes through memory is as right."""
    return _splice is not None and not _refused.is_set()


def give_up(error: OSError) -> None:
    """No more of this in the process, if the error says that it cannot be; any other is raised."""
    if error.errno not in _REFUSALS:
        raise error
    _refused.set()


class Pipe:
    """Between one connection and one file."""

    def __init__(self) -> None:
        self.exit, self.entry = os.pipe()
        os.set_blocking(self.entry, False)  # nobody reads while we write: what does not fit is written later
        with contextlib.suppress(OSError):  # a user with very many of them gets smaller ones, which are slower only
            fcntl.fcntl(self.entry, _SET_SIZE, _SIZE)

    def close(self) -> None:
        os.close(self.exit)
        os.close(self.entry)


def into_pipe(connection: int, pipe: int, most: int) -> int:
    """Some bytes; 0 when the other side has closed. Waits as a read of the connection does, but not for a full pipe."""
    moved: int = _splice(connection, pipe, most, flags=_NOT_FOR_THE_PIPE)
    return moved


def into_file(pipe: int, file: int, position: int, count: int) -> None:
    while count:
        try:
            moved = _splice(pipe, file, count, offset_dst=position)
        except OSError as error:
            give_up(error)
            moved = _carried(pipe, file, position, count)
        position, count = position + moved, count - moved


def _carried(pipe: int, file: int, position: int, count: int) -> int:
    """What is in the pipe already, through memory."""
    data = memoryview(os.read(pipe, min(count, _CARRIED_AT_ONCE)))
    moved = 0
    while moved < len(data):
        moved += os.pwrite(file, data[moved:], position + moved)
    return moved
