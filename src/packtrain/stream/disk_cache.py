"""Keep samples on disk, up to a limit, so that the next epoch needs no network.

    DIR/FINGERPRINT/data         the samples, at the offsets they have in the archives, one archive after the other;
                                 holes elsewhere
    DIR/FINGERPRINT/checksums    number of used bytes (8 bytes), then for each sample the CRC-32 of its bytes (4 bytes;
                                 0: not cached)

Any number of processes share the cache. Each read verifies the CRC-32: after a crash, or on a shared disk, the
checksum may have been written without the data. A full cache keeps its samples: for a dataset that is read in full
again and again, no eviction policy beats the samples that came first.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from packtrain.stream.index import LAYOUT_FILES, Index
from packtrain.stream.read_groups import ReadGroup

_USED_BYTES_STRUCT = struct.Struct("<Q")
_CHECKSUM_BYTES = 4


class SampleCache:
    """The samples of one index on disk.

    Args:
        folder: The folder of the cache, which may hold samples of other indexes.
        index: The index.
        max_bytes: Maximum size of the cached samples, in bytes.

    Raises:
        OSError: The folder cannot be used.
    """

    def __init__(self, folder: Path, index: Index, max_bytes: int) -> None:
        self._index, self._max_bytes = index, max_bytes
        index_dir = folder / index.fingerprint
        index_dir.mkdir(parents=True, exist_ok=True)
        self._data_fd = os.open(index_dir / "data", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._checksums_fd = os.open(index_dir / "checksums", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = _USED_BYTES_STRUCT.size + _CHECKSUM_BYTES * len(index)
        os.posix_fallocate(self._checksums_fd, 0, size)  # no holes: writing to a mapped hole on a full disk is fatal
        os.truncate(self._checksums_fd, size)
        self._checksums_map = mmap.mmap(self._checksums_fd, size)
        self._checksums = memoryview(self._checksums_map)[_USED_BYTES_STRUCT.size :].cast("I")
        self._is_full, self._lock = False, threading.Lock()  # flock does not exclude threads of the same process
        sizes = index.sizes if index.layout == LAYOUT_FILES else [archive.size for archive in index.archives]
        self._base_offsets = [0, *accumulate(sizes)]

    @property
    def used_bytes(self) -> int:
        """Size of the cached samples, in bytes."""
        return int(_USED_BYTES_STRUCT.unpack_from(self._checksums_map)[0])

    def has_all(self, samples: Sequence[int]) -> bool:
        """Return whether all samples are cached."""
        checksums = self._checksums
        return all(checksums[number] for number in samples)

    def read(self, samples: Sequence[int]) -> list[bytes]:
        """Return the bytes of cached samples. A sample with a wrong checksum is removed from the cache.

        Raises:
            OSError: The disk fails, or a checksum is wrong.
        """
        contents = []
        for number in samples:
            data = os.pread(self._data_fd, self._index.sizes[number], self._data_offset(number))
            if _nonzero_crc32(data) != self._checksums[number]:
                self._checksums[number] = 0
                raise OSError(f"the checksum of the cached sample {number} is wrong")
            contents.append(data)
        return contents

    def store(self, group: ReadGroup, data: memoryview) -> None:
        """Store the samples of a group if there is space. A disk error is ignored."""
        missing = [] if self._is_full else [number for number in group.samples if not self._checksums[number]]
        if not missing:
            return
        offsets, sizes = self._index.offsets, self._index.sizes
        start, stop = offsets[missing[0]] - group.start, offsets[missing[-1]] + sizes[missing[-1]] - group.start
        with contextlib.suppress(OSError):
            if self._try_reserve(self._bytes_to_add(missing, group)):
                self._write_at(self._data_offset(missing[0]), data[start:stop])
                for number in missing:
                    offset = offsets[number] - group.start
                    self._checksums[number] = _nonzero_crc32(data[offset : offset + sizes[number]])
            else:
                self._is_full = True

    def _bytes_to_add(self, missing: Sequence[int], group: ReadGroup) -> int:
        """Return the size of the samples and of the gap before each of them, except before the group's first.

        Every byte of an archive is thus counted at most once, however its samples are grouped.
        """
        offsets, sizes = self._index.offsets, self._index.sizes
        predecessors = dict(zip(group.samples[1:], group.samples))
        total = 0
        for number in missing:
            previous = predecessors.get(number)
            start = offsets[number] if previous is None else offsets[previous] + sizes[previous]
            total += offsets[number] + sizes[number] - start
        return total

    def close(self) -> None:
        """Close the files."""
        self._checksums.release()
        self._checksums_map.close()
        os.close(self._data_fd)
        os.close(self._checksums_fd)

    def _data_offset(self, number: int) -> int:
        if self._index.layout == LAYOUT_FILES:
            return self._base_offsets[number]
        return self._base_offsets[self._index.archive_ids[number]] + self._index.offsets[number]

    def _write_at(self, offset: int, data: memoryview) -> None:
        while len(data):
            count = os.pwrite(self._data_fd, data, offset)
            offset, data = offset + count, data[count:]

    def _try_reserve(self, n_bytes: int) -> bool:
        with self._lock, _exclusive_lock(self._checksums_fd):
            used_bytes = self.used_bytes + n_bytes
            if used_bytes > self._max_bytes:
                return False
            _USED_BYTES_STRUCT.pack_into(self._checksums_map, 0, used_bytes)
            return True


def _nonzero_crc32(data: bytes | memoryview) -> int:
    """Return the CRC-32, with 1 for 0: a stored 0 means that the sample is not cached."""
    return zlib.crc32(data) or 1


@contextlib.contextmanager
def _exclusive_lock(fd: int) -> Iterator[None]:
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
