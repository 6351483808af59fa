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

from testbed.upstreams import (
    CHUNK_BYTES,
    FolderUpstream,
    MessageHead,
    ServerUpstream,
    Upstream,
    UpstreamResponse,
    make_response,
    read_head,
)

FAULT_KINDS = {
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
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST
_THROTTLED_CHUNK_BYTES = 1 << 14  # small, so that each of a thousand connections gets a little every moment
_POLL_INTERVAL_S = 0.05
_DRIPS_PER_S = 10
_BODY_FAULT_KINDS = ("stall", "close", "reset", "drip", "corrupt")


@dataclass(frozen=True)
class Fault:
    kind: str
    response_offset: int = 0  # byte of the answer's body
    object_offset: int | None = None  # instead: byte of the object, in whichever answer carries it
    max_times: int | None = 1  # how often; None = always
    request_numbers: tuple[int, ...] | None = None  # only these GETs, counted from 1
    active_for_s: float | None = None  # instead of `times`: always, for so many seconds from the first strike on
    path_contains: str = ""  # only targets that contain this
    duration_s: float | None = None
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)  # with the status, e.g. Retry-After
    bytes_per_s: float = 10_000.0
    extra_bytes: int = 1000

    def __post_init__(self) -> None:
        if self.kind not in FAULT_KINDS:
            raise ValueError(f"{self.kind!r} is no fault; there are {', '.join(FAULT_KINDS)}")

    def offset_in_response(self, response: UpstreamResponse) -> int | None:
        """The byte of this answer's body where it strikes; None if it does not reach that far."""
        place = self.response_offset if self.object_offset is None else self.object_offset - response.object_offset
        reached = place >= 0 and (response.length is None or place < response.length)
        return place if reached else None


@dataclass(frozen=True)
class InjectedFault:
    kind: str
    request_number: int  # the number of the GET, 0 for other methods and for handshakes
    elapsed_s: float  # since the proxy started or was armed


@dataclass
class ClientConnection:
    """One client's connection: bytes of bodies sent on it, and what was asked."""

    sent_bytes: int = 0
    requests: list[str] = field(default_factory=list)


class _ConnectionClosed(Exception):
    """The client's connection ends here."""


class _ArmedFault:
    """A fault and how often it struck."""

    def __init__(self, fault: Fault) -> None:
        self.fault, self._n_injected, self._first_injected_at = fault, 0, None  # type: Fault, int, float | None

    def matches(self, method: str, request_number: int, target: str) -> bool:
        fault = self.fault
        return fault.path_contains in target and (
            fault.request_numbers is None or (method == "GET" and request_number in fault.request_numbers)
        )

    def try_inject(self) -> bool:
        now = time.monotonic()
        self._first_injected_at = now if self._first_injected_at is None else self._first_injected_at
        if self.fault.active_for_s is not None:
            spent = now - self._first_injected_at >= self.fault.active_for_s
        else:
            spent = self.fault.max_times is not None and self._n_injected >= self.fault.max_times
        if spent:
            return False
        self._n_injected += 1
        return True


class RateLimiter:
    """A line of so many bytes/s, shared by all connections, and all proxies that have it, in the order they come."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s, self._available_at, self._lock = bytes_per_s, 0.0, threading.Lock()

    def wait_for(self, n_bytes: int) -> None:
        with self._lock:
            self._available_at = due = max(time.monotonic(), self._available_at) + n_bytes / self._bytes_per_s
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
        upstream_ca_file: Path | None = None,
        rate_limiter: RateLimiter | None = None,
    ) -> None:
        self.upstream: Upstream = (
            FolderUpstream(upstream) if isinstance(upstream, Path) else ServerUpstream(upstream, upstream_ca_file)
        )
        self.tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
        if self.tls_context and tls:
            self.tls_context.load_cert_chain(*tls)
        self.rate_limiter = rate_limiter
        self.released = threading.Event()
        self._lock = threading.Condition()
        self.set_faults(faults)
        self._listener = socket.create_server((host, port), backlog=1024)
        self._host, self._client_sockets = host, set()  # type: str, set[socket.socket]

    @property
    def url(self) -> str:
        return f"{'https' if self.tls_context else 'http'}://{self._host}:{self._listener.getsockname()[1]}"

    @property
    def sent_bytes(self) -> int:
        """Bytes of bodies sent to all clients."""
        return sum(connection.sent_bytes for connection in list(self.connections))

    @property
    def n_open_connections(self) -> int:
        return len(self._client_sockets)

    def set_faults(self, faults: Iterable[Fault] = ()) -> None:
        """These faults instead, and all counts from zero."""
        with self._lock:
            self._armed_faults = [_ArmedFault(fault) for fault in faults]
            self.connections: list[ClientConnection] = []
            self.injected_faults: list[InjectedFault] = []
            self._n_gets, self._started_at = 0, time.monotonic()

    def release(self) -> None:
        """Whatever stalls, drips or is late goes on."""
        self.released.set()

    def wait_for_faults(self, count: int = 1, timeout_s: float = 10.0) -> bool:
        with self._lock:
            return self._lock.wait_for(lambda: len(self.injected_faults) >= count, timeout_s)

    def wait_until_disconnected(self, timeout_s: float = 10.0) -> bool:
        """Until no client is connected: from then on every byte sent is counted."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._client_sockets, timeout_s)

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
        self._listener.close()
        with self._lock:
            for client in self._client_sockets:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

    def serve_forever(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve_client, args=(client,), daemon=True).start()

    def _serve_client(self, client: socket.socket) -> None:
        connection = ClientConnection()
        with self._lock:
            self.connections.append(connection)
            self._client_sockets.add(client)
        try:
            with contextlib.suppress(_ConnectionClosed, OSError):
                _ClientSession(self, client, connection).run()
        finally:
            with self._lock:
                self._client_sockets.discard(client)
                self._lock.notify_all()
            client.close()

    def next_get_number(self) -> int:
        with self._lock:
            self._n_gets += 1
            return self._n_gets

    def matching_faults(
        self, method: str, request_number: int, target: str, kinds: Iterable[str]
    ) -> Iterator[_ArmedFault]:
        return (a for a in self._armed_faults if a.fault.kind in kinds and a.matches(method, request_number, target))

    def try_inject(self, armed_fault: _ArmedFault, request_number: int) -> bool:
        """Whether the fault strikes now; a fault that is spent or over does not."""
        with self._lock:
            if not armed_fault.try_inject():
                return False
            self.injected_faults.append(
                InjectedFault(armed_fault.fault.kind, request_number, time.monotonic() - self._started_at)
            )
            self._lock.notify_all()
            return True

    def inject_first(self, method: str, request_number: int, target: str, *kinds: str) -> Fault | None:
        """The first fault of these kinds that strikes this request."""
        due = self.matching_faults(method, request_number, target, kinds)
        return next((armed.fault for armed in due if self.try_inject(armed, request_number)), None)


