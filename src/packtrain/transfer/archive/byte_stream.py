"""Bytes that are read once, from beginning to end, and handed on as views: nothing is copied that need not be.

A `Flow` is over whatever gives the next bytes: a file, a download, a decompressor, a member of another archive.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol, Union

CHUNK_BYTES = 1 << 20

BytesLike = Union[bytes, memoryview]
ReadNext = Callable[[], BytesLike]
"""The next bytes, as many as there are; empty only at the end."""


class ViewReader(Protocol):
    """What a download looks like to who unpacks it."""

    def read(self, size: int, /) -> bytes: ...

    def read_views(self, size: int, /) -> list[memoryview]:
        """So many bytes; fewer only at the end."""
        ...


class ByteStream:
    def __init__(self, read_next: ReadNext) -> None:
        self._read_next = read_next
        self._view = memoryview(b"")
        self._view_offset = self._view_end = 0  # of the view: given so far, and its end
        self._bytes_before_view = 0  # bytes of earlier views
        self.has_ended = False  # somebody asked for more than there was

    @property
    def position(self) -> int:
        return self._bytes_before_view + self._view_offset

    def read_views(self, size: int) -> list[memoryview]:
        """So many bytes; fewer only at the end."""
        at, end = self._view_offset, self._view_offset + size
        if end <= self._view_end:
            self._view_offset = end
            return [self._view[at:end]]
        return self._gather_views(size)

    def read(self, size: int) -> bytes:
        """So many bytes; fewer only at the end."""
        at, end = self._view_offset, self._view_offset + size
        if end <= self._view_end:
            self._view_offset = end
            return bytes(self._view[at:end])
        return b"".join(self._gather_views(size))

    def peek(self, size: int) -> bytes:
        """The next bytes, which stay where they are; fewer only at the end."""
        if self._view_end - self._view_offset < size:
            self._join_views(size)
        return bytes(self._view[self._view_offset : self._view_offset + size])

    def read_chunk(self, max_bytes: int = CHUNK_BYTES) -> memoryview:
        """The bytes that are at hand, at least one; empty only at the end."""
        if self._view_offset == self._view_end:
            self._load_next_view()
        at, self._view_offset = self._view_offset, min(self._view_offset + max_bytes, self._view_end)
        return self._view[at : self._view_offset]

    def skip(self, size: int) -> None:
        if self._view_offset + size <= self._view_end:
            self._view_offset += size
            return
        while size and not self.has_ended:
            size -= len(self.read_chunk(size))

    def drain(self) -> None:
        """To the very end, where compressed streams have their checksum."""
        while len(self.read_chunk()):
            pass

    def substream(self, size: int) -> ByteStream:
        """A flow of the next so many bytes; it alone is read until its end."""
        left = size

        def read_next() -> BytesLike:
            nonlocal left
            view = self.read_chunk(left) if left else memoryview(b"")
            left -= len(view)
            return view

        return ByteStream(read_next)

    def _gather_views(self, size: int) -> list[memoryview]:
        views = []
        while size:
            if self._view_offset == self._view_end and not self._load_next_view():
                break
            view = self._view[self._view_offset : self._view_offset + size]
            self._view_offset += len(view)
            size -= len(view)
            views.append(view)
        return views

    def _load_next_view(self) -> bool:
        self._bytes_before_view += self._view_end
        self._view = memoryview(self._read_next())
        self._view_offset, self._view_end = 0, len(self._view)
        self.has_ended = not self._view_end
        return not self.has_ended

    def _join_views(self, size: int) -> None:
        """Make what is at hand at least so long."""
        position, views = self.position, self._gather_views(size)
        rest = self._view[self._view_offset : self._view_end]
        self._view = memoryview(b"".join((*views, rest)))
        self._bytes_before_view, self._view_offset, self._view_end = position, 0, len(self._view)
        self.has_ended = False


def stream_from_fd(fd: int, chunk_bytes: int = CHUNK_BYTES) -> ByteStream:
    return ByteStream(lambda: os.read(fd, chunk_bytes))


def stream_from_reader(reader: ViewReader, chunk_bytes: int = CHUNK_BYTES) -> ByteStream:
    """The reader's views, one after the other."""
    views: list[memoryview] = []

    def read_next() -> BytesLike:
        if not views:
            views.extend(view for view in reversed(reader.read_views(chunk_bytes)) if len(view))
        return views.pop() if views else b""

    return ByteStream(read_next)
