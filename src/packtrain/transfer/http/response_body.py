"""Bodies of responses: with a fixed length, chunked, or until the connection closes (RFC 9112, 6.3)."""

from __future__ import annotations

from typing import Protocol

from packtrain.transfer.http.connection import Http11Connection, RemoteProtocolError, ResponseHead, TruncatedBodyError
from packtrain.transfer.http.headers import Headers

_MAX_LINE_BYTES = 1 << 16


class ResponseBody(Protocol):
    """The body of a response."""

    def readinto(self, buffer: memoryview) -> int:
        """Read some bytes; return 0 at the end. Raises TruncatedBodyError if the connection ends early."""
        ...

    def can_reuse_connection(self) -> bool:
        """Return whether the body was read completely, so that the connection can be reused."""
        ...


class FixedLengthBody:
    """A body with Content-Length."""

    def __init__(self, connection: Http11Connection, length: int) -> None:
        self._connection, self._remaining_bytes = connection, length

    def readinto(self, buffer: memoryview) -> int:
        if not self._remaining_bytes:
            return 0
        count = self._connection.readinto(buffer[: self._remaining_bytes])
        if not count:
            raise TruncatedBodyError
        self._remaining_bytes -= count
        return count

    def can_reuse_connection(self) -> bool:
        return self._remaining_bytes == 0


class UntilCloseBody:
    """A body that ends with the connection."""

    def __init__(self, connection: Http11Connection) -> None:
        self._connection, self._is_finished = connection, False

    def readinto(self, buffer: memoryview) -> int:
        count = 0 if self._is_finished else self._connection.readinto(buffer)
        self._is_finished = count == 0
        return count

    def can_reuse_connection(self) -> bool:
        return False


class ChunkedBody:
    """A body with Transfer-Encoding: chunked; fills `trailers` at its end."""

    def __init__(self, connection: Http11Connection, trailers: Headers) -> None:
        self._connection, self._trailers = connection, trailers
        self._chunk_remaining_bytes = 0
        self._is_first_chunk, self._is_finished = True, False

    def readinto(self, buffer: memoryview) -> int:
        if not self._chunk_remaining_bytes and not self._is_finished:
            self._read_chunk_header()
        if self._is_finished:
            return 0
        count = self._connection.readinto(buffer[: self._chunk_remaining_bytes])
        if not count:
            raise TruncatedBodyError
        self._chunk_remaining_bytes -= count
        return count

    def _read_chunk_header(self) -> None:
        if not self._is_first_chunk:
            self._read_line()
        self._is_first_chunk = False
        size = self._read_line().partition(b";")[0].strip()
        if not size or size.strip(b"0123456789abcdefABCDEF"):
            raise RemoteProtocolError(repr(size[:80]))
        self._chunk_remaining_bytes = int(size, 16)
        if not self._chunk_remaining_bytes:
            self._read_trailers()

    def _read_trailers(self) -> None:
        while True:
            line = self._read_line()
            if not line:
                break
            self._trailers.add_line(line.decode("latin-1"))
        self._is_finished = True

    def _read_line(self) -> bytes:
        line, byte = bytearray(), memoryview(bytearray(1))
        while not line.endswith(b"\n"):
            if not self._connection.readinto(byte) or len(line) > _MAX_LINE_BYTES:
                raise TruncatedBodyError
            line += byte
        return bytes(line).rstrip(b"\r\n")

    def can_reuse_connection(self) -> bool:
        return self._is_finished


def make_response_body(
    connection: Http11Connection, head: ResponseHead, method: str, trailers: Headers
) -> ResponseBody:
    """Return the body that the head of a response announces."""
    headers = head.headers
    if method == "HEAD" or head.status in (204, 304):
        return FixedLengthBody(connection, 0)
    if "chunked" in headers.get("Transfer-Encoding", "").lower():
        return ChunkedBody(connection, trailers)
    length = headers.get("Content-Length", "")
    return FixedLengthBody(connection, int(length)) if length.isdecimal() else UntilCloseBody(connection)
