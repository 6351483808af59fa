"""Keep free memory attached to this machine, so that new pages cost every client the same in every round.

A virtual machine may return free memory to its host within seconds, in units of 2 MiB. The next process that writes a
file gets it back page by page, which took ten times as long as everything else: 2 to 10 s for the same download, at
random. The reserve keeps one page of each MiB in use. The free memory in between is too fragmented to be returned, and
the kernel allocates it first.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager

from harness.measure import print_progress

_PAGE_BYTES, _BLOCK_BYTES = mmap.PAGESIZE, 1 << 20
_MADV_POPULATE_WRITE = 23  # not in the mmap module


@contextmanager
def reserve_memory(n_bytes: int) -> Iterator[None]:
    """Keep about `n_bytes` of free memory attached in a `with` block; 1/256 of it is in use."""
    print_progress(f"reserving {n_bytes / 1e9:.0f} GB of memory")
    n_bytes -= n_bytes % _BLOCK_BYTES
    with mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        memory.madvise(_MADV_POPULATE_WRITE)
        for offset in range(0, n_bytes, _BLOCK_BYTES):
            memory.madvise(mmap.MADV_DONTNEED, offset + _PAGE_BYTES, _BLOCK_BYTES - _PAGE_BYTES)
        yield
