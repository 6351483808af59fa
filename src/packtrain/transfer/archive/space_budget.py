"""Limits for an archive: the bytes it may take, the number of files, and the free space and inodes of the disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from packtrain.errors import FailedError

_RESERVED_BYTES = 1 << 20  # always left free on the disk
_RESERVED_INODES = 16
_CLUSTER_BYTES = 4096  # disk space of a small file
_MIN_FILE_LIMIT = 1_000_000
_MAX_UNCHECKED_BYTES = 64 << 20  # between two checks of the disk; less if little is free
_FREE_SPACE_DIVISOR = 4  # free space / this may be used between two checks, since others write too


class SpaceBudget:
    """Counts what an archive takes.

    Args:
        folder: A folder on the disk.
        max_bytes: Limit for the unpacked size; None: the free disk space.
        archive_name: The name of the archive, for messages.
        get_pending_bytes: Returns the bytes that were reserved but are not on disk yet.
        min_file_limit: This many files are always allowed.
    """

    def __init__(
        self,
        folder: Path,
        max_bytes: int | None,
        archive_name: str,
        get_pending_bytes: Callable[[], int] = lambda: 0,
        min_file_limit: int = _MIN_FILE_LIMIT,
    ) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._archive_name, self._get_pending_bytes = archive_name, get_pending_bytes
        self._max_files = None if max_bytes is None else max(min_file_limit, max_bytes // _CLUSTER_BYTES)
        self._bytes_until_check = 0  # that may be reserved before the disk is checked again
        self.used_bytes = self.n_files = 0  # folders and links count as files

    def reserve(self, n_bytes: int, n_files: int = 0) -> None:
        """Reserve space before it is used.

        Raises:
            FailedError: A limit is exceeded ("archive_too_large").
        """
        if self._max_bytes is not None and self.used_bytes + n_bytes > self._max_bytes:
            raise self._too_large_error(f"its limit of {self._max_bytes} bytes")
        if self._max_files is not None and self.n_files + n_files > self._max_files:
            raise self._too_large_error(f"{self._max_files} files, the limit for an archive of {self._max_bytes} bytes")
        self._bytes_until_check -= n_bytes + n_files * _CLUSTER_BYTES
        if self._bytes_until_check < 0:
            self._bytes_until_check = self._check_disk(n_bytes)
        self.used_bytes += n_bytes
        self.n_files += n_files

    def _check_disk(self, n_bytes: int) -> int:
        """Return the bytes that may be reserved before the next check."""
        disk, pending = os.statvfs(self._folder), self._get_pending_bytes()
        free = disk.f_bavail * disk.f_frsize - pending
        free_inodes = disk.f_favail - pending // _CLUSTER_BYTES
        if n_bytes + _CLUSTER_BYTES + _RESERVED_BYTES > free:
            raise self._too_large_error(f"the disk has: {self.used_bytes} bytes written, {free} bytes free")
        has_inode_limit = disk.f_files != 0  # btrfs has none
        if has_inode_limit and free_inodes < _RESERVED_INODES:
            raise self._too_large_error(
                f"the disk has inodes for: {self.n_files} files written, {free_inodes} files free"
            )
        n_files = free_inodes - _RESERVED_INODES if has_inode_limit else _MAX_UNCHECKED_BYTES
        return min(
            _MAX_UNCHECKED_BYTES,
            (free - n_bytes - _RESERVED_BYTES) // _FREE_SPACE_DIVISOR,
            n_files * _CLUSTER_BYTES // _FREE_SPACE_DIVISOR,
        )

    def _too_large_error(self, exceeded_limit: str) -> FailedError:
        return FailedError("archive_too_large", f"{self._archive_name} unpacks to more than {exceeded_limit}")
