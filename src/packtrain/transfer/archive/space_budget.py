"""How much an archive may take: the bytes it was promised, the files that they hold, and what the disk has of both."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from packtrain.errors import FailedError

_RESERVE = 1 << 20  # of the disk is left free: it is never quite filled
_FILES_RESERVE = 16
_CLUSTER = 4096  # what even a small file takes
_FEW_FILES = 1_000_000  # so many are no bomb, however small they are
_LOOK_EVERY = 64 << 20  # bytes; much sooner when little is left
_SHARE = 4  # of what is free, one part in so many is taken before the next look: others write, too


class Room:
    def __init__(self, folder: Path, limit: int | None, archive: str, pending: Callable[[], int] = lambda: 0) -> None:
        """`pending`: bytes that were taken, but are not yet on the disk."""
        self._folder, self._limit, self._archive, self._pending = folder, limit, archive, pending
        self._most_files = None if limit is None else max(_FEW_FILES, limit // _CLUSTER)
        self._unseen = 0  # bytes that may be taken before the disk is looked at again
        self.taken = self.files = 0  # folders and links count as files

    def take(self, size: int, files: int = 0) -> None:
        """Raises FailedError: archive_too_large."""
        if self._limit is not None and self.taken + size > self._limit:
            raise self._too_large(f"the {self._limit} bytes that it may take")
        if self._most_files is not None and self.files + files > self._most_files:
            raise self._too_large(f"{self._most_files} files: the {self._limit} bytes that it may take hold no more")
        self._unseen -= size + files * _CLUSTER
        if self._unseen < 0:
            self._unseen = self._look(size)
        self.taken += size
        self.files += files

    def _look(self, size: int) -> int:
        disk, pending = os.statvfs(self._folder), self._pending()
        free, numbers = disk.f_bavail * disk.f_frsize - pending, disk.f_favail - pending // _CLUSTER
        if size + _CLUSTER + _RESERVE > free:
            raise self._too_large(f"the disk has: {self.taken} bytes done, {free} free")
        if disk.f_files and numbers < _FILES_RESERVE:
            raise self._too_large(f"the disk can number: {self.files} files done, {numbers} files free")
        # Where a disk does not count its files (btrfs), f_files is 0.
        files = numbers - _FILES_RESERVE if disk.f_files else _LOOK_EVERY
        return min(_LOOK_EVERY, (free - size - _RESERVE) // _SHARE, files * _CLUSTER // _SHARE)

    def _too_large(self, words: str) -> FailedError:
        return FailedError("archive_too_large", f"{self._archive} unpacks to more than {words}")
