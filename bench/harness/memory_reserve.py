"""Free memory that stays with this machine, so that new pages cost every client the same in every round.

A virtual machine may give free memory back to its host, in pieces of 2 MiB, within seconds. The next who writes a file
gets it again page by page, which here took ten times as long as all else: 2 to 10 s for the same download, by
chance. While there is ballast, a page of each MiB is in use; what is free around it is too small to be given back, and
is what the kernel takes first.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager

from harness.measure import print_progress

_PAGE_BYTES, _BLOCK_BYTES = mmap.PAGESIZE, 1 << 20
_MADV_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, which Python does not name


@contextmanager
def reserve_memory(n_bytes: int) -> Iterator[None]:
    """About so many bytes of free memory are warm until left; 1/256 of them is in use."""
    print_progress(f"warming {n_bytes / 1e9:.0f} GB of memory")
    n_bytes -= n_bytes % _BLOCK_BYTES
    with mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        memory.madvise(_MADV_POPULATE_WRITE)
        for at in range(0, n_bytes, _BLOCK_BYTES):
            memory.madvise(mmap.MADV_DONTNEED, at + _PAGE_BYTES, _BLOCK_BYTES - _PAGE_BYTES)
        yield
