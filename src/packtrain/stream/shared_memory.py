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

_THINGS = 16  # that are lent in one place, at most; each has a byte that says so
_ALIGNED = 64

_numbers = count()
_open: weakref.WeakValueDictionary[int, Memory] = weakref.WeakValueDictionary()


class Kind(NamedTuple):
    """Values with many bytes: how many (0: leave this one alone), how they are written, and found again.

    `write` gives what `read` needs to know besides. `read` is a function of a module; what it gives has either bytes of
    its own, or the view that it was given, which then keeps the place.
    """

    size: Callable[[Any], int]
    write: Callable[[Any, memoryview], Any]
    read: Callable[[memoryview, Any], Any]


class Memory:
    """`places` of `size` bytes for each of the workers, for lists of bytes and for values of these kinds.

    Make it before they are forked; pages that nobody writes to take no room.
    """

    def __init__(self, workers: int, places: int, size: int, kinds: Mapping[type, Kind] | None = None) -> None:
        self._places, self._size, self._kinds = places, size, kinds or {}
        self._flags = workers * places * _THINGS  # bytes, before the places
        self._view = memoryview(mmap.mmap(-1, self._flags + workers * places * size))
        self._number = next(_numbers)
        _open[self._number] = self

    def lent(self, batch: Any, worker: int) -> Any:
        """The batch, with what is in a place replaced by what becomes it again where it is unpickled."""
        for number in range(worker * self._places, (worker + 1) * self._places):
            flags = number * _THINGS
            if not any(self._view[flags : flags + _THINGS]):
                start = self._flags + number * self._size
                return self._lent(batch, _Place(flags, start, start + self._size))
        return batch

    def _lent(self, value: Any, place: _Place) -> Any:
        if type(value) is dict:
            return {key: self._lent(item, place) for key, item in value.items()}
        if type(value) is tuple or (type(value) is list and value and type(value[0]) in self._kinds):
            return type(value)([self._lent(item, place) for item in value])
        kind = _BYTES if type(value) is list else self._kinds.get(type(value))
        size = kind.size(value) if kind else 0
        taken = place.take(size) if size else None
        return value if kind is None or taken is None else self._written(kind, value, *taken)

    def _written(self, kind: Kind, value: Any, flag: int, start: int, stop: int) -> _Lent:
        about = kind.write(value, self._view[start:stop])
        self._view[flag] = 1
        return _Lent(self._number, flag, start, stop, kind.read, about)

    def found(self, flag: int, start: int, stop: int, read: Callable[[memoryview, Any], Any], about: Any) -> Any:
        view = self._view[start:stop]
        weakref.finalize(view, _free, self._view, flag, os.getpid()).atexit = False
        return read(view, about)


def _free(view: memoryview, flag: int, process: int) -> None:
    """Not by a process that was forked while the one it comes from used it."""
    if os.getpid() == process:
        view[flag] = 0


class _Place:
    def __init__(self, flags: int, start: int, stop: int) -> None:
        self._flag, self._last = flags, flags + _THINGS
        self._at, self._stop = start, stop

    def take(self, size: int) -> tuple[int, int, int] | None:
        """A flag and as many bytes."""
        start = self._at + -self._at % _ALIGNED
        if start + size > self._stop or self._flag == self._last:
            return None
        self._flag, self._at = self._flag + 1, start + size
        return self._flag - 1, start, self._at


class _Lent:
    """Pickled, it is a few numbers; unpickled, the value."""

    def __init__(self, *what: Any) -> None:
        self._what = what

    def __reduce__(self) -> tuple[object, ...]:
        return _found, self._what


def _found(memory: int, *what: Any) -> Any:
    return _open[memory].found(*what)


def _size_of_all(items: Sequence[Any]) -> int:
    return sum(map(len, items)) if all(type(item) is bytes for item in items) else 0


def _write_all(items: Sequence[bytes], view: memoryview) -> list[int]:
    lengths, at = [len(item) for item in items], 0
    for item, length in zip(items, lengths):
        view[at : at + length] = item
        at += length
    return lengths


def _read_all(view: memoryview, lengths: Sequence[int]) -> list[bytes]:
    found, at = [], 0
    for length in lengths:
        found.append(bytes(view[at : at + length]))
        at += length
    return found


_BYTES = Kind(_size_of_all, _write_all, _read_all)
