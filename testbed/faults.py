"""A fault proxy: in front of any http(s) server, or of a folder, it misbehaves as told, and is fast where it is not.

    with FaultProxy(folder, [Fault("stall", at=5_000_000)]) as proxy:   … proxy.url, proxy.sent, proxy.strikes …
    python -m testbed.faults http://127.0.0.1:8000 --fault stall,at=5000000 --fault status,status=404,for_s=8

KINDS lists the faults. A fault strikes at a byte of an answer (`at`) or of the object (`object_at`), at chosen
requests or any, so often (`times`, None = always) or for a time (`for_s`). An answer too short to reach the byte
does not use it up. Bytes of bodies are counted for each client connection and in total.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import select
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testbed.upstreams import CHUNK, Answer, Folder, Head, Server, Upstream, page, read_head

KINDS = {
    "stall": "nothing more comes, the connection stays open, for `lasts_s` or until the client leaves",
    "close": "the connection ends in good order",
    "reset": "the connection is reset",
    "drip": "`rate` bytes/s from there on, for `lasts_s` or to the end",
    "corrupt": "one byte is changed",
    "truncate": "the answer ends there, and its Content-Length says so",
    "wrong_length": "Content-Length says `by` bytes more than come before the connection ends",
    "status": "`status` instead of the object",
    "late": "nothing at all for `lasts_s`, then the answer",
    "redirect_loop": "the object is said to be found where it was asked for",
    "tls": "the handshake fails",
}
_ALERT_HANDSHAKE_FAILURE = b"\x15\x03\x03\x00\x02\x02\x28"
_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST
_THROTTLED_CHUNK = 1 << 14  # small, so that each of a thousand connections gets a little every moment
_LOOK_EVERY_S = 0.05
_DRIPS_PER_S = 10
_BODY_KINDS = ("stall", "close", "reset", "drip", "corrupt")


@dataclass(frozen=True)
class Fault:
    kind: str
    at: int = 0  # byte of the answer's body
    object_at: int | None = None  # instead: byte of the object, in whichever answer carries it
    times: int | None = 1  # how often; None = always
    requests: tuple[int, ...] | None = None  # only these GETs, counted from 1
    for_s: float | None = None  # instead of `times`: always, for so many seconds from the first strike on
    path: str = ""  # only targets that contain this
    lasts_s: float | None = None
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)  # with the status, e.g. Retry-After
    rate: float = 10_000.0
    by: int = 1000

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} is no fault; there are {', '.join(KINDS)}")

    def place(self, answer: Answer) -> int | None:
        """The byte of this answer's body where it strikes; None if it does not reach that far."""
        place = self.at if self.object_at is None else self.object_at - answer.start
        reached = place >= 0 and (answer.length is None or place < answer.length)
        return place if reached else None


@dataclass(frozen=True)
class Strike:
    kind: str
    request: int  # the number of the GET, 0 for other methods and for handshakes
    after_s: float  # since the proxy started or was armed


@dataclass
class Connection:
    """One client's connection: bytes of bodies sent on it, and what was asked."""

    sent: int = 0
    requests: list[str] = field(default_factory=list)


class _Over(Exception):  # noqa: N818 - no error: the way out of a connection
    """The client's connection ends here."""


class _Armed:
    """A fault and how often it struck."""

    def __init__(self, fault: Fault) -> None:
        self.fault, self._struck, self._first = fault, 0, None  # type: Fault, int, float | None

    def matches(self, method: str, number: int, target: str) -> bool:
        fault = self.fault
        return fault.path in target and (fault.requests is None or (method == "GET" and number in fault.requests))

    def claim(self) -> bool:
        now = time.monotonic()
        self._first = now if self._first is None else self._first
        if self.fault.for_s is not None:
            spent = now - self._first >= self.fault.for_s
        else:
            spent = self.fault.times is not None and self._struck >= self.fault.times
        if spent:
            return False
        self._struck += 1
        return True


class Line:
    """A line of so many bytes/s, shared by all connections, and all proxies that have it, in the order they come."""

    def __init__(self, bytes_per_s: float) -> None:
        self._rate, self._free_at, self._lock = bytes_per_s, 0.0, threading.Lock()

    def passed(self, count: int) -> None:
        with self._lock:
            self._free_at = due = max(time.monotonic(), self._free_at) + count / self._rate
        time.sleep(max(0.0, due - time.monotonic()))