class _ClientSession:
    """Requests and answers on one client's connection."""

    def __init__(self, proxy: FaultProxy, client: socket.socket, connection: ClientConnection) -> None:
        self._proxy, self._client, self._connection = proxy, client, connection
        self._body_actions: dict[str, Callable[[Fault, UpstreamResponse], object]] = {
            "stall": lambda fault, answer: self._wait_or_close(fault.duration_s),
            "close": lambda fault, answer: self._close_connection(),
            "reset": lambda fault, answer: self._reset_connection(),
            "drip": self._drip,
            "corrupt": lambda fault, answer: self._send(bytes([answer.body.read(1)[0] ^ 0xFF])),
        }

    def run(self) -> None:
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._proxy.tls_context:
            self._tls_handshake(self._proxy.tls_context)
        rest = b""
        while found := read_head(self._client, rest):
            request, rest = found
            body, rest = self._read_request_body(request, rest)
            self._handle_request(request, body)

    def _tls_handshake(self, tls_context: ssl.SSLContext) -> None:
        if self._proxy.inject_first("", 0, "", "tls"):
            self._client.recv(CHUNK_BYTES)  # unread bytes would turn the alert into a reset
            self._client.sendall(_ALERT_HANDSHAKE_FAILURE)
            self._close_connection()
        self._client = tls_context.wrap_socket(self._client, server_side=True)

    def _read_request_body(self, request: MessageHead, buffered: bytes) -> tuple[bytes, bytes]:
        length = int(request.get("Content-Length") or 0)
        if (request.get("Expect") or "").lower() == "100-continue":
            request.remove("Expect")
            self._client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        pieces, got = [buffered], len(buffered)
        while got < length:
            pieces.append(self._client.recv(CHUNK_BYTES) or self._close_connection())
            got += len(pieces[-1])
        whole = b"".join(pieces)
        return whole[:length], whole[length:]

    def _handle_request(self, request: MessageHead, body: bytes) -> None:
        method, target = request.start_line.split(" ")[:2]
        number = self._proxy.next_get_number() if method == "GET" else 0
        self._connection.requests.append(f"{method} {target} {request.get('Range') or ''}".rstrip())
        leaves = (request.get("Connection") or "").lower() == "close"
        if late := self._proxy.inject_first(method, number, target, "late"):
            self._wait_or_close(late.duration_s)
        answer = self._error_response(method, number, target) or self._proxy.upstream(method, target, request, body)
        try:
            self._forward_response(answer, method, number, target)
        finally:
            answer.body.close()
        if leaves or answer.length is None:
            self._close_connection()

    def _error_response(self, method: str, request_number: int, target: str) -> UpstreamResponse | None:
        fault = self._proxy.inject_first(method, request_number, target, "status", "redirect_loop")
        if fault is None:
            return None
        if fault.kind == "redirect_loop":
            return make_response("302 Found", Location=target)
        return make_response(
            f"{fault.status} Fault", b"a fault, as asked\n", Content_Type="text/plain", **fault.headers
        )

    def _forward_response(self, response: UpstreamResponse, method: str, request_number: int, target: str) -> None:
        if method == "HEAD":
            self._client.sendall(response.head.encode())
            return
        excess = self._inject_length_faults(response, request_number, target)
        self._client.sendall(response.head.encode())
        passed = 0
        for place, armed in self._body_faults(response, request_number, target):
            passed += self._forward_body(response, place - passed)
            if passed == place and self._proxy.try_inject(armed, request_number):
                self._body_actions[armed.fault.kind](armed.fault, response)
                passed += armed.fault.kind == "corrupt"
        self._forward_body(response, None if response.length is None else response.length - passed)
        if excess:
            self._close_connection()

    def _inject_length_faults(self, response: UpstreamResponse, request_number: int, target: str) -> bool:
        """Change what the head says of the length; whether it is now wrong."""
        for armed in self._proxy.matching_faults("GET", request_number, target, ("truncate", "wrong_length")):
            if (
                response.length is None
                or armed.fault.offset_in_response(response) is None
                or not self._proxy.try_inject(armed, request_number)
            ):
                continue
            if armed.fault.kind == "wrong_length":
                response.head.set("Content-Length", str(response.length + armed.fault.extra_bytes))
                return True
            response.length = armed.fault.offset_in_response(response)
            response.head.set("Content-Length", str(response.length))
        return False

    def _body_faults(
        self, response: UpstreamResponse, request_number: int, target: str
    ) -> list[tuple[int, _ArmedFault]]:
        due = [
            (armed.fault.offset_in_response(response), armed)
            for armed in self._proxy.matching_faults("GET", request_number, target, _BODY_FAULT_KINDS)
        ]
        return sorted(((place, armed) for place, armed in due if place is not None), key=lambda pair: pair[0])

    def _forward_body(self, response: UpstreamResponse, n_bytes: int | None) -> int:
        """Pass on so many bytes of the body (None: all); how many there were."""
        line, moved = self._proxy.rate_limiter, 0
        while n_bytes is None or moved < n_bytes:
            most = _THROTTLED_CHUNK_BYTES if line else 64 * CHUNK_BYTES
            some = response.body.send_to(self._client, most if n_bytes is None else min(most, n_bytes - moved))
            if not some:
                break
            moved += some
            self._connection.sent_bytes += some
            if line:
                line.wait_for(some)
        return moved

    def _send(self, data: bytes) -> None:
        self._client.sendall(data)
        self._connection.sent_bytes += len(data)

    def _drip(self, fault: Fault, response: UpstreamResponse) -> None:
        until = None if fault.duration_s is None else time.monotonic() + fault.duration_s
        while until is None or time.monotonic() < until:
            piece = response.body.read(max(1, int(fault.bytes_per_s / _DRIPS_PER_S)))
            if not piece or self._proxy.released.is_set():
                return self._send(piece)
            self._send(piece)
            self._wait_or_close(1 / _DRIPS_PER_S)
        return None

    def _wait_or_close(self, timeout_s: float | None) -> None:
        """Until the time is over, the proxy is released or the client leaves."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        watch = select.poll()
        watch.register(self._client, select.POLLRDHUP)
        while not self._proxy.released.is_set() and (until is None or time.monotonic() < until):
            left = _POLL_INTERVAL_S if until is None else min(_POLL_INTERVAL_S, until - time.monotonic())
            if watch.poll(max(0.0, left) * 1000):
                raise _ConnectionClosed

    def _close_connection(self) -> bytes:
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        raise _ConnectionClosed

    def _reset_connection(self) -> None:
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._client.close()
        raise _ConnectionClosed


_FIELD_PARSERS = {
    "at": int, "object_at": int, "by": int, "status": int, "rate": float, "for_s": float, "lasts_s": float, "path": str,
    "times": lambda text: None if text == "always" else int(text),
    "requests": lambda text: tuple(int(part) for part in text.split("+")),
}  # fmt: skip


def parse_fault(text: str) -> Fault:
    """`stall,at=5000000,times=always`; several requests as `requests=1+2`."""
    kind, *settings = text.split(",")
    pairs = (setting.partition("=") for setting in settings)
    return Fault(kind, **{name: _FIELD_PARSERS[name](value) for name, _, value in pairs})  # type: ignore[operator]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testbed.faults", description="A server with faults on demand.")
    parser.add_argument("upstream", help="the URL of a server, or a folder")
    parser.add_argument("--fault", action="append", type=parse_fault, default=[], help=", ".join(FAULT_KINDS))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--bytes-per-s", type=float, help="throttle all connections together")
    given = parser.parse_args()
    upstream = given.upstream if "://" in given.upstream else Path(given.upstream)
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # before there are threads, which inherit it
    line = RateLimiter(given.bytes_per_s) if given.bytes_per_s else None
    with FaultProxy(upstream, given.fault, port=given.port, rate_limiter=line) as proxy:
        print(proxy.url, flush=True)
        signal.sigwait(ends)
        connections = [dataclasses.asdict(connection) for connection in proxy.connections]
        strikes = [dataclasses.asdict(strike) for strike in proxy.injected_faults]
        print(json.dumps({"sent": proxy.sent_bytes, "connections": connections, "strikes": strikes}))


if __name__ == "__main__":
    main()
