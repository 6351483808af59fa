"""HTTP/1.1 on one socket: a request out, a header in, the body straight into the caller's memory.

Waiting happens in short steps. Between them the thread's own `watched` call is asked, which may raise:
so a transfer that hangs can be left by whoever knows better than a fixed limit.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, Union

from packtrain.transfer.http.headers import Fields
from packtrain.transfer.http.request_body import Outgoing

if TYPE_CHECKING:
    import ssl

    Socket = Union[socket.socket, ssl.SSLSocket]

CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 30.0
STEP_S = 0.25
_Got = TypeVar("_Got", int, bytes)
_HEAD_LIMIT = 1 << 16
_SEND_BLOCK = 1 << 16
_RTT_AT = 68  # in Linux's tcp_info, in microseconds
_NEAR_S = 0.002  # a round trip
_MUCH = 1 << 19  # bytes that are worth being woken for
_AHEAD = 16 << 20  # bytes that a server nearby may send before they are read
_WORN = 32 << 20  # bytes
_STATUS = re.compile(rb"HTTP/1\.(\d) +(\d{3})(?: +([^\r\n]*))?\r?\n")
_HEAD_END = re.compile(rb"\r?\n\r?\n")


class NotHttpError(Exception):
    """What came is no HTTP."""


class CutError(Exception):
    """The connection ended before the promised end."""


class _Watch(threading.local):
    tick: Callable[[], None] = staticmethod(lambda: None)
    limits = False
    round_trip_s = 0.0


_watch = _Watch()


@contextlib.contextmanager
def watched(tick: Callable[[], None], limits: bool = False) -> Iterator[None]:
    """Until left, whatever waits in this thread asks `tick` several times a second. `limits`: that ends a silence by
    itself, since it knows better how long one may be."""
    before = _watch.tick, _watch.limits
    _watch.tick, _watch.limits = tick, limits
    try:
        yield
    finally:
        _watch.tick, _watch.limits = before


def tick() -> None:
    """Ask whoever watches this thread, while something else than a `Wire` waits."""
    _watch.tick()


def round_trip_s() -> float:
    """To the server that this thread heard last, as the kernel sees it; 0 where nobody knows."""
    return _watch.round_trip_s


@dataclass(frozen=True)
class Head:
    status: int
    reason: str
    headers: Fields
    keeps: bool  # whether the server lets the connection stay open


class Wire:
    """One connection. Nothing of HTTP's body framing is known here: see `framing`."""

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        self._ahead = memoryview(b"")  # came with a header, and belongs to the body
        # A TLS socket takes no flags, and a kernel's limit would not reach through it.
        self._flags = 0 if hasattr(sock, "pending") else socket.MSG_WAITALL
        self._carried, self._woken_for = 0, 1
        self._near = bool(self._flags) and 0 < self._round_trip_s() < _NEAR_S and self._has_room_ahead()
        if self._near:
            self._poll = select.poll()
            self._poll.register(sock, select.POLLIN)

    def _has_room_ahead(self) -> bool:
        """The kernel makes room for as much as it is asked to wait for, and keeps it when it is asked for less."""
        try:
            self._wake_for(_AHEAD)
        except OSError:  # one that does not know this, as a sandbox may have
            return False
        return True

    def send(self, head: bytes, body: Outgoing | None) -> None:
        self._sock.settimeout(_step_s())
        block = head
        while block:
            self._send_all(memoryview(block))
            block = body.read(_SEND_BLOCK) if body is not None else b""

    def _send_all(self, view: memoryview) -> None:
        while view:
            count = self._waiting(lambda: self._sock.send(view))  # noqa: B023 - called at once
            view = view[count:]

    def head(self) -> Head:
        """The header of the answer; the 1xx ones before it are passed over."""
        self._listen()
        self._wake_for(1)
        while True:
            head = parsed(self._until_blank_line())
            if head.status >= 200 or head.status == 101:
                _watch.round_trip_s = self._round_trip_s()
                return head

    def _round_trip_s(self) -> float:
        if self._sock.family == socket.AF_UNIX:
            return 0.0
        known = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT_AT + 4)
        return float(struct.unpack_from("I", known, _RTT_AT)[0] / 1e6) if len(known) == _RTT_AT + 4 else 0.0

    def _listen(self) -> None:
        """From now on a read waits one step at most."""
        step = _step_s()
        if self._flags:
            self._sock.settimeout(None)
            limit = struct.pack("ll", int(step), int(step % 1 * 1e6))
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        else:
            self._sock.settimeout(step)

    def _until_blank_line(self) -> bytes:
        data = bytes(self._ahead)
        while True:
            end = _HEAD_END.search(data)
            if end is not None:
                self._ahead = memoryview(data)[end.end() :]
                return data[: end.end()]
            if len(data) > _HEAD_LIMIT or (data and not b"HTTP/".startswith(data[:5])):
                raise NotHttpError("no HTTP header")
            more = self._waiting(lambda: self._sock.recv(_HEAD_LIMIT))
            if not more:
                raise NotHttpError("cut") if data else ConnectionResetError("no header")
            data += more

    def readinto(self, view: memoryview, coming: int = 0) -> int:
        """Some bytes, at most as many as fit; 0 when the other side has closed. `coming`: so many are sure to come."""
        if self._ahead:
            count = min(len(view), len(self._ahead))
            view[:count] = self._ahead[:count]
            self._ahead = self._ahead[count:]
            return count
        if self._near:
            return self._waiting(lambda: self._read_much(view, coming))
        if self._flags:
            return self._waiting(lambda: self._sock.recv_into(view, 0, self._flags))
        return self._waiting(lambda: self._read_records(view))

    @property
    def worn(self) -> bool:
        """Whether a new connection would be quicker: a server that paces what it sends (bbr) knows by now how fast
        it may, and from here on sends each packet by a timer, which costs more than the packet."""
        return self._near and self._carried >= _WORN

    def _read_much(self, view: memoryview, coming: int) -> int:
        """From a server nearby: what is here; where that does not suffice, also what comes until there is much."""
        count = self._taken(view)
        if count is None or 0 < count < len(view):
            count = self._waited_for(view, count or 0, coming)
        self._carried += count
        return count

    def _waited_for(self, view: memoryview, count: int, coming: int) -> int:
        self._wake_for(min(_MUCH, max(coming, len(view)) - count))
        self._poll.poll(1000 * _step_s())
        more = self._taken(view[count:])
        if more is None and not count:
            raise socket.timeout("nothing within a step")
        return count + (more or 0)

    def _taken(self, view: memoryview) -> int | None:
        """Bytes that are here, 0 if the other side has closed; None: not now."""
        try:
            return self._sock.recv_into(view, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None

    def _wake_for(self, count: int) -> None:
        """Whoever waits goes on when so many bytes are here: to be woken by each packet costs more than to read it."""
        if count != self._woken_for:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            self._woken_for = count

    def _read_records(self, view: memoryview) -> int:
        """A TLS record has 16 kB at most: as many of them as come within a step."""
        count, receive = self._sock.recv_into(view), self._sock.recv_into
        until = time.monotonic() + STEP_S
        with contextlib.suppress(socket.timeout, BlockingIOError):
            while count < len(view) and time.monotonic() < until:
                more = receive(view[count:])
                if not more:
                    break
                count += more
        return count

    def _waiting(self, receive: Callable[[], _Got]) -> _Got:
        since = time.monotonic()
        while True:
            try:
                return receive()
            except (BlockingIOError, socket.timeout):
                _watch.tick()
                if time.monotonic() - since >= SILENCE_TIMEOUT_S and not _watch.limits:
                    raise socket.timeout("silence") from None

    def close(self) -> None:
        self._sock.close()


def _step_s() -> float:
    return min(STEP_S, SILENCE_TIMEOUT_S)


def parsed(data: bytes) -> Head:
    """Status line and fields."""
    status = _STATUS.match(data)
    if status is None:
        raise NotHttpError(repr(data[:80]))
    headers = Fields.parsed(data[status.end() :])
    said = headers.get("Connection", "").lower()
    keeps = "close" not in said if status.group(1) != b"0" else "keep-alive" in said
    return Head(int(status.group(2)), (status.group(3) or b"").decode("latin-1").strip(), headers, keeps)