class FaultProxy:
    def __init__(
        self,
        upstream: str | Path,
        faults: Iterable[Fault] = (),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: tuple[Path, Path] | None = None,
        upstream_ca: Path | None = None,
        line: Line | None = None,
    ) -> None:
        self.upstream: Upstream = Folder(upstream) if isinstance(upstream, Path) else Server(upstream, upstream_ca)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
        if self.context and tls:
            self.context.load_cert_chain(*tls)
        self.line = line
        self.released = threading.Event()
        self._lock = threading.Condition()
        self.arm(faults)
        self._listener = socket.create_server((host, port), backlog=1024)
        self._host, self._open = host, set()  # type: str, set[socket.socket]

    @property
    def url(self) -> str:
        return f"{'https' if self.context else 'http'}://{self._host}:{self._listener.getsockname()[1]}"

    @property
    def sent(self) -> int:
        """Bytes of bodies sent to all clients."""
        return sum(connection.sent for connection in list(self.connections))

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def arm(self, faults: Iterable[Fault] = ()) -> None:
        """These faults instead, and all counts from zero."""
        with self._lock:
            self._armed = [_Armed(fault) for fault in faults]
            self.connections: list[Connection] = []
            self.strikes: list[Strike] = []
            self._gets, self._since = 0, time.monotonic()

    def release(self) -> None:
        """Whatever stalls, drips or is late goes on."""
        self.released.set()

    def wait_for_strikes(self, count: int = 1, timeout_s: float = 10.0) -> bool:
        with self._lock:
            return self._lock.wait_for(lambda: len(self.strikes) >= count, timeout_s)

    def wait_until_left(self, timeout_s: float = 10.0) -> bool:
        """Until no client is connected: from then on every byte sent is counted."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._open, timeout_s)

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
        self._listener.close()
        with self._lock:
            for client in self._open:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

    def serve_forever(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._attend, args=(client,), daemon=True).start()

    def _attend(self, client: socket.socket) -> None:
        connection = Connection()
        with self._lock:
            self.connections.append(connection)
            self._open.add(client)
        try:
            with contextlib.suppress(_Over, OSError):
                _Conversation(self, client, connection).run()
        finally:
            with self._lock:
                self._open.discard(client)
                self._lock.notify_all()
            client.close()

    def next_get(self) -> int:
        with self._lock:
            self._gets += 1
            return self._gets

    def due(self, method: str, number: int, target: str, kinds: Iterable[str]) -> Iterator[_Armed]:
        return (a for a in self._armed if a.fault.kind in kinds and a.matches(method, number, target))

    def claim(self, armed: _Armed, number: int) -> bool:
        """Whether the fault strikes now; a fault that is spent or over does not."""
        with self._lock:
            if not armed.claim():
                return False
            self.strikes.append(Strike(armed.fault.kind, number, time.monotonic() - self._since))
            self._lock.notify_all()
            return True

    def take(self, method: str, number: int, target: str, *kinds: str) -> Fault | None:
        """The first fault of these kinds that strikes this request."""
        due = self.due(method, number, target, kinds)
        return next((armed.fault for armed in due if self.claim(armed, number)), None)


class _Conversation:
    """Requests and answers on one client's connection."""

    def __init__(self, proxy: FaultProxy, client: socket.socket, connection: Connection) -> None:
        self._proxy, self._client, self._connection = proxy, client, connection
        self._act: dict[str, Callable[[Fault, Answer], object]] = {
            "stall": lambda fault, answer: self._wait(fault.lasts_s),
            "close": lambda fault, answer: self._end(),
            "reset": lambda fault, answer: self._reset(),
            "drip": self._drip,
            "corrupt": lambda fault, answer: self._send(bytes([answer.body.read(1)[0] ^ 0xFF])),
        }

    def run(self) -> None:
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._proxy.context:
            self._shake_hands(self._proxy.context)
        rest = b""
        while found := read_head(self._client, rest):
            request, rest = found
            body, rest = self._request_body(request, rest)
            self._converse(request, body)

    def _shake_hands(self, context: ssl.SSLContext) -> None:
        if self._proxy.take("", 0, "", "tls"):
            self._client.recv(CHUNK)  # unread bytes would turn the alert into a reset
            self._client.sendall(_ALERT_HANDSHAKE_FAILURE)
            self._end()
        self._client = context.wrap_socket(self._client, server_side=True)

    def _request_body(self, request: Head, rest: bytes) -> tuple[bytes, bytes]:
        length = int(request.get("Content-Length") or 0)
        if (request.get("Expect") or "").lower() == "100-continue":
            request.drop("Expect")
            self._client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        pieces, got = [rest], len(rest)
        while got < length:
            pieces.append(self._client.recv(CHUNK) or self._end())
            got += len(pieces[-1])
        whole = b"".join(pieces)
        return whole[:length], whole[length:]

    def _converse(self, request: Head, body: bytes) -> None:
        method, target = request.first.split(" ")[:2]
        number = self._proxy.next_get() if method == "GET" else 0
        self._connection.requests.append(f"{method} {target} {request.get('Range') or ''}".rstrip())
        leaves = (request.get("Connection") or "").lower() == "close"
        if late := self._proxy.take(method, number, target, "late"):
            self._wait(late.lasts_s)
        answer = self._refusal(method, number, target) or self._proxy.upstream(method, target, request, body)
        try:
            self._pass_on(answer, method, number, target)
        finally:
            answer.body.close()
        if leaves or answer.length is None:
            self._end()

    def _refusal(self, method: str, number: int, target: str) -> Answer | None:
        fault = self._proxy.take(method, number, target, "status", "redirect_loop")
        if fault is None:
            return None
        if fault.kind == "redirect_loop":
            return page("302 Found", Location=target)
        return page(f"{fault.status} Fault", b"a fault, as asked\n", Content_Type="text/plain", **fault.headers)

    def _pass_on(self, answer: Answer, method: str, number: int, target: str) -> None:
        if method == "HEAD":
            self._client.sendall(answer.head.encode())
            return
        excess = self._misstate_length(answer, number, target)
        self._client.sendall(answer.head.encode())
        passed = 0
        for place, armed in self._body_faults(answer, number, target):
            passed += self._move(answer, place - passed)
            if passed == place and self._proxy.claim(armed, number):
                self._act[armed.fault.kind](armed.fault, answer)
                passed += armed.fault.kind == "corrupt"
        self._move(answer, None if answer.length is None else answer.length - passed)
        if excess:
            self._end()

    def _misstate_length(self, answer: Answer, number: int, target: str) -> bool:
        """Change what the head says of the length; whether it is now wrong."""
        for armed in self._proxy.due("GET", number, target, ("truncate", "wrong_length")):
            if answer.length is None or armed.fault.place(answer) is None or not self._proxy.claim(armed, number):
                continue
            if armed.fault.kind == "wrong_length":
                answer.head.set("Content-Length", str(answer.length + armed.fault.by))
                return True
            answer.length = armed.fault.place(answer)
            answer.head.set("Content-Length", str(answer.length))
        return False

    def _body_faults(self, answer: Answer, number: int, target: str) -> list[tuple[int, _Armed]]:
        due = [(armed.fault.place(answer), armed) for armed in self._proxy.due("GET", number, target, _BODY_KINDS)]
        return sorted(((place, armed) for place, armed in due if place is not None), key=lambda pair: pair[0])

    def _move(self, answer: Answer, count: int | None) -> int:
        """Pass on so many bytes of the body (None: all); how many there were."""
        line, moved = self._proxy.line, 0
        while count is None or moved < count:
            most = _THROTTLED_CHUNK if line else 64 * CHUNK
            some = answer.body.move(self._client, most if count is None else min(most, count - moved))
            if not some:
                break
            moved += some
            self._connection.sent += some
            if line:
                line.passed(some)
        return moved

    def _send(self, piece: bytes) -> None:
        self._client.sendall(piece)
        self._connection.sent += len(piece)

    def _drip(self, fault: Fault, answer: Answer) -> None:
        until = None if fault.lasts_s is None else time.monotonic() + fault.lasts_s
        while until is None or time.monotonic() < until:
            piece = answer.body.read(max(1, int(fault.rate / _DRIPS_PER_S)))
            if not piece or self._proxy.released.is_set():
                return self._send(piece)
            self._send(piece)
            self._wait(1 / _DRIPS_PER_S)
        return None

    def _wait(self, seconds: float | None) -> None:
        """Until the time is over, the proxy is released or the client leaves."""
        until = None if seconds is None else time.monotonic() + seconds
        watch = select.poll()
        watch.register(self._client, select.POLLRDHUP)
        while not self._proxy.released.is_set() and (until is None or time.monotonic() < until):
            left = _LOOK_EVERY_S if until is None else min(_LOOK_EVERY_S, until - time.monotonic())
            if watch.poll(max(0.0, left) * 1000):
                raise _Over

    def _end(self) -> bytes:
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        raise _Over

    def _reset(self) -> None:
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._client.close()
        raise _Over


