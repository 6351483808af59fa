"""HTTP/1.1 on one socket, framed by http.client.

http.client is lenient where a hostile or broken server could profit: it waits for any number of `100 Continue`, takes
a connection that ends within a head for a complete response, stops at a malformed header and drops those after it, and
ignores contradictory lengths. The limits of `socket_stream` and the checks after the head reject such responses.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import struct
from email import errors as email_errors
from typing import TYPE_CHECKING, Any, cast

from packtrain.transfer.http.headers import Headers
from packtrain.transfer.http.socket_stream import HEAD_TIMEOUT_S, RemoteProtocolError, ResponseReader, SocketStream

if TYPE_CHECKING:
    from packtrain.transfer.http.socket_stream import Socket

_SEND_BLOCK_BYTES = 1 << 16
_TCP_INFO_RTT_OFFSET = 68  # in Linux's tcp_info, in microseconds
_CONTENT_LENGTH = re.compile(r"[0-9]{1,19}[ \t]*")
_HEADER_DEFECTS = (  # others concern multipart bodies
    email_errors.MissingHeaderBodySeparatorDefect,
    email_errors.InvalidHeaderDefect,
    email_errors.FirstHeaderLineIsContinuationDefect,
    email_errors.MisplacedEnvelopeHeaderDefect,
)


class Http11Response(http.client.HTTPResponse):
    """A response whose head was checked.

    Attributes:
        keep_alive: Whether the connection stays open after the body.
        trailers: The fields after a chunked body, empty until the body is read to its end.
    """

    fp: ResponseReader

    def begin(self) -> None:
        """Read the head, skipping 1xx responses."""
        self.trailers = Headers()
        self.fp.start_head()
        try:
            super().begin()
            while 100 <= self.status < 200 and self.status != http.client.SWITCHING_PROTOCOLS:
                self.headers = None  # type: ignore[assignment]  # begin() then reads the next head
                super().begin()
        except http.client.IncompleteRead as error:
            raise RemoteProtocolError("its head is truncated") from error
        self._check_head()
        self.keep_alive = not self.will_close
        self.will_close = False  # otherwise http.client closes the connection before the body is read

    def _check_head(self) -> None:
        if any(isinstance(defect, _HEADER_DEFECTS) for defect in self.headers.defects):
            raise RemoteProtocolError("a header is malformed")
        encodings = [value.lower() for value in self.headers.get_all("Transfer-Encoding", [])]
        if encodings not in ([], ["chunked"], ["identity"]):
            raise RemoteProtocolError("its transfer encoding is not supported")
        lengths = set(self.headers.get_all("Content-Length", []))
        if len(lengths) > 1 or not all(map(_CONTENT_LENGTH.fullmatch, lengths)):
            raise RemoteProtocolError("its length is invalid")
        if self.chunked and lengths:  # the length is false, and so may be what follows the body
            del self.headers["Content-Length"]
            self.will_close = True

    def readinto(self, buffer: Any, /) -> int:
        """Read some bytes; return 0 at the end. Raises IncompleteRead if the connection ends early."""
        if self.chunked:
            return self._readinto_from_chunk(buffer)
        count = super().readinto(buffer)
        if not count and self.length and len(buffer):
            raise http.client.IncompleteRead(b"", self.length)
        return count

    def _readinto_from_chunk(self, buffer: memoryview) -> int:
        if self.fp is not None:
            self.fp.start_head()
        data = self.read1(len(buffer))
        if (self.chunk_left or 0) < 0:
            raise RemoteProtocolError("the length of a chunk is negative")
        buffer[: len(data)] = data
        return len(data)

    def _read_and_discard_trailer(self) -> None:
        """Keep the trailers, which http.client discards."""
        self.trailers = Headers(http.client.parse_headers(self.fp).items())

    def is_complete(self) -> bool:
        """Return whether nothing of the body remains to be read."""
        return self.length == 0 or self.isclosed()


class Http11Connection(http.client.HTTPConnection):
    """One connection over a connected socket."""

    response_class = Http11Response
    auto_open = 0

    def __init__(self, sock: Socket, head_timeout_s: float = HEAD_TIMEOUT_S) -> None:
        super().__init__("", blocksize=_SEND_BLOCK_BYTES)
        self._socket, self._stream = sock, SocketStream(sock, head_timeout_s)
        self.sock = self._stream

    def getresponse(self) -> Http11Response:
        """Return the response to the request that was sent."""
        return cast(Http11Response, super().getresponse())

    def is_idle(self) -> bool:
        """Return whether another request can be sent: nothing unexpected arrived after the last response."""
        return self._stream.is_idle()

    def measure_round_trip_s(self) -> float:
        """Return the round trip to the server as the kernel measures it; 0: unknown."""
        with contextlib.suppress(OSError, struct.error):
            tcp_info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_RTT_OFFSET + 4)
            return float(struct.unpack_from("I", tcp_info, _TCP_INFO_RTT_OFFSET)[0] / 1e6)
        return 0.0
