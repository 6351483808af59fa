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

from packtrain.stream.index import FILES, Index
from packtrain.stream.read_groups import Piece

_COUNT = struct.Struct("<Q")
_SUM_BYTES = 4


class Kept:
    """Raises OSError if the folder cannot be used."""

    def __init__(self, folder: Path, index: Index, cap_bytes: int) -> None:
        self._index, self._cap = index, cap_bytes
        home = folder / index.stamp
        home.mkdir(parents=True, exist_ok=True)
        self._data = os.open(home / "data", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._sums_file = os.open(home / "sums", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = _COUNT.size + _SUM_BYTES * len(index)
        os.posix_fallocate(self._sums_file, 0, size)  # no holes: on a full disk, writing into one kills the process
        os.truncate(self._sums_file, size)
        self._map = mmap.mmap(self._sums_file, size)
        self._sums = memoryview(self._map)[_COUNT.size :].cast("I")
        self._full, self._lock = False, threading.Lock()  # the kernel's lock is one for all threads
        sizes = index.sizes if index.layout == FILES else [archive.size for archive in index.archives]
        self._bases = [0, *accumulate(sizes)]

    @property
    def taken(self) -> int:
        """Taken so far."""
        return int(_COUNT.unpack_from(self._map)[0])

    def has(self, samples: Sequence[int]) -> bool:
        sums = self._sums
        return all(sums[number] for number in samples)

    def read(self, samples: Sequence[int]) -> list[bytes]:
        """Raises OSError, also where the disk gives other bytes than it took; these are forgotten."""
        found = []
        for number in samples:
            data = os.pread(self._data, self._index.sizes[number], self._place(number))
            if _sum(data) != self._sums[number]:
                self._sums[number] = 0
                raise OSError("what was kept is not what was read")
            found.append(data)
        return found

    def store(self, piece: Piece, data: memoryview) -> None:
        """Keep the piece if there is room. A disk that does not take it is no reason to fail."""
        missing = [] if self._full else [number for number in piece.samples if not self._sums[number]]
        if not missing:
            return
        offsets, sizes = self._index.offsets, self._index.sizes
        start, stop = offsets[missing[0]] - piece.start, offsets[missing[-1]] + sizes[missing[-1]] - piece.start
        with contextlib.suppress(OSError):
            if self._reserved(self._taken_by(missing, piece)):
                self._write(self._place(missing[0]), data[start:stop])
                for number in missing:
                    at = offsets[number] - piece.start
                    self._sums[number] = _sum(data[at : at + sizes[number]])
            else:
                self._full = True

    def _taken_by(self, missing: Sequence[int], piece: Piece) -> int:
        """Bytes of the samples, and what lies before each but the piece's first. So every byte of an archive is taken
        once at most, however its samples are cut into pieces."""
        offsets, sizes = self._index.offsets, self._index.sizes
        before = dict(zip(piece.samples[1:], piece.samples))
        ends = ((number, before.get(number)) for number in missing)
        begins = (offsets[number] if last is None else offsets[last] + sizes[last] for number, last in ends)
        return sum(offsets[number] + sizes[number] - begin for number, begin in zip(missing, begins))

    def close(self) -> None:
        self._sums.release()
        self._map.close()
        os.close(self._data)
        os.close(self._sums_file)

    def _place(self, number: int) -> int:
        if self._index.layout == FILES:
            return self._bases[number]
        return self._bases[self._index.archive[number]] + self._index.offsets[number]

    def _write(self, at: int, data: memoryview) -> None:
        while len(data):
            count = os.pwrite(self._data, data, at)
            at, data = at + count, data[count:]

    def _reserved(self, size: int) -> bool:
        with self._lock, _alone(self._sums_file):
            taken = self.taken + size
            if taken > self._cap:
                return False
            _COUNT.pack_into(self._map, 0, taken)
            return True


def _sum(data: bytes | memoryview) -> int:
    """Never 0, which means that nothing is here."""
    return zlib.crc32(data) or 1


@contextlib.contextmanager
def _alone(handle: int) -> Iterator[None]:
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
