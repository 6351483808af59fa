"""A socket as http.client uses it: waits are short and can be cancelled, and responses cannot exhaust the reader.

Blocking operations wait in short intervals and call the thread's cancellation check in between, which may raise to
abort a stalled transfer before the fixed timeout. Timeouts apply to silence, so a slow body that makes progress is
never aborted; heads, chunk sizes and trailers are also limited in length and duration.
"""

from __future__ import annotations

import contextlib
import io
import select
import socket
import struct
import time
from collections.abc import Callable
from http.client import HTTPException, IncompleteRead
from typing import TYPE_CHECKING, Any, Union, cast

from packtrain.formatting import format_duration
from packtrain.transfer.tasks.cancellation import check_cancelled, scope_handles_read_timeout

if TYPE_CHECKING:
    import ssl

    Socket = Union[socket.socket, ssl.SSLSocket]

READ_TIMEOUT_S = 30.0
HEAD_TIMEOUT_S = 60.0
MAX_HEAD_BYTES = 1 << 16
_POLL_INTERVAL_S = 0.25
_BUFFER_BYTES = 1 << 14


class RemoteProtocolError(HTTPException):
    """The server's response is not valid HTTP."""


class SocketStream:
    """A connected socket with timeouts and cancellation, in the form that http.client expects of a socket.

    Args:
        sock: The socket.
        head_timeout_s: How long a head may take, from its first byte to its last.
    """

    def __init__(self, sock: Socket, head_timeout_s: float = HEAD_TIMEOUT_S) -> None:
        self._sock = sock
        interval_s = min(_POLL_INTERVAL_S, READ_TIMEOUT_S)
        if _uses_tls(sock):
            sock.settimeout(interval_s)
        else:  # with timeouts of the kernel, MSG_WAITALL fills a whole buffer in one call
            sock.settimeout(None)
            timeval = struct.pack("ll", int(interval_s), int(interval_s % 1 * 1e6))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        self._reader = ResponseReader(_SocketReader(sock, head_timeout_s))

    def sendall(self, data: bytes) -> None:
        """Send all bytes."""
        view = memoryview(data)
        while view:
            view = view[_wait_for(lambda: self._sock.send(view)) :]  # noqa: B023 - called at once

    def makefile(self, mode: str) -> ResponseReader:
        """Return the reader of this connection, the same for all of its responses."""
        return self._reader

    def is_idle(self) -> bool:
        """Return whether the server has sent nothing since the last response, and has not closed the connection."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        has_decrypted_bytes = _uses_tls(self._sock) and cast("ssl.SSLSocket", self._sock).pending()
        return not has_decrypted_bytes and not self._reader.buffered() and not poller.poll(0)

    def close(self) -> None:
        self._sock.close()


class _SocketReader(io.RawIOBase):
    """Receives from a socket. Does not own it."""

    def __init__(self, sock: Socket, head_timeout_s: float) -> None:
        self._sock, self._uses_tls, self._head_timeout_s = sock, _uses_tls(sock), head_timeout_s
        self.is_paused = False  # receives nothing
        self.is_in_head = False  # the duration is limited
        self.head_ends_at: float | None = None  # known from the first byte of the head on

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        if self.is_paused:
            return None
        if self.is_in_head and self.head_ends_at is not None:
            check_cancelled()
            if time.monotonic() > self.head_ends_at:
                raise RemoteProtocolError(f"its head takes longer than {format_duration(self._head_timeout_s)}")
        count = _wait_for(lambda: self._receive(buffer))
        if self.is_in_head and self.head_ends_at is None:
            self.head_ends_at = time.monotonic() + self._head_timeout_s
        return count

    def _receive(self, buffer: memoryview) -> int:
        is_body = len(buffer) > _BUFFER_BYTES  # the caller's own buffer: fill it, or return what came in an interval
        if self._uses_tls:
            return self._receive_tls_records(buffer) if is_body else self._sock.recv_into(buffer)
        return self._sock.recv_into(buffer, 0, socket.MSG_WAITALL if is_body else 0)

    def _receive_tls_records(self, buffer: memoryview) -> int:
        """Receive as many TLS records (16 kB each) as arrive within the poll interval."""
        count, receive = self._sock.recv_into(buffer), self._sock.recv_into
        deadline = time.monotonic() + _POLL_INTERVAL_S
        with contextlib.suppress(socket.timeout, BlockingIOError):
            while count < len(buffer) and time.monotonic() < deadline:
                more = receive(buffer[count:])
                if not more:
                    break
                count += more
        return count


class ResponseReader(io.BufferedReader):
    """Reads responses: heads by lines, within limits, and bodies directly into the caller's buffer."""

    def __init__(self, raw: _SocketReader) -> None:
        super().__init__(raw, _BUFFER_BYTES)
        self._socket_reader, self._remaining_head_bytes = raw, MAX_HEAD_BYTES

    def start_head(self) -> None:
        """Restart the limits, for the lines of another head, chunk size or trailer."""
        self._remaining_head_bytes, self._socket_reader.head_ends_at = MAX_HEAD_BYTES, None

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line, or b"" if the connection ends before the first line."""
        self._socket_reader.is_in_head = True
        try:
            line = super().readline(self._remaining_head_bytes + 1)
        finally:
            self._socket_reader.is_in_head = False
        is_first = self._remaining_head_bytes == MAX_HEAD_BYTES
        self._remaining_head_bytes -= len(line)
        if self._remaining_head_bytes < 0:
            raise RemoteProtocolError(f"its head is longer than {MAX_HEAD_BYTES} bytes")
        if not line.endswith(b"\n") and (line or not is_first):
            raise IncompleteRead(line)
        if b"\r" in line[:-2] or b"\0" in line:
            raise RemoteProtocolError("its head has control characters")
        return line

    def readinto(self, buffer: Any, /) -> int:
        """Return the bytes that are there; wait only if there are none."""
        n_buffered = len(self.buffered())
        return self.readinto1(memoryview(buffer)[:n_buffered] if n_buffered else buffer)

    def buffered(self) -> bytes:
        """Return the bytes that were received, but not read yet."""
        self._socket_reader.is_paused = True
        try:
            return self.peek(1)
        finally:
            self._socket_reader.is_paused = False

    def close(self) -> None:
        """Do nothing: http.client closes its file after each response, but the connection may be used again."""


def _uses_tls(sock: Socket) -> bool:
    return hasattr(sock, "pending")


def _wait_for(operation: Callable[[], int]) -> int:
    started_at = time.monotonic()
    while True:
        try:
            return operation()
        except (BlockingIOError, socket.timeout):
            check_cancelled()
            if time.monotonic() - started_at >= READ_TIMEOUT_S and not scope_handles_read_timeout():
                raise socket.timeout("no data") from None
