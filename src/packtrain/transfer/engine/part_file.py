"""A file that has not fully arrived, on disk: blocks are written where they belong, and then into the ledger.

A new process finds both files (see `ledger`) and goes on. Nothing but `finish` gives the file its name. The part is
locked while it is open: two processes that fetch to one place would write each other's blocks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import FailedError
from packtrain.fileutil import held, is_at, let_go
from packtrain.transfer.engine.buffer_pool import page_aligned
from packtrain.transfer.engine.preallocate import allot
from packtrain.transfer.engine.resume_log import (
    FAR_BLOCK,
    UNSEALED,
    Known,
    has_gap,
    of_this_boot,
    record,
    records,
    seal_of,
)

if TYPE_CHECKING:
    from packtrain.transfer.block_checksums import Checksums

# For larger writes the kernel takes larger pages. In a virtual machine those are the ones that were given back to the
# host, and getting them again costs several times the write itself.
_WRITTEN_AT_ONCE = 1 << 17
_NO_ACCESS_TIME = getattr(os, "O_NOATIME", 0)
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Partial:
    """Owns the two files of a target until it is closed. `put` and `append` may be called by several threads."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(target.name + ".part")
        self._ledger_path = target.with_name(target.name + ".part.ledger")
        self.known: Known | None = None
        self._file = self._ledger = -1

    def resume(self, block: int, checksums: Checksums | None) -> set[int]:
        """Open what an earlier process left, and say which blocks of it are right; none if nothing is of use."""
        with self._writing(0):
            if not self._take(create=False):
                return set()
        try:
            data = self._ledger_path.read_bytes()
            end = data.index(b"\n") + 1
            known = Known.from_line(data[:end])
            done = dict(records(data[end:]))
            fits = known.block == block or (known.block == FAR_BLOCK and checksums is None)
            if not fits or os.fstat(self._file).st_size != known.size:
                raise ValueError("another object")
            right = _right_blocks(self._file, known, done, checksums)
            if checksums is None and not of_this_boot(data[:end]):
                right = {index for index in right if not _has_gap(self._file, known, index)}
        except (OSError, ValueError, KeyError, TypeError):
            self.discard()
            return set()
        self._begin_ledger(known)
        self._note(known.line() + b"".join(record(index, done[index]) for index in sorted(right)))
        return right

    def begin(self, known: Known) -> None:
        """An empty part for this object."""
        self.discard()
        if known.size > free_bytes(self.target.parent):
            raise self._full(known.size)
        with self._writing(known.size):
            self._begin_empty()
            self._begin_ledger(known)
            os.ftruncate(self._file, known.size)
            self._allot(known.size)
            self._note(known.line())

    def _allot(self, size: int) -> None:
        try:
            allot(self._file, size)
        except OSError:
            self.discard()  # what it has of a disk that is too small is for others
            raise

    def begin_unsized(self) -> None:
        """An empty part for an object whose size shows in the end: no ledger, it cannot be gone on with."""
        self.discard()
        with self._writing(0):
            self._begin_empty()

    def _begin_empty(self) -> None:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self._take(create=True)
        # Of a file that was cut to nothing, ext4 writes everything to the disk when it is closed.
        if os.fstat(self._file).st_size:
            os.ftruncate(self._file, 0)

    def _take(self, create: bool) -> bool:
        """The part is ours from now on, until it is closed; False if there is none."""
        if self._file < 0:
            try:
                file = held(self.path, create)
            except BlockingIOError:
                raise self._busy("is being fetched by another process") from None
            if file is None:
                return False
            self._file = file
            with contextlib.suppress(OSError):  # else each sample that is read costs a note in the disk's journal
                fcntl.fcntl(self._file, fcntl.F_SETFL, _NO_ACCESS_TIME)
        return True

    def _begin_ledger(self, known: Known) -> None:
        self.known = known
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._ledger = os.open(self._ledger_path, flags, 0o666)

    def _note(self, lines: bytes) -> None:
        os.write(self._ledger, lines)

    def put(self, index: int, block: memoryview) -> memoryview:
        """Write a block; the buffer is the caller's again."""
        assert self.known is not None
        try:
            self._write(index * self.known.block, block)
            self._note(record(index, seal_of(block)))
        except OSError as error:
            raise self._unwritable(error, len(block)) from error
        return block

    def append(self, position: int, data: memoryview) -> None:
        try:
            self._write(position, data)
        except OSError as error:
            raise self._unwritable(error, len(data)) from error

    def _write(self, position: int, data: memoryview) -> None:
        while data:
            count = os.pwrite(self._file, data[:_WRITTEN_AT_ONCE], position)
            position, data = position + count, data[count:]

    def moved(self, index: int) -> None:
        """All of a block was written by `append`, piece by piece: there is no seal of it."""
        try:
            self._note(record(index, UNSEALED))
        except OSError as error:
            raise self._unwritable(error, 0) from error

    def readinto(self, view: memoryview, position: int) -> int:
        return os.preadv(self._file, [view], position)

    def finish(self) -> None:
        if not is_at(self._file, self.path):
            raise self._busy("was fetched by another process at the same time")
        self.path.replace(self.target)
        self._end()

    def discard(self) -> None:
        with self._writing(0):
            if self._take(create=False):
                self.path.unlink()
        self._end()

    def _end(self) -> None:
        """The ledger goes only while the part is ours: else it is that of another process."""
        if self._file >= 0:
            self._ledger_path.unlink(missing_ok=True)
        self.close()
        self.known = None

    def close(self) -> None:
        if self._ledger >= 0:
            os.close(self._ledger)
        if self._file >= 0:
            let_go(self._file)
        self._file = self._ledger = -1

    @contextlib.contextmanager
    def _writing(self, needed: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unwritable(error, needed) from error

    def _busy(self, what: str) -> FailedError:
        words = f"{self.target} {what}: wait until that is done, or choose another place for it"
        return FailedError("target_busy", words)

    def _unwritable(self, error: OSError, needed: int) -> FailedError:
        if error.errno in _NO_ROOM:
            return self._full(needed)
        return FailedError("disk_full", f"{self.path} cannot be written: {error.strerror}")

    def _full(self, needed: int) -> FailedError:
        free = free_bytes(self.target.parent)
        words = f"{self.target.name} needs {needed} more bytes in {self.target.parent}, where {free} are free"
        return FailedError("disk_full", words)


def _right_blocks(file: int, known: Known, done: dict[int, int], checksums: Checksums | None) -> set[int]:
    """Those whose seal, or sha256 where there is one, still holds; without either, those that were written."""
    buffer = page_aligned(known.block)
    return {index for index, seal in done.items() if _is_right(file, buffer, known, index, seal, checksums)}


def _is_right(file: int, buffer: memoryview, known: Known, index: int, seal: int, checksums: Checksums | None) -> bool:
    from hashlib import sha256

    if seal == UNSEALED and checksums is None:
        return True
    block = buffer[: known.length(index)]
    if os.preadv(file, [block], index * known.block) != len(block) or seal not in (UNSEALED, seal_of(block)):
        return False
    return checksums is None or sha256(block).hexdigest() == checksums.sha256[index]


def _has_gap(file: int, known: Known, index: int) -> bool:
    return has_gap(memoryview(os.pread(file, known.length(index), index * known.block)))


def free_bytes(folder: Path) -> int:
    """Free for this user on the disk of a folder that may not exist yet."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    disk = os.statvfs(existing)
    return disk.f_bavail * disk.f_frsize