_READERS = {
    "at": int, "object_at": int, "by": int, "status": int, "rate": float, "for_s": float, "lasts_s": float, "path": str,
    "times": lambda text: None if text == "always" else int(text),
    "requests": lambda text: tuple(int(part) for part in text.split("+")),
}  # fmt: skip


def parse(text: str) -> Fault:
    """`stall,at=5000000,times=always`; several requests as `requests=1+2`."""
    kind, *settings = text.split(",")
    pairs = (setting.partition("=") for setting in settings)
    return Fault(kind, **{name: _READERS[name](value) for name, _, value in pairs})  # type: ignore[operator]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testbed.faults", description="A server with faults on demand.")
    parser.add_argument("upstream", help="the URL of a server, or a folder")
    parser.add_argument("--fault", action="append", type=parse, default=[], help=", ".join(KINDS))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--bytes-per-s", type=float, help="throttle all connections together")
    given = parser.parse_args()
    upstream = given.upstream if "://" in given.upstream else Path(given.upstream)
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # before there are threads, which inherit it
    line = Line(given.bytes_per_s) if given.bytes_per_s else None
    with FaultProxy(upstream, given.fault, port=given.port, line=line) as proxy:
        print(proxy.url, flush=True)
        signal.sigwait(ends)
        connections = [dataclasses.asdict(connection) for connection in proxy.connections]
        strikes = [dataclasses.asdict(strike) for strike in proxy.strikes]
        print(json.dumps({"sent": proxy.sent, "connections": connections, "strikes": strikes}))


if __name__ == "__main__":
    main()
