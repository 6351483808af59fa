"""What was read stays on the disk, up to a limit: the next epoch costs no network.

    DIR/MARK/data     the samples' bytes where they lie in the archives, one behind the other; the rest are holes
    DIR/MARK/marks    how many bytes are taken (8), then a byte for each sample: 1 once its bytes are here

Any number of processes share it. What is full stays as it is: of a dataset read over and over again, no choice of
what to throw away is better than the first that came.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from packtrain.stream.index import FILES, Index
from packtrain.stream.runs import Piece

_COUNT = struct.Struct("<Q")


class Kept:
    """Raises OSError if the folder cannot be used."""

    def __init__(self, folder: Path, index: Index, cap_bytes: int) -> None:
        self._index, self._cap = index, cap_bytes
        home = folder / index.mark
        home.mkdir(parents=True, exist_ok=True)
        self._data = os.open(home / "data", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._marks_file = os.open(home / "marks", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.truncate(self._marks_file, _COUNT.size + len(index))
        self._map = mmap.mmap(self._marks_file, _COUNT.size + len(index))
        self._marks = memoryview(self._map)[_COUNT.size :]
        self._full, self._lock = False, threading.Lock()  # the kernel's lock is one for all threads
        sizes = index.sizes if index.layout == FILES else [archive.size for archive in index.archives]
        self._bases = [0, *accumulate(sizes)]

    @property
    def taken(self) -> int:
        """Taken so far."""
        return int(_COUNT.unpack_from(self._map)[0])

    def has(self, samples: Sequence[int]) -> bool:
        marks = self._marks
        return all(marks[number] for number in samples)

    def read(self, samples: Sequence[int]) -> list[bytes]:
        """Raises OSError, also where the disk gives fewer bytes than it took."""
        found = [os.pread(self._data, self._index.sizes[number], self._place(number)) for number in samples]
        if any(len(data) != self._index.sizes[number] for data, number in zip(found, samples)):
            raise OSError("what was kept is cut short")
        return found

    def store(self, piece: Piece, data: memoryview) -> None:
        """Keep the piece if there is room. A disk that does not take it is no reason to fail."""
        if self._full or self.has(piece.samples):
            return
        with contextlib.suppress(OSError):
            if self._reserved(piece.size):
                self._write(self._place(piece.samples[0]) + piece.start - self._index.offsets[piece.samples[0]], data)
                for number in piece.samples:
                    self._marks[number] = 1
            else:
                self._full = True

    def close(self) -> None:
        self._marks.release()
        self._map.close()
        os.close(self._data)
        os.close(self._marks_file)

    def _place(self, number: int) -> int:
        if self._index.layout == FILES:
            return self._bases[number]
        return self._bases[self._index.archive[number]] + self._index.offsets[number]

    def _write(self, at: int, data: memoryview) -> None:
        while len(data):
            count = os.pwrite(self._data, data, at)
            at, data = at + count, data[count:]

    def _reserved(self, size: int) -> bool:
        with self._lock, _alone(self._marks_file):
            taken = self.taken + size
            if taken > self._cap:
                return False
            _COUNT.pack_into(self._map, 0, taken)
            return True


@contextlib.contextmanager
def _alone(handle: int) -> Iterator[None]:
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
