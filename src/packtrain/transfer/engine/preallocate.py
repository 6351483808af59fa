"""Room on a disk for all of a file, before its first byte comes.

A disk that is too small is told at once, and the kernel need not look for room with every page that is written: a quick
download takes a fifth less. Asked of the kernel itself, since `os.posix_fallocate` writes into every block of a file
system that cannot do it (ext3, vfat), which takes as long as the download.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys

MIN_PREALLOCATED_BYTES = 64 << 20  # bytes: for less it is not worth the loading of `ctypes`
# There is no such call, or not for this file system, or it is forbidden here: what is written takes its room by itself.
_UNSUPPORTED_ERRNOS = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ENODEV})


def preallocate(fd: int, size: int) -> None:
    """Raises OSError where the disk has not that much."""
    if size < MIN_PREALLOCATED_BYTES or sys.maxsize < 1 << 32 or not _is_on_local_disk(fd):
        return
    error = errno.EINTR
    while error == errno.EINTR:
        error = _fallocate(fd, size)
    if error and error not in _UNSUPPORTED_ERRNOS:
        raise OSError(error, os.strerror(error))


def _is_on_local_disk(fd: int) -> bool:
    """Memory (tmpfs) would be filled with zeros; of file systems elsewhere nobody knows what it costs them."""
    return os.major(os.fstat(fd).st_dev) != 0


def _fallocate(fd: int, size: int) -> int:
    """The error's number, 0 for none."""
    with contextlib.suppress(ImportError, AttributeError):  # a Python or a C library without it
        import ctypes

        call = ctypes.CDLL(None, use_errno=True).fallocate
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
        return ctypes.get_errno() if call(fd, 0, 0, size) else 0
    return errno.ENOSYS
