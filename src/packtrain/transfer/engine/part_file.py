"""A partial file on disk: each block is written at its position, and then recorded in the resume log.

A new process finds both files (see `resume_log`) and resumes the download. Only `finish` renames the file to its
target. The partial file is locked while it is open, so that two processes do not download to the same target.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import FailedError
from packtrain.fileutil import DISK_FULL_ERRNOS, free_bytes, is_same_file, open_locked, unlock_and_close
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
    from packtrain.transfer.integrity.block_checksums import BlockChecksums

_MIN_PREALLOCATED_BYTES = 64 << 20
_RESERVED_BYTES = 1 << 20  # of the disk, that an object of unknown size leaves free
_MAX_UNCHECKED_BYTES = 64 << 20  # between two checks of the disk; less if little is free


class PartFile:
    """Owns the partial file and the resume log of a target until it is closed.

    Several threads may call `write_block`, `write_at` and `record_block`.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(target.name + ".part")
        self._resume_log_path = target.with_name(target.name + ".part.resume")
        self.identity: ObjectIdentity | None = None
        self._fd = self._resume_log_fd = -1
        self._bytes_until_check = 0  # of an object of unknown size, that may be written before the disk is checked

    def resume(self, block_bytes: int, checksums: BlockChecksums | None) -> set[int]:
        """Open the files of an earlier process and return the blocks that are valid.

        Args:
            block_bytes: The block size of this download. A resume log with another size is discarded, except for the
                small blocks of distant servers.
            checksums: Verifies the blocks completely.
        """
        with self._map_os_errors(0):
            if not self._open_locked(create=False):
                return set()
        try:
            data = self._resume_log_path.read_bytes()
            end = data.index(b"\n") + 1
            identity = ObjectIdentity.from_line(data[:end])
            recorded = dict(parse_records(data[end:]))
            has_usable_blocks = identity.block_bytes == block_bytes or (
                identity.block_bytes == HIGH_LATENCY_BLOCK_BYTES and checksums is None
            )
            if not has_usable_blocks or os.fstat(self._fd).st_size != identity.size:
                raise ValueError("a different object")
            valid = _find_valid_blocks(self._fd, identity, recorded, checksums)
            if checksums is None and not is_from_this_boot(data[:end]):
                valid = {index for index in valid if not _block_may_have_gap(self._fd, identity, index)}
        except (OSError, ValueError, KeyError, TypeError):
            self.discard()
            return set()
        self._create_resume_log(identity)
        self._append_to_resume_log(
            identity.to_line() + b"".join(format_record(index, recorded[index]) for index in sorted(valid))
        )
        return valid

    def begin(self, identity: ObjectIdentity) -> None:
        """Create an empty partial file for an object.

        Raises:
            FailedError: The disk is too small ("disk_full").
        """
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
            _preallocate(self._fd, size)
        except OSError:
            self.discard()  # release the space that was allocated
            raise

    def begin_unsized(self) -> None:
        """Create an empty partial file for an object of unknown size; it has no resume log and cannot be resumed."""
        self.discard()
        with self._map_os_errors(0):
            self._create_empty()

    def append(self, position: int, data: memoryview, max_bytes: int | None) -> None:
        """Write the next bytes of an object of unknown size.

        Args:
            position: The bytes written before.
            data: The bytes.
            max_bytes: Limit for the object; None: the free disk space.

        Raises:
            FailedError: The object exceeds the limit, or the disk is almost full ("archive_too_large").
        """
        if max_bytes is not None and position + len(data) > max_bytes:
            raise self._unsized_error(position, f"the disk limit of {max_bytes} bytes")
        self._bytes_until_check -= len(data)
        if self._bytes_until_check < 0:
            free = free_bytes(self.target.parent)
            if free < len(data) + _RESERVED_BYTES:
                raise self._unsized_error(position, f"the disk has: {free} bytes are free in {self.target.parent}")
            self._bytes_until_check = min(_MAX_UNCHECKED_BYTES, (free - len(data) - _RESERVED_BYTES) // 4)
        self.write_at(position, data)

    def _unsized_error(self, position: int, exceeded_limit: str) -> FailedError:
        return FailedError(
            "archive_too_large",
            f"{self.target.name} does not end after {position} bytes, its server did not announce a length, and it is "
            f"larger than {exceeded_limit}",
        )

    def _create_empty(self) -> None:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self._open_locked(create=True)
        # When a file that was truncated to 0 is closed, ext4 writes all of it to disk.
        if os.fstat(self._fd).st_size:
            os.ftruncate(self._fd, 0)

    def _open_locked(self, create: bool) -> bool:
        """Open and lock the partial file unless that is done already; return False if it does not exist."""
        if self._fd < 0:
            try:
                fd = open_locked(self.path, create)
            except BlockingIOError:
                raise self._busy_error("is being downloaded by another process") from None
            if fd is None:
                return False
            self._fd = fd
        return True

    def _create_resume_log(self, identity: ObjectIdentity) -> None:
        self.identity = identity
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._resume_log_fd = os.open(self._resume_log_path, flags, 0o666)

    def _append_to_resume_log(self, lines: bytes) -> None:
        os.write(self._resume_log_fd, lines)

    def write_block(self, index: int, block: memoryview) -> memoryview:
        """Write a block and record it; return its buffer, which the caller may use again."""
        assert self.identity is not None
        try:
            self._write_all(index * self.identity.block_bytes, block)
            self._append_to_resume_log(format_record(index, sample_checksum(block)))
        except OSError as error:
            raise self._write_error(error, len(block)) from error
        return block

    def write_at(self, position: int, data: memoryview) -> None:
        """Write bytes without recording them."""
        try:
            self._write_all(position, data)
        except OSError as error:
            raise self._write_error(error, len(data)) from error

    def _write_all(self, position: int, data: memoryview) -> None:
        while data:
            count = os.pwrite(self._fd, data, position)
            position, data = position + count, data[count:]

    def record_block(self, index: int) -> None:
        """Record a block that was written in pieces by `write_at`; it has no checksum."""
        try:
            self._append_to_resume_log(format_record(index, NO_CHECKSUM))
        except OSError as error:
            raise self._write_error(error, 0) from error

    def readinto(self, view: memoryview, position: int) -> int:
        """Read from a position into a buffer, and return the number of bytes."""
        return os.preadv(self._fd, [view], position)

    def finish(self) -> None:
        """Rename the partial file to its target and remove the resume log."""
        if not is_same_file(self._fd, self.path):
            raise self._busy_error("was downloaded by another process at the same time")
        self.path.replace(self.target)
        self._clean_up()

    def discard(self) -> None:
        """Remove both files."""
        with self._map_os_errors(0):
            if self._open_locked(create=False):
                self.path.unlink()
        self._clean_up()

    def _clean_up(self) -> None:
        """Close both files, and remove the resume log if we hold the lock; otherwise another process owns it."""
        if self._fd >= 0:
            self._resume_log_path.unlink(missing_ok=True)
        self.close()
        self.identity = None

    def close(self) -> None:
        """Close both files and release the lock. Remove an object of unknown size, which cannot be resumed."""
        if self._fd >= 0 and self.identity is None and is_same_file(self._fd, self.path):
            self.path.unlink()
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
        return FailedError("target_busy", f"{self.target} {reason}; wait until it finishes, or choose another path")

    def _write_error(self, error: OSError, needed_bytes: int) -> FailedError:
        if error.errno in DISK_FULL_ERRNOS:
            return self._disk_full_error(needed_bytes)
        return FailedError("disk_full", f"{self.path} cannot be written: {error.strerror}")

    def _disk_full_error(self, needed_bytes: int) -> FailedError:
        folder = self.target.parent
        return FailedError(
            "disk_full",
            f"{self.target.name} needs {needed_bytes} more bytes in {folder}, where {free_bytes(folder)} are free",
        )


def _preallocate(fd: int, size: int) -> None:
    """Allocate the space of a large file on a local disk, which makes its writes faster. Raises OSError if it is full.

    Not on tmpfs, which would fill memory with zeros, nor on network file systems, where the C library writes to every
    block instead: their devices have no major number.
    """
    if size < _MIN_PREALLOCATED_BYTES or os.major(os.fstat(fd).st_dev) == 0:
        return
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            raise


def _find_valid_blocks(
    fd: int, identity: ObjectIdentity, recorded: dict[int, int], checksums: BlockChecksums | None
) -> set[int]:
    """Return the recorded blocks that match their checksum and sha256, as far as those are known."""
    buffer = memoryview(bytearray(identity.block_bytes))
    return {
        index
        for index, checksum in recorded.items()
        if _is_valid_block(fd, buffer, identity, index, checksum, checksums)
    }


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
