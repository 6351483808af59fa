"""Batches go from a worker to the process it was forked from through memory that both see.

Through the pipe that workers write to, each byte would be copied four times, in small pieces: for samples that are not
decoded by the worker that takes longer than reading them. Tensors go by memory that torch makes anew for each, and each
new page costs more than filling it. Here the same few places of a worker are used again and again: one is free when
nobody uses anything of what was lent in it. What finds no place, or does not fit, goes by torch's own way.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

_MAX_VALUES_PER_SLOT = 16  # that are lent in one place, at most; each has a byte that says so
_ALIGNMENT = 64

_memory_ids = count()
_open_memories: weakref.WeakValueDictionary[int, SharedBatchMemory] = weakref.WeakValueDictionary()


class BufferCodec(NamedTuple):
    """Values with many bytes: how many (0: leave this one alone), how they are written, and found again.

    `write` gives what `read` needs to know besides. `read` is a function of a module; what it gives has either bytes of
    its own, or the view that it was given, which then keeps the place.
    """

    size_of: Callable[[Any], int]
    write: Callable[[Any, memoryview], Any]
    read: Callable[[memoryview, Any], Any]


class SharedBatchMemory:
    """`places` of `size` bytes for each of the workers, for lists of bytes and for values of these kinds.

    Make it before they are forked; pages that nobody writes to take no room.
    """

    def __init__(
        self, num_workers: int, slots_per_worker: int, slot_bytes: int, codecs: Mapping[type, BufferCodec] | None = None
    ) -> None:
        self._slots_per_worker, self._slot_bytes, self._codecs = slots_per_worker, slot_bytes, codecs or {}
        self._flags_bytes = num_workers * slots_per_worker * _MAX_VALUES_PER_SLOT  # bytes, before the places
        self._view = memoryview(mmap.mmap(-1, self._flags_bytes + num_workers * slots_per_worker * slot_bytes))
        self._memory_id = next(_memory_ids)
        _open_memories[self._memory_id] = self

    def store_batch(self, batch: Any, worker: int) -> Any:
        """The batch, with what is in a place replaced by what becomes it again where it is unpickled."""
        for number in range(worker * self._slots_per_worker, (worker + 1) * self._slots_per_worker):
            flags = number * _MAX_VALUES_PER_SLOT
            if not any(self._view[flags : flags + _MAX_VALUES_PER_SLOT]):
                start = self._flags_bytes + number * self._slot_bytes
                return self._store_value(batch, _SegmentAllocator(flags, start, start + self._slot_bytes))
        return batch

    def _store_value(self, value: Any, slot: _SegmentAllocator) -> Any:
        if type(value) is dict:
            return {key: self._store_value(item, slot) for key, item in value.items()}
        if type(value) is tuple or (type(value) is list and value and type(value[0]) in self._codecs):
            return type(value)([self._store_value(item, slot) for item in value])
        kind = _BYTES_LIST_CODEC if type(value) is list else self._codecs.get(type(value))
        size = kind.size_of(value) if kind else 0
        taken = slot.allocate(size) if size else None
        return value if kind is None or taken is None else self._write_value(kind, value, *taken)

    def _write_value(self, codec: BufferCodec, value: Any, flag: int, start: int, stop: int) -> _StoredValue:
        about = codec.write(value, self._view[start:stop])
        self._view[flag] = 1
        return _StoredValue(self._memory_id, flag, start, stop, codec.read, about)

    def load_value(
        self, flag: int, start: int, stop: int, read: Callable[[memoryview, Any], Any], metadata: Any
    ) -> Any:
        view = self._view[start:stop]
        weakref.finalize(view, _clear_flag, self._view, flag, os.getpid()).atexit = False
        return read(view, metadata)


def _clear_flag(view: memoryview, flag: int, owner_pid: int) -> None:
    """Not by a process that was forked while the one it comes from used it."""
    if os.getpid() == owner_pid:
        view[flag] = 0


class _SegmentAllocator:
    def __init__(self, flags: int, start: int, stop: int) -> None:
        self._next_flag, self._end_flag = flags, flags + _MAX_VALUES_PER_SLOT
        self._next_offset, self._end_offset = start, stop

    def allocate(self, size: int) -> tuple[int, int, int] | None:
        """A flag and as many bytes."""
        start = self._next_offset + -self._next_offset % _ALIGNMENT
        if start + size > self._end_offset or self._next_flag == self._end_flag:
            return None
        self._next_flag, self._next_offset = self._next_flag + 1, start + size
        return self._next_flag - 1, start, self._next_offset


class _StoredValue:
    """Pickled, it is a few numbers; unpickled, the value."""

    def __init__(self, *args: Any) -> None:
        self._args = args

    def __reduce__(self) -> tuple[object, ...]:
        return _load_value, self._args


def _load_value(memory_id: int, *args: Any) -> Any:
    return _open_memories[memory_id].load_value(*args)


def _total_bytes(items: Sequence[Any]) -> int:
    return sum(map(len, items)) if all(type(item) is bytes for item in items) else 0


def _write_bytes_list(items: Sequence[bytes], view: memoryview) -> list[int]:
    lengths, at = [len(item) for item in items], 0
    for item, length in zip(items, lengths):
        view[at : at + length] = item
        at += length
    return lengths


def _read_bytes_list(view: memoryview, lengths: Sequence[int]) -> list[bytes]:
    found, at = [], 0
    for length in lengths:
        found.append(bytes(view[at : at + length]))
        at += length
    return found


_BYTES_LIST_CODEC = BufferCodec(_total_bytes, _write_bytes_list, _read_bytes_list)
