"""What was read stays on the disk, up to a limit: the next epoch costs no network.

    DIR/STAMP/data    the samples' bytes where they lie in the archives, one behind the other; the rest are holes
    DIR/STAMP/sums    how many bytes are taken (8), then for each sample (4) the CRC-32 of its bytes once they are here

Any number of processes share it. The sum is looked at: a machine that went down, or another one of a shared disk, may
have written it without the bytes. What is full stays as it is: of a dataset read over and over again, no choice of
what to throw away is better than the first that came.
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
    """Raises OSError if the folder cannot be used."""

    def __init__(self, folder: Path, index: Index, max_bytes: int) -> None:
        self._index, self._max_bytes = index, max_bytes
        home = folder / index.fingerprint
        home.mkdir(parents=True, exist_ok=True)
        self._data_fd = os.open(home / "data", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._checksums_fd = os.open(home / "sums", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = _USED_BYTES_STRUCT.size + _CHECKSUM_BYTES * len(index)
        os.posix_fallocate(self._checksums_fd, 0, size)  # no holes: on a full disk, writing into one kills the process
        os.truncate(self._checksums_fd, size)
        self._checksums_map = mmap.mmap(self._checksums_fd, size)
        self._checksums = memoryview(self._checksums_map)[_USED_BYTES_STRUCT.size :].cast("I")
        self._is_full, self._lock = False, threading.Lock()  # the kernel's lock is one for all threads
        sizes = index.sizes if index.layout == LAYOUT_FILES else [archive.size for archive in index.archives]
        self._base_offsets = [0, *accumulate(sizes)]

    @property
    def used_bytes(self) -> int:
        """Taken so far."""
        return int(_USED_BYTES_STRUCT.unpack_from(self._checksums_map)[0])

    def has_all(self, samples: Sequence[int]) -> bool:
        sums = self._checksums
        return all(sums[number] for number in samples)

    def read(self, samples: Sequence[int]) -> list[bytes]:
        """Raises OSError, also where the disk gives other bytes than it took; these are forgotten."""
        found = []
        for number in samples:
            data = os.pread(self._data_fd, self._index.sizes[number], self._data_offset(number))
            if _nonzero_crc32(data) != self._checksums[number]:
                self._checksums[number] = 0
                raise OSError("what was kept is not what was read")
            found.append(data)
        return found

    def store(self, group: ReadGroup, data: memoryview) -> None:
        """Keep the piece if there is room. A disk that does not take it is no reason to fail."""
        missing = [] if self._is_full else [number for number in group.samples if not self._checksums[number]]
        if not missing:
            return
        offsets, sizes = self._index.offsets, self._index.sizes
        start, stop = offsets[missing[0]] - group.start, offsets[missing[-1]] + sizes[missing[-1]] - group.start
        with contextlib.suppress(OSError):
            if self._try_reserve(self._bytes_to_add(missing, group)):
                self._write_at(self._data_offset(missing[0]), data[start:stop])
                for number in missing:
                    at = offsets[number] - group.start
                    self._checksums[number] = _nonzero_crc32(data[at : at + sizes[number]])
            else:
                self._is_full = True

    def _bytes_to_add(self, missing: Sequence[int], group: ReadGroup) -> int:
        """Bytes of the samples, and what lies before each but the piece's first. So every byte of an archive is taken
        once at most, however its samples are cut into pieces."""
        offsets, sizes = self._index.offsets, self._index.sizes
        before = dict(zip(group.samples[1:], group.samples))
        ends = ((number, before.get(number)) for number in missing)
        begins = (offsets[number] if last is None else offsets[last] + sizes[last] for number, last in ends)
        return sum(offsets[number] + sizes[number] - begin for number, begin in zip(missing, begins))

    def close(self) -> None:
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
            taken = self.used_bytes + n_bytes
            if taken > self._max_bytes:
                return False
            _USED_BYTES_STRUCT.pack_into(self._checksums_map, 0, taken)
            return True


def _nonzero_crc32(data: bytes | memoryview) -> int:
    """Never 0, which means that nothing is here."""
    return zlib.crc32(data) or 1


@contextlib.contextmanager
def _exclusive_lock(fd: int) -> Iterator[None]:
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
