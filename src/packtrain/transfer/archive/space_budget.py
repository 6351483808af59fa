"""How much an archive may take: the bytes it was promised, the files that they hold, and what the disk has of both."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from packtrain.errors import FailedError

_RESERVED_BYTES = 1 << 20  # of the disk is left free: it is never quite filled
_RESERVED_INODES = 16
_CLUSTER_BYTES = 4096  # what even a small file takes
_MIN_FILE_LIMIT = 1_000_000  # so many are no bomb, however small they are
_MAX_UNCHECKED_BYTES = 64 << 20  # bytes; much sooner when little is left
_FREE_SPACE_DIVISOR = 4  # of what is free, one part in so many is taken before the next look: others write, too


class SpaceBudget:
    def __init__(
        self, folder: Path, max_bytes: int | None, archive_name: str, get_pending_bytes: Callable[[], int] = lambda: 0
    ) -> None:
        """`pending`: bytes that were taken, but are not yet on the disk."""
        self._folder, self._max_bytes, self._archive_name, self._get_pending_bytes = (
            folder,
            max_bytes,
            archive_name,
            get_pending_bytes,
        )
        self._max_files = None if max_bytes is None else max(_MIN_FILE_LIMIT, max_bytes // _CLUSTER_BYTES)
        self._bytes_until_check = 0  # bytes that may be taken before the disk is looked at again
        self.used_bytes = self.n_files = 0  # folders and links count as files

    def reserve(self, n_bytes: int, n_files: int = 0) -> None:
        """Raises FailedError: archive_too_large."""
        if self._max_bytes is not None and self.used_bytes + n_bytes > self._max_bytes:
            raise self._too_large_error(f"the {self._max_bytes} bytes that it may take")
        if self._max_files is not None and self.n_files + n_files > self._max_files:
            raise self._too_large_error(
                f"{self._max_files} files: the {self._max_bytes} bytes that it may take hold no more"
            )
        self._bytes_until_check -= n_bytes + n_files * _CLUSTER_BYTES
        if self._bytes_until_check < 0:
            self._bytes_until_check = self._check_disk(n_bytes)
        self.used_bytes += n_bytes
        self.n_files += n_files

    def _check_disk(self, n_bytes: int) -> int:
        disk, pending = os.statvfs(self._folder), self._get_pending_bytes()
        free, numbers = disk.f_bavail * disk.f_frsize - pending, disk.f_favail - pending // _CLUSTER_BYTES
        if n_bytes + _CLUSTER_BYTES + _RESERVED_BYTES > free:
            raise self._too_large_error(f"the disk has: {self.used_bytes} bytes done, {free} free")
        if disk.f_files and numbers < _RESERVED_INODES:
            raise self._too_large_error(f"the disk can number: {self.n_files} files done, {numbers} files free")
        # Where a disk does not count its files (btrfs), f_files is 0.
        files = numbers - _RESERVED_INODES if disk.f_files else _MAX_UNCHECKED_BYTES
        return min(
            _MAX_UNCHECKED_BYTES,
            (free - n_bytes - _RESERVED_BYTES) // _FREE_SPACE_DIVISOR,
            files * _CLUSTER_BYTES // _FREE_SPACE_DIVISOR,
        )

    def _too_large_error(self, exceeded_limit: str) -> FailedError:
        return FailedError("archive_too_large", f"{self._archive_name} unpacks to more than {exceeded_limit}")
