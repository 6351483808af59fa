"""HTTP/1.1 on one socket: write a request, read a response head, receive the body into the caller's buffer.

Blocking operations wait in short intervals and call the thread's cancellation check in between, which may raise to
abort a stalled transfer before the fixed timeout.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, Union

from packtrain.transfer.cancellation import check_cancelled, scope_handles_read_timeout
from packtrain.transfer.http.headers import Headers
from packtrain.transfer.http.request_body import RequestBodyReader

if TYPE_CHECKING:
    import ssl

    Socket = Union[socket.socket, ssl.SSLSocket]

CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.25
_IntOrBytes = TypeVar("_IntOrBytes", int, bytes)
_MAX_HEAD_BYTES = 1 << 16
_SEND_BLOCK_BYTES = 1 << 16
_TCP_INFO_RTT_OFFSET = 68  # in Linux's tcp_info, in microseconds
_STATUS_LINE = re.compile(rb"HTTP/1\.(\d) +(\d{3})(?: +([^\r\n]*))?\r?\n")
_HEAD_END = re.compile(rb"\r?\n\r?\n")


class RemoteProtocolError(Exception):
    """The server's response is not HTTP."""


class TruncatedBodyError(Exception):
    """The connection was closed before the end of the body."""


@dataclass(frozen=True)
class ResponseHead:
    """Status line and headers of a response."""

    status: int
    reason: str
    headers: Headers
    keep_alive: bool  # whether the connection stays open


class Http11Connection:
    """One connection. `response_body` handles the framing of bodies."""

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        self._buffered = memoryview(b"")  # bytes of the body that were received with the head
        # TLS sockets support neither flags nor the kernel's receive timeout.
        self._recv_flags = 0 if hasattr(sock, "pending") else socket.MSG_WAITALL
        self.round_trip_s = 0.0  # to the server, as the kernel measures it; 0: unknown

    def write_request(self, request_head: bytes, body: RequestBodyReader | None) -> None:
        """Send the head and the body of a request."""
        self._sock.settimeout(_poll_interval_s())
        block = request_head
        while block:
            self._send_all(memoryview(block))
            block = body.read(_SEND_BLOCK_BYTES) if body is not None else b""

    def _send_all(self, view: memoryview) -> None:
        while view:
            count = self._wait_for(lambda: self._sock.send(view))  # noqa: B023 - called at once
            view = view[count:]

    def read_response_head(self) -> ResponseHead:
        """Return the head of the response, skipping 1xx responses."""
        self._set_read_timeout()
        while True:
            head = parse_response_head(self._read_head())
            if head.status >= 200 or head.status == 101:
                self.round_trip_s = self._measure_round_trip_s()
                return head

    def _measure_round_trip_s(self) -> float:
        if self._sock.family == socket.AF_UNIX:
            return 0.0
        tcp_info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_RTT_OFFSET + 4)
        return (
            float(struct.unpack_from("I", tcp_info, _TCP_INFO_RTT_OFFSET)[0] / 1e6)
            if len(tcp_info) == _TCP_INFO_RTT_OFFSET + 4
            else 0.0
        )

    def _set_read_timeout(self) -> None:
        """Limit the wait of each read to one poll interval."""
        interval_s = _poll_interval_s()
        if self._recv_flags:
            self._sock.settimeout(None)
            timeval = struct.pack("ll", int(interval_s), int(interval_s % 1 * 1e6))
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
        else:
            self._sock.settimeout(interval_s)

    def _read_head(self) -> bytes:
        data = bytes(self._buffered)
        while True:
            end = _HEAD_END.search(data)
            if end is not None:
                self._buffered = memoryview(data)[end.end() :]
                return data[: end.end()]
            if len(data) > _MAX_HEAD_BYTES or (data and not b"HTTP/".startswith(data[:5])):
                raise RemoteProtocolError("not an HTTP response")
            more = self._wait_for(lambda: self._sock.recv(_MAX_HEAD_BYTES))
            if not more:
                raise RemoteProtocolError("truncated response head") if data else ConnectionResetError("no response")
            data += more

    def readinto(self, buffer: memoryview) -> int:
        """Receive some bytes into the buffer; return 0 at the end of the connection."""
        if self._buffered:
            count = min(len(buffer), len(self._buffered))
            buffer[:count] = self._buffered[:count]
            self._buffered = self._buffered[count:]
            return count
        if self._recv_flags:
            return self._wait_for(lambda: self._sock.recv_into(buffer, 0, self._recv_flags))
        return self._wait_for(lambda: self._read_tls_records(buffer))

    def _read_tls_records(self, buffer: memoryview) -> int:
        """Read as many TLS records (16 kB each) as arrive within the poll interval."""
        count, receive = self._sock.recv_into(buffer), self._sock.recv_into
        deadline = time.monotonic() + POLL_INTERVAL_S
        with contextlib.suppress(socket.timeout, BlockingIOError):
            while count < len(buffer) and time.monotonic() < deadline:
                more = receive(buffer[count:])
                if not more:
                    break
                count += more
        return count

    def _wait_for(self, operation: Callable[[], _IntOrBytes]) -> _IntOrBytes:
        started_at = time.monotonic()
        while True:
            try:
                return operation()
            except (BlockingIOError, socket.timeout):
                check_cancelled()
                if time.monotonic() - started_at >= READ_TIMEOUT_S and not scope_handles_read_timeout():
                    raise socket.timeout("no data") from None

    def close(self) -> None:
        self._sock.close()


def _poll_interval_s() -> float:
    return min(POLL_INTERVAL_S, READ_TIMEOUT_S)


def parse_response_head(data: bytes) -> ResponseHead:
    """Parse the status line and headers."""
    status = _STATUS_LINE.match(data)
    if status is None:
        raise RemoteProtocolError(repr(data[:80]))
    headers = Headers.parse(data[status.end() :])
    connection = headers.get("Connection", "").lower()
    keep_alive = "close" not in connection if status.group(1) != b"0" else "keep-alive" in connection
    return ResponseHead(int(status.group(2)), (status.group(3) or b"").decode("latin-1").strip(), headers, keep_alive)
