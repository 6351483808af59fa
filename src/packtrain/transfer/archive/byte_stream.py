"""Bytes that are read once, from beginning to end, and handed on as views: nothing is copied that need not be.

A `Flow` is over whatever gives the next bytes: a file, a download, a decompressor, a member of another archive.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol, Union

BLOCK = 1 << 20

Piece = Union[bytes, memoryview]
More = Callable[[], Piece]
"""The next bytes, as many as there are; empty only at the end."""


class Reader(Protocol):
    """What a download looks like to who unpacks it."""

    def read(self, size: int, /) -> bytes: ...

    def take(self, size: int, /) -> list[memoryview]:
        """So many bytes; fewer only at the end."""
        ...


class Flow:
    def __init__(self, more: More) -> None:
        self._more = more
        self._view = memoryview(b"")
        self._at = self._stop = 0  # of the view: given so far, and its end
        self._before = 0  # bytes of earlier views
        self.ended = False  # somebody asked for more than there was

    @property
    def position(self) -> int:
        return self._before + self._at

    def take(self, size: int) -> list[memoryview]:
        """So many bytes; fewer only at the end."""
        at, end = self._at, self._at + size
        if end <= self._stop:
            self._at = end
            return [self._view[at:end]]
        return self._gather(size)

    def read(self, size: int) -> bytes:
        """So many bytes; fewer only at the end."""
        at, end = self._at, self._at + size
        if end <= self._stop:
            self._at = end
            return bytes(self._view[at:end])
        return b"".join(self._gather(size))

    def peek(self, size: int) -> bytes:
        """The next bytes, which stay where they are; fewer only at the end."""
        if self._stop - self._at < size:
            self._join(size)
        return bytes(self._view[self._at : self._at + size])

    def some(self, most: int = BLOCK) -> memoryview:
        """The bytes that are at hand, at least one; empty only at the end."""
        if self._at == self._stop:
            self._next()
        at, self._at = self._at, min(self._at + most, self._stop)
        return self._view[at : self._at]

    def skip(self, size: int) -> None:
        if self._at + size <= self._stop:
            self._at += size
            return
        while size and not self.ended:
            size -= len(self.some(size))

    def drain(self) -> None:
        """To the very end, where compressed streams have their checksum."""
        while len(self.some()):
            pass

    def within(self, size: int) -> Flow:
        """A flow of the next so many bytes; it alone is read until its end."""
        left = size

        def more() -> Piece:
            nonlocal left
            view = self.some(left) if left else memoryview(b"")
            left -= len(view)
            return view

        return Flow(more)

    def _gather(self, size: int) -> list[memoryview]:
        views = []
        while size:
            if self._at == self._stop and not self._next():
                break
            view = self._view[self._at : self._at + size]
            self._at += len(view)
            size -= len(view)
            views.append(view)
        return views

    def _next(self) -> bool:
        self._before += self._stop
        self._view = memoryview(self._more())
        self._at, self._stop = 0, len(self._view)
        self.ended = not self._stop
        return not self.ended

    def _join(self, size: int) -> None:
        """Make what is at hand at least so long."""
        position, views = self.position, self._gather(size)
        rest = self._view[self._at : self._stop]
        self._view = memoryview(b"".join((*views, rest)))
        self._before, self._at, self._stop = position, 0, len(self._view)
        self.ended = False


def of_file(handle: int, size: int = BLOCK) -> Flow:
    return Flow(lambda: os.read(handle, size))


def of_reader(reader: Reader, size: int = BLOCK) -> Flow:
    """The reader's views, one after the other."""
    views: list[memoryview] = []

    def more() -> Piece:
        if not views:
            views.extend(view for view in reversed(reader.take(size)) if len(view))
        return views.pop() if views else b""

    return Flow(more)
