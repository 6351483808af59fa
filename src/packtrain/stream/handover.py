"""Samples go from a worker to the process it was forked from through memory that both see.

Through the pipe that workers write to, each byte would be copied four times, in small pieces: for samples that are not
decoded by the worker that takes longer than reading them. A worker has a few places in the memory, which it fills in
turn; it is never asked for more batches than that before the first is taken out. What does not fit goes by the pipe.
"""

from __future__ import annotations

import mmap
import weakref
from itertools import count
from typing import Any

_numbers = count()
_open: weakref.WeakValueDictionary[int, Memory] = weakref.WeakValueDictionary()


class Memory:
    """`places` of `size` bytes for each of the workers. Make it before they are forked; pages that nobody writes to
    take no room."""

    def __init__(self, workers: int, places: int, size: int) -> None:
        self._places, self._size = places, size
        self._view = memoryview(mmap.mmap(-1, max(1, workers * places * size)))
        self._number, self._turn = next(_numbers), 0
        _open[self._number] = self

    def lent(self, batch: Any, worker: int) -> Any:
        """The batch, with lists of bytes in it replaced by what becomes them again where it is unpickled."""
        start = (worker * self._places + self._turn) * self._size
        self._turn = (self._turn + 1) % self._places
        return self._lent(batch, _Place(start, start + self._size))

    def _lent(self, value: Any, place: _Place) -> Any:
        if type(value) is dict:
            return {key: self._lent(item, place) for key, item in value.items()}
        if type(value) is tuple:
            return tuple([self._lent(item, place) for item in value])
        if type(value) is not list or not value or type(value[0]) is not bytes:
            return value
        if any(type(item) is not bytes for item in value):
            return value
        lengths = [len(item) for item in value]
        start = place.take(sum(lengths))
        return value if start is None else self._written(start, lengths, value)

    def _written(self, start: int, lengths: list[int], items: list[bytes]) -> _Lent:
        view, at = self._view, start
        for item, length in zip(items, lengths):
            view[at : at + length] = item
            at += length
        return _Lent(self._number, start, lengths)

    def returned(self, start: int, lengths: list[int]) -> list[bytes]:
        view, found, at = self._view, [], start
        for length in lengths:
            found.append(bytes(view[at : at + length]))
            at += length
        return found


class _Place:
    def __init__(self, start: int, stop: int) -> None:
        self._at, self._stop = start, stop

    def take(self, size: int) -> int | None:
        if self._at + size > self._stop:
            return None
        at, self._at = self._at, self._at + size
        return at


class _Lent:
    """Pickled, it is a few numbers; unpickled, the list."""

    def __init__(self, memory: int, start: int, lengths: list[int]) -> None:
        self._what = memory, start, lengths

    def __reduce__(self) -> tuple[object, ...]:
        return _returned, self._what


def _returned(memory: int, start: int, lengths: list[int]) -> list[bytes]:
    return _open[memory].returned(start, lengths)
