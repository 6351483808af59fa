"""Memory that is lent is not lent again while anybody looks into it."""

from __future__ import annotations

import ctypes
import mmap

from packtrain.transfer.buffer_pool import BufferPool, allocate_page_aligned


def address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def test_memory_begins_at_a_page():
    for size in (1, 4096, 1 << 20, (1 << 20) + 1):
        view = allocate_page_aligned(size)
        assert len(view) == size
        assert address(view) % mmap.PAGESIZE == 0


def test_a_buffer_is_lent_again_only_when_nobody_looks_into_it():
    buffers = BufferPool(1 << 16)
    first = buffers.acquire()
    where, slice_of_it = address(first), first[10:20]
    del first
    second = buffers.acquire()
    assert address(second) != where
    slice_of_it.release()
    third = buffers.acquire()
    assert address(third) == where
    assert len(third) == 1 << 16
