"""Buffers are page-aligned, and are not lent again while a view of them exists."""

from __future__ import annotations

import ctypes
import mmap

from packtrain.transfer.buffer_pool import BufferPool, allocate_page_aligned


def address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def test_memory_is_page_aligned():
    for size in (1, 4096, 1 << 20, (1 << 20) + 1):
        view = allocate_page_aligned(size)
        assert len(view) == size
        assert address(view) % mmap.PAGESIZE == 0


def test_buffer_in_use_is_not_lent_again():
    pool = BufferPool(1 << 16)
    first = pool.acquire()
    first_address, view = address(first), first[10:20]
    del first
    second = pool.acquire()
    assert address(second) != first_address
    view.release()
    third = pool.acquire()
    assert address(third) == first_address
    assert len(third) == 1 << 16
