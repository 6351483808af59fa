"""Return batches from worker processes to the process that forked them, through shared memory.

The pipe that workers write to would copy each byte four times, in small pieces: for samples that the worker does not
decode, that takes longer than reading them. For tensors torch allocates new shared memory each time, and a new page
costs more than filling it. Here each worker reuses a few slots: a slot is free when the training no longer uses any
value in it. A value that finds no slot, or does not fit, takes torch's own way.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

_MAX_VALUES_PER_SLOT = 16  # each value has a flag byte that is 1 while the value is in use
_ALIGNMENT = 64

_memory_ids = count()
_open_memories: weakref.WeakValueDictionary[int, SharedBatchMemory] = weakref.WeakValueDictionary()


class BufferCodec(NamedTuple):
    """How to store the values of one type in a buffer.

    Attributes:
        size_of: Returns the number of bytes that a value needs; 0: do not store it.
        write: Writes a value to a buffer and returns the metadata that `read` needs.
        read: Returns the value of a buffer and its metadata. A function at module level. The value either has its own
            memory or refers to the buffer, which keeps the slot in use.
    """

    size_of: Callable[[Any], int]
    write: Callable[[Any, memoryview], Any]
    read: Callable[[memoryview, Any], Any]


class SharedBatchMemory:
    """Slots in shared memory for lists of bytes, and for values of the types in `codecs`.

    Create it before the workers are forked. Pages that are never written use no memory.

    Args:
        num_workers: Number of workers.
        slots_per_worker: Number of slots of each worker; a slot holds one batch.
        slot_bytes: Size of a slot, in bytes.
        codecs: How to store values of other types.

    Raises:
        OSError: There is not enough memory.
    """

    def __init__(
        self, num_workers: int, slots_per_worker: int, slot_bytes: int, codecs: Mapping[type, BufferCodec] | None = None
    ) -> None:
        self._slots_per_worker, self._slot_bytes, self._codecs = slots_per_worker, slot_bytes, codecs or {}
        self._flags_bytes = num_workers * slots_per_worker * _MAX_VALUES_PER_SLOT  # the flags precede the slots
        self._view = memoryview(mmap.mmap(-1, self._flags_bytes + num_workers * slots_per_worker * slot_bytes))
        self._memory_id = next(_memory_ids)
        _open_memories[self._memory_id] = self

    def store_batch(self, batch: Any, worker: int) -> Any:
        """Store the values of a batch in a free slot.

        Args:
            batch: A batch: tuples, lists and dicts of values.
            worker: The worker that calls, from 0.

        Returns:
            The batch with each stored value replaced by a reference, which unpickles to the value. Without a free
            slot: the batch itself.
        """
        for slot in range(worker * self._slots_per_worker, (worker + 1) * self._slots_per_worker):
            flags = slot * _MAX_VALUES_PER_SLOT
            if not any(self._view[flags : flags + _MAX_VALUES_PER_SLOT]):
                start = self._flags_bytes + slot * self._slot_bytes
                return self._store_value(batch, _SegmentAllocator(flags, start, start + self._slot_bytes))
        return batch

    def _store_value(self, value: Any, allocator: _SegmentAllocator) -> Any:
        if type(value) is dict:
            return {key: self._store_value(item, allocator) for key, item in value.items()}
        if type(value) is tuple or (type(value) is list and value and type(value[0]) in self._codecs):
            return type(value)([self._store_value(item, allocator) for item in value])
        codec = _BYTES_LIST_CODEC if type(value) is list else self._codecs.get(type(value))
        size = codec.size_of(value) if codec else 0
        segment = allocator.allocate(size) if size else None
        return value if codec is None or segment is None else self._write_value(codec, value, *segment)

    def _write_value(self, codec: BufferCodec, value: Any, flag: int, start: int, stop: int) -> _StoredValue:
        metadata = codec.write(value, self._view[start:stop])
        self._view[flag] = 1
        return _StoredValue(self._memory_id, flag, start, stop, codec.read, metadata)

    def load_value(
        self, flag: int, start: int, stop: int, read: Callable[[memoryview, Any], Any], metadata: Any
    ) -> Any:
        """Return a stored value. Its flag is cleared when the value is garbage-collected.

        Args:
            flag: The offset of its flag.
            start: The offset of its bytes.
            stop: The end of its bytes.
            read: The function `read` of its codec.
            metadata: What the function `write` of its codec returned.
        """
        view = self._view[start:stop]
        weakref.finalize(view, _clear_flag, self._view, flag, os.getpid()).atexit = False
        return read(view, metadata)


def _clear_flag(view: memoryview, flag: int, owner_pid: int) -> None:
    """Clear a flag, but not from a process that was forked while its parent used the value."""
    if os.getpid() == owner_pid:
        view[flag] = 0


class _SegmentAllocator:
    """Assigns flags and aligned segments of one slot."""

    def __init__(self, flags: int, start: int, stop: int) -> None:
        self._next_flag, self._end_flag = flags, flags + _MAX_VALUES_PER_SLOT
        self._next_offset, self._end_offset = start, stop

    def allocate(self, size: int) -> tuple[int, int, int] | None:
        """Return a flag and the start and end of `size` bytes, or None if the slot is full."""
        start = self._next_offset + -self._next_offset % _ALIGNMENT
        if start + size > self._end_offset or self._next_flag == self._end_flag:
            return None
        self._next_flag, self._next_offset = self._next_flag + 1, start + size
        return self._next_flag - 1, start, self._next_offset


class _StoredValue:
    """A reference to a stored value: pickles as a few numbers, unpickles as the value."""

    def __init__(self, *args: Any) -> None:
        self._args = args

    def __reduce__(self) -> tuple[object, ...]:
        return _load_value, self._args


def _load_value(memory_id: int, *args: Any) -> Any:
    return _open_memories[memory_id].load_value(*args)


def _total_bytes(items: Sequence[Any]) -> int:
    return sum(map(len, items)) if all(type(item) is bytes for item in items) else 0


def _write_bytes_list(items: Sequence[bytes], view: memoryview) -> list[int]:
    lengths, offset = [len(item) for item in items], 0
    for item, length in zip(items, lengths):
        view[offset : offset + length] = item
        offset += length
    return lengths


def _read_bytes_list(view: memoryview, lengths: Sequence[int]) -> list[bytes]:
    items, offset = [], 0
    for length in lengths:
        items.append(bytes(view[offset : offset + length]))
        offset += length
    return items


_BYTES_LIST_CODEC = BufferCodec(_total_bytes, _write_bytes_list, _read_bytes_list)
