"""Page-aligned receive buffers that are used again.

Sockets and files copy whole pages. On many processors a copy between addresses with different offsets in their pages
takes two to three times as long, and a bytearray starts 16 or 32 bytes into a page. So buffers start at a page
boundary.
"""

from __future__ import annotations

import mmap
import sys
import threading

_IDLE_REFCOUNT = 2  # references to an unused buffer: the list's, and getrefcount's own argument


def allocate_page_aligned(size: int) -> memoryview:
    """Return `size` bytes of zeroed memory that start at a page boundary."""
    return memoryview(mmap.mmap(-1, max(1, size)))[:size]


class BufferPool:
    """Lends buffers of one size, and lends one again once no memoryview of it exists.

    Reusing a buffer avoids the page faults of new memory.
    """

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, threading.Lock()
        self._buffers: list[mmap.mmap] = []

    def acquire(self) -> memoryview:
        """Return an unused buffer; it returns to the pool when its last memoryview is released."""
        with self._lock:
            for index in range(len(self._buffers)):
                if sys.getrefcount(self._buffers[index]) == _IDLE_REFCOUNT:
                    return memoryview(self._buffers[index])
            self._buffers.append(mmap.mmap(-1, self._size))
            return memoryview(self._buffers[-1])
