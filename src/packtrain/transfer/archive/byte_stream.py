"""A stream of bytes that is read once, from start to end, as views without copying.

A `ByteStream` wraps any producer of bytes: a file, a download, a decompressor, or a member of another archive.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol, Union

CHUNK_BYTES = 1 << 20

BytesLike = Union[bytes, memoryview]
ReadNext = Callable[[], BytesLike]
"""Returns the next bytes, of any number; empty only at the end."""


class ViewReader(Protocol):
    """The interface of a download that is unpacked while it is read."""

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes; fewer only at the end."""
        ...

    def read_views(self, size: int, /) -> list[memoryview]:
        """Return `size` bytes as views; fewer only at the end."""
        ...


class ByteStream:
    """A buffered reader over the views that `read_next` returns."""

    def __init__(self, read_next: ReadNext) -> None:
        self._read_next = read_next
        self._view = memoryview(b"")
        self._view_offset = self._view_end = 0  # bytes of the view that were delivered, and its length
        self._bytes_before_view = 0  # total length of earlier views
        self.has_ended = False  # a read reached the end

    @property
    def position(self) -> int:
        """The number of bytes read so far."""
        return self._bytes_before_view + self._view_offset

    def read_views(self, size: int) -> list[memoryview]:
        """Return `size` bytes as views; fewer only at the end."""
        start, end = self._view_offset, self._view_offset + size
        if end <= self._view_end:
            self._view_offset = end
            return [self._view[start:end]]
        return self._gather_views(size)

    def read(self, size: int) -> bytes:
        """Return `size` bytes; fewer only at the end."""
        start, end = self._view_offset, self._view_offset + size
        if end <= self._view_end:
            self._view_offset = end
            return bytes(self._view[start:end])
        return b"".join(self._gather_views(size))

    def peek(self, size: int) -> bytes:
        """Return the next `size` bytes without consuming them; fewer only at the end."""
        if self._view_end - self._view_offset < size:
            self._join_views(size)
        return bytes(self._view[self._view_offset : self._view_offset + size])

    def read_chunk(self, max_bytes: int = CHUNK_BYTES) -> memoryview:
        """Return buffered bytes, at least one and at most `max_bytes`; empty only at the end."""
        if self._view_offset == self._view_end:
            self._load_next_view()
        start, self._view_offset = self._view_offset, min(self._view_offset + max_bytes, self._view_end)
        return self._view[start : self._view_offset]

    def skip(self, size: int) -> None:
        """Consume `size` bytes; fewer only at the end."""
        if self._view_offset + size <= self._view_end:
            self._view_offset += size
            return
        while size and not self.has_ended:
            size -= len(self.read_chunk(size))

    def drain(self) -> None:
        """Consume everything: compressed streams have their checksum at the very end."""
        while len(self.read_chunk()):
            pass

    def substream(self, size: int) -> ByteStream:
        """Return a stream of the next `size` bytes; only the substream may be read until it ends."""
        remaining = size

        def read_next() -> BytesLike:
            nonlocal remaining
            view = self.read_chunk(remaining) if remaining else memoryview(b"")
            remaining -= len(view)
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
        """Buffer at least `size` bytes in one view, unless the stream ends before."""
        position, views = self.position, self._gather_views(size)
        remainder = self._view[self._view_offset : self._view_end]
        self._view = memoryview(b"".join((*views, remainder)))
        self._bytes_before_view, self._view_offset, self._view_end = position, 0, len(self._view)
        self.has_ended = False


def stream_from_bytes(*chunks: BytesLike) -> ByteStream:
    """Return a stream over bytes in memory."""
    pending = [chunk for chunk in reversed(chunks) if len(chunk)]
    return ByteStream(lambda: pending.pop() if pending else b"")


def prepend(first: bytes, rest: ByteStream) -> ByteStream:
    """Return a stream that begins with `first`."""
    pending = [first] if first else []
    return ByteStream(lambda: pending.pop() if pending else rest.read_chunk())


def stream_from_fd(fd: int, chunk_bytes: int = CHUNK_BYTES) -> ByteStream:
    """Return a stream over an open file."""
    return ByteStream(lambda: os.read(fd, chunk_bytes))


def stream_from_reader(reader: ViewReader, chunk_bytes: int = CHUNK_BYTES) -> ByteStream:
    """Return a stream over the views of a reader."""
    views: list[memoryview] = []

    def read_next() -> BytesLike:
        if not views:
            views.extend(view for view in reversed(reader.read_views(chunk_bytes)) if len(view))
        return views.pop() if views else b""

    return ByteStream(read_next)
