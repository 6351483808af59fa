"""Memory to receive into, used again and again.

It begins at a page boundary, like the pages of sockets and files that are copied to and from it. On many processors
a copy between addresses whose places in their pages differ by a few bytes (a bytearray begins 16 or 32 bytes into
a page) takes two to three times as long.
"""

from __future__ import annotations

import mmap
import sys
import threading

_IDLE_REFCOUNT = 2  # references to a buffer that nobody looks into: the list's, and the question's own


def allocate_page_aligned(size: int) -> memoryview:
    return memoryview(mmap.mmap(-1, max(1, size)))[:size]


class BufferPool:
    """Lends buffers of one size; one is free again when no memoryview of it is left. New memory costs page faults."""

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, threading.Lock()
        self._buffers: list[mmap.mmap] = []

    def acquire(self) -> memoryview:
        with self._lock:
            for index in range(len(self._buffers)):
                if sys.getrefcount(self._buffers[index]) == _IDLE_REFCOUNT:
                    return memoryview(self._buffers[index])
            self._buffers.append(mmap.mmap(-1, self._size))
            return memoryview(self._buffers[-1])
