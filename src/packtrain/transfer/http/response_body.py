"""Where a body ends: after so many bytes, after the last chunk, or with the connection (RFC 9112, 6.3)."""

from __future__ import annotations

from typing import Protocol

from packtrain.transfer.http.connection import CutError, Head, NotHttpError, Wire
from packtrain.transfer.http.headers import Fields

_LINE_LIMIT = 1 << 16


class Body(Protocol):
    def readinto(self, view: memoryview) -> int:
        """0 at the end. Raises CutError when the connection ended before."""
        ...

    def done(self) -> bool:
        """Whether the next answer could follow on the same connection."""
        ...


class Sized:
    def __init__(self, wire: Wire, length: int) -> None:
        self._wire, self._left = wire, length

    def readinto(self, view: memoryview) -> int:
        if not self._left:
            return 0
        count = self._wire.readinto(view[: self._left], self._left)
        if not count:
            raise CutError
        self._left -= count
        return count

    def done(self) -> bool:
        return self._left == 0


class ToTheEnd:
    def __init__(self, wire: Wire) -> None:
        self._wire, self._ended = wire, False

    def readinto(self, view: memoryview) -> int:
        count = 0 if self._ended else self._wire.readinto(view)
        self._ended = count == 0
        return count

    def done(self) -> bool:
        return False


class Chunked:
    """`trailers` are there at the end."""

    def __init__(self, wire: Wire, trailers: Fields) -> None:
        self._wire, self._trailers = wire, trailers
        self._chunk = 0  # bytes to come of this chunk
        self._first, self._ended = True, False

    def readinto(self, view: memoryview) -> int:
        if not self._chunk and not self._ended:
            self._next_chunk()
        if self._ended:
            return 0
        count = self._wire.readinto(view[: self._chunk], self._chunk)
        if not count:
            raise CutError
        self._chunk -= count
        return count

    def _next_chunk(self) -> None:
        if not self._first:
            self._line()
        self._first = False
        size = self._line().partition(b";")[0].strip()
        if not size or size.strip(b"0123456789abcdefABCDEF"):
            raise NotHttpError(repr(size[:80]))
        self._chunk = int(size, 16)
        if not self._chunk:
            self._read_trailers()

    def _read_trailers(self) -> None:
        while True:
            line = self._line()
            if not line:
                break
            self._trailers.add_line(line.decode("latin-1"))
        self._ended = True

    def _line(self) -> bytes:
        line, byte = bytearray(), memoryview(bytearray(1))
        while not line.endswith(b"\n"):
            if not self._wire.readinto(byte) or len(line) > _LINE_LIMIT:
                raise CutError
            line += byte
        return bytes(line).rstrip(b"\r\n")

    def done(self) -> bool:
        return self._ended


def body_of(wire: Wire, head: Head, method: str, trailers: Fields) -> Body:
    headers = head.headers
    if method == "HEAD" or head.status in (204, 304):
        return Sized(wire, 0)
    if "chunked" in headers.get("Transfer-Encoding", "").lower():
        return Chunked(wire, trailers)
    length = headers.get("Content-Length", "")
    return Sized(wire, int(length)) if length.isdecimal() else ToTheEnd(wire)
