"""Memory to receive into, used again and again.

It begins at a page boundary, like the pages of sockets and files that are copied to and from it. On many processors
a copy between addresses whose places in their pages differ by a few bytes (a bytearray begins 16 or 32 bytes into
a page) takes two to three times as long.
"""

from __future__ import annotations

import mmap
import sys
import threading

_OURS = 2  # references to a buffer that nobody looks into: the list's, and the question's own


def page_aligned(size: int) -> memoryview:
    return memoryview(mmap.mmap(-1, max(1, size)))[:size]


class Buffers:
    """Lends buffers of one size; one is free again when no memoryview of it is left. New memory costs page faults."""

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, threading.Lock()
        self._all: list[mmap.mmap] = []

    def take(self) -> memoryview:
        with self._lock:
            for index in range(len(self._all)):
                if sys.getrefcount(self._all[index]) == _OURS:
                    return memoryview(self._all[index])
            self._all.append(mmap.mmap(-1, self._size))
            return memoryview(self._all[-1])
