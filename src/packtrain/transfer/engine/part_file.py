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
from packtrain.fileutil import is_same_file, open_locked, unlock_and_close
from packtrain.transfer.engine.buffer_pool import allocate_page_aligned
from packtrain.transfer.engine.preallocate import preallocate
from packtrain.transfer.engine.resume_log import (
    HIGH_LATENCY_BLOCK_BYTES,
    NO_CHECKSUM,
    ObjectIdentity,
    format_record,
    is_from_this_boot,
    may_have_gap,
    parse_records,
    sample_checksum,
)

if TYPE_CHECKING:
    from packtrain.transfer.block_checksums import BlockChecksums

# For larger writes the kernel takes larger pages. In a virtual machine those are the ones that were given back to the
# host, and getting them again costs several times the write itself.
_MAX_WRITE_BYTES = 1 << 17
_O_NOATIME = getattr(os, "O_NOATIME", 0)
_DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class PartFile:
    """Owns the two files of a target until it is closed. `put` and `append` may be called by several threads."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(target.name + ".part")
        self._resume_log_path = target.with_name(target.name + ".part.resume")
        self.identity: ObjectIdentity | None = None
        self._fd = self._resume_log_fd = -1

    def resume(self, block_bytes: int, checksums: BlockChecksums | None) -> set[int]:
        """Open what an earlier process left, and say which blocks of it are right; none if nothing is of use."""
        with self._map_os_errors(0):
            if not self._open_locked(create=False):
                return set()
        try:
            data = self._resume_log_path.read_bytes()
            end = data.index(b"\n") + 1
            known = ObjectIdentity.from_line(data[:end])
            done = dict(parse_records(data[end:]))
            fits = known.block_bytes == block_bytes or (
                known.block_bytes == HIGH_LATENCY_BLOCK_BYTES and checksums is None
            )
            if not fits or os.fstat(self._fd).st_size != known.size:
                raise ValueError("another object")
            right = _find_valid_blocks(self._fd, known, done, checksums)
            if checksums is None and not is_from_this_boot(data[:end]):
                right = {index for index in right if not _block_may_have_gap(self._fd, known, index)}
        except (OSError, ValueError, KeyError, TypeError):
            self.discard()
            return set()
        self._create_resume_log(known)
        self._append_to_resume_log(
            known.to_line() + b"".join(format_record(index, done[index]) for index in sorted(right))
        )
        return right

    def begin(self, identity: ObjectIdentity) -> None:
        """An empty part for this object."""
        self.discard()
        if identity.size > free_bytes(self.target.parent):
            raise self._disk_full_error(identity.size)
        with self._map_os_errors(identity.size):
            self._create_empty()
            self._create_resume_log(identity)
            os.ftruncate(self._fd, identity.size)
            self._preallocate(identity.size)
            self._append_to_resume_log(identity.to_line())

    def _preallocate(self, size: int) -> None:
        try:
            preallocate(self._fd, size)
        except OSError:
            self.discard()  # what it has of a disk that is too small is for others
            raise

    def begin_unsized(self) -> None:
        """An empty part for an object whose size shows in the end: no ledger, it cannot be gone on with."""
        self.discard()
        with self._map_os_errors(0):
            self._create_empty()

    def _create_empty(self) -> None:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self._open_locked(create=True)
        # Of a file that was cut to nothing, ext4 writes everything to the disk when it is closed.
        if os.fstat(self._fd).st_size:
            os.ftruncate(self._fd, 0)

    def _open_locked(self, create: bool) -> bool:
        """The part is ours from now on, until it is closed; False if there is none."""
        if self._fd < 0:
            try:
                file = open_locked(self.path, create)
            except BlockingIOError:
                raise self._busy_error("is being fetched by another process") from None
            if file is None:
                return False
            self._fd = file
            with contextlib.suppress(OSError):  # else each sample that is read costs a note in the disk's journal
                fcntl.fcntl(self._fd, fcntl.F_SETFL, _O_NOATIME)
        return True

    def _create_resume_log(self, identity: ObjectIdentity) -> None:
        self.identity = identity
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._resume_log_fd = os.open(self._resume_log_path, flags, 0o666)

    def _append_to_resume_log(self, lines: bytes) -> None:
        os.write(self._resume_log_fd, lines)

    def write_block(self, index: int, block: memoryview) -> memoryview:
        """Write a block; the buffer is the caller's again."""
        assert self.identity is not None
        try:
            self._write_all(index * self.identity.block_bytes, block)
            self._append_to_resume_log(format_record(index, sample_checksum(block)))
        except OSError as error:
            raise self._write_error(error, len(block)) from error
        return block

    def write_at(self, position: int, data: memoryview) -> None:
        try:
            self._write_all(position, data)
        except OSError as error:
            raise self._write_error(error, len(data)) from error

    def _write_all(self, position: int, data: memoryview) -> None:
        while data:
            count = os.pwrite(self._fd, data[:_MAX_WRITE_BYTES], position)
            position, data = position + count, data[count:]

    def record_block(self, index: int) -> None:
        """All of a block was written by `append`, piece by piece: there is no seal of it."""
        try:
            self._append_to_resume_log(format_record(index, NO_CHECKSUM))
        except OSError as error:
            raise self._write_error(error, 0) from error

    def readinto(self, view: memoryview, position: int) -> int:
        return os.preadv(self._fd, [view], position)

    def finish(self) -> None:
        if not is_same_file(self._fd, self.path):
            raise self._busy_error("was fetched by another process at the same time")
        self.path.replace(self.target)
        self._clean_up()

    def discard(self) -> None:
        with self._map_os_errors(0):
            if self._open_locked(create=False):
                self.path.unlink()
        self._clean_up()

    def _clean_up(self) -> None:
        """The ledger goes only while the part is ours: else it is that of another process."""
        if self._fd >= 0:
            self._resume_log_path.unlink(missing_ok=True)
        self.close()
        self.identity = None

    def close(self) -> None:
        if self._resume_log_fd >= 0:
            os.close(self._resume_log_fd)
        if self._fd >= 0:
            unlock_and_close(self._fd)
        self._fd = self._resume_log_fd = -1

    @contextlib.contextmanager
    def _map_os_errors(self, needed_bytes: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._write_error(error, needed_bytes) from error

    def _busy_error(self, reason: str) -> FailedError:
        words = f"{self.target} {reason}: wait until that is done, or choose another place for it"
        return FailedError("target_busy", words)

    def _write_error(self, error: OSError, needed_bytes: int) -> FailedError:
        if error.errno in _DISK_FULL_ERRNOS:
            return self._disk_full_error(needed_bytes)
        return FailedError("disk_full", f"{self.path} cannot be written: {error.strerror}")

    def _disk_full_error(self, needed_bytes: int) -> FailedError:
        free = free_bytes(self.target.parent)
        words = f"{self.target.name} needs {needed_bytes} more bytes in {self.target.parent}, where {free} are free"
        return FailedError("disk_full", words)


def _find_valid_blocks(
    fd: int, identity: ObjectIdentity, done: dict[int, int], checksums: BlockChecksums | None
) -> set[int]:
    """Those whose seal, or sha256 where there is one, still holds; without either, those that were written."""
    buffer = allocate_page_aligned(identity.block_bytes)
    return {index for index, seal in done.items() if _is_valid_block(fd, buffer, identity, index, seal, checksums)}


def _is_valid_block(
    fd: int, buffer: memoryview, identity: ObjectIdentity, index: int, checksum: int, checksums: BlockChecksums | None
) -> bool:
    from hashlib import sha256

    if checksum == NO_CHECKSUM and checksums is None:
        return True
    block = buffer[: identity.block_length(index)]
    if os.preadv(fd, [block], index * identity.block_bytes) != len(block) or checksum not in (
        NO_CHECKSUM,
        sample_checksum(block),
    ):
        return False
    return checksums is None or sha256(block).hexdigest() == checksums.block_sha256[index]


def _block_may_have_gap(fd: int, identity: ObjectIdentity, index: int) -> bool:
    return may_have_gap(memoryview(os.pread(fd, identity.block_length(index), index * identity.block_bytes)))


def free_bytes(folder: Path) -> int:
    """Free for this user on the disk of a folder that may not exist yet."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    disk = os.statvfs(existing)
    return disk.f_bavail * disk.f_frsize
