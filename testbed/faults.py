"""A proxy that injects faults, in front of any http(s) server or a folder. It is fast where it injects none.

    with FaultProxy(folder, [Fault("stall", response_offset=5_000_000)]) as proxy:
        … proxy.url, proxy.sent_bytes, proxy.injected_faults …
    python -m testbed.faults http://127.0.0.1:8000 --fault stall,response_offset=5000000 \\
        --fault status,status=404,active_for_s=8

FAULT_KINDS lists the faults. A fault is injected at a byte of a response or of the object, into chosen requests or
any, `max_times` times (None: always) or for `active_for_s` seconds. A response that is too short to reach the byte does
not use the fault up. Body bytes are counted per client connection and in total.
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
    "stall": "send nothing for `duration_s` or until the client disconnects; the connection remains open",
    "close": "close the connection cleanly",
    "reset": "reset the connection",
    "drip": "send `bytes_per_s` from there on, for `duration_s` or to the end",
    "corrupt": "change one byte",
    "truncate": "end the response there, with a matching Content-Length",
    "wrong_length": "announce `extra_bytes` more in Content-Length than are sent before the connection closes",
    "status": "respond with `status` instead of the object",
    "delay": "send nothing for `duration_s`, then the response",
    "redirect_loop": "redirect to the requested URL",
    "tls": "let the TLS handshake fail",
}
_ALERT_HANDSHAKE_FAILURE = b"\x15\x03\x03\x00\x02\x02\x28"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST
_THROTTLED_CHUNK_BYTES = 1 << 14  # small, so that a thousand connections get equal shares
_POLL_INTERVAL_S = 0.05
_DRIPS_PER_S = 10
_BODY_FAULT_KINDS = ("stall", "close", "reset", "drip", "corrupt")


@dataclass(frozen=True)
class Fault:
    """One fault and when it is injected."""

    kind: str
    response_offset: int = 0  # byte of the response body
    object_offset: int | None = None  # instead: byte of the object, in any response
    max_times: int | None = 1  # None: always
    request_numbers: tuple[int, ...] | None = None  # only these GET requests, counted from 1
    active_for_s: float | None = None  # instead of max_times: seconds from the first injection on
    path_contains: str = ""  # only request targets that contain this
    duration_s: float | None = None
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)  # sent with the status, e.g. Retry-After
    bytes_per_s: float = 10_000.0
    extra_bytes: int = 1000

    def __post_init__(self) -> None:
        if self.kind not in FAULT_KINDS:
            raise ValueError(f"{self.kind!r} is not a fault; available are {', '.join(FAULT_KINDS)}")

    def offset_in_response(self, response: UpstreamResponse) -> int | None:
        """Return the byte of the response body where the fault is injected, or None if the body does not reach it."""
        offset = self.response_offset if self.object_offset is None else self.object_offset - response.object_offset
        is_reached = offset >= 0 and (response.length is None or offset < response.length)
        return offset if is_reached else None


@dataclass(frozen=True)
class InjectedFault:
    """A record of one injection."""

    kind: str
    request_number: int  # number of the GET request; 0 for other methods and TLS handshakes
    elapsed_s: float  # since the proxy started or set_faults was called


@dataclass
class ClientConnection:
    """One connection of a client: body bytes sent, and its requests."""

    sent_bytes: int = 0
    requests: list[str] = field(default_factory=list)


class _ConnectionClosed(Exception):
    """The connection of the client was closed."""


class _ArmedFault:
    """A fault and how often it was injected."""

    def __init__(self, fault: Fault) -> None:
        self.fault, self._n_injected, self._first_injected_at = fault, 0, None  # type: Fault, int, float | None

    def matches(self, method: str, request_number: int, target: str) -> bool:
        """Return True if the fault applies to the request."""
        fault = self.fault
        return fault.path_contains in target and (
            fault.request_numbers is None or (method == "GET" and request_number in fault.request_numbers)
        )

    def try_inject(self) -> bool:
        """Count an injection. Return False if the fault is used up or no longer active."""
        now = time.monotonic()
        self._first_injected_at = now if self._first_injected_at is None else self._first_injected_at
        if self.fault.active_for_s is not None:
            is_used_up = now - self._first_injected_at >= self.fault.active_for_s
        else:
            is_used_up = self.fault.max_times is not None and self._n_injected >= self.fault.max_times
        if is_used_up:
            return False
        self._n_injected += 1
        return True


class RateLimiter:
    """Limits the total rate of all connections, and of all proxies that share it, in order of arrival."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s, self._available_at, self._lock = bytes_per_s, 0.0, threading.Lock()

    def wait_for(self, n_bytes: int) -> None:
        """Sleep until `n_bytes` may have been sent."""
        with self._lock:
            self._available_at = due = max(time.monotonic(), self._available_at) + n_bytes / self._bytes_per_s
        time.sleep(max(0.0, due - time.monotonic()))


class FaultProxy:
    """The proxy. `upstream` is the URL of a server, or a folder."""

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
        """Body bytes sent to all clients."""
        return sum(connection.sent_bytes for connection in list(self.connections))

    @property
    def n_open_connections(self) -> int:
        return len(self._client_sockets)

    def set_faults(self, faults: Iterable[Fault] = ()) -> None:
        """Replace the faults and reset all counts."""
        with self._lock:
            self._armed_faults = [_ArmedFault(fault) for fault in faults]
            self.connections: list[ClientConnection] = []
            self.injected_faults: list[InjectedFault] = []
            self._n_gets, self._started_at = 0, time.monotonic()

    def release(self) -> None:
        """Resume every response that stalls, drips or is delayed."""
        self.released.set()

    def wait_for_faults(self, count: int = 1, timeout_s: float = 10.0) -> bool:
        """Wait until `count` faults were injected."""
        with self._lock:
            return self._lock.wait_for(lambda: len(self.injected_faults) >= count, timeout_s)

    def wait_until_disconnected(self, timeout_s: float = 10.0) -> bool:
        """Wait until no client is connected; then all sent bytes are counted."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._client_sockets, timeout_s)

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
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
        """Record an injection. Return False if the fault is used up or no longer active."""
        with self._lock:
            if not armed_fault.try_inject():
                return False
            self.injected_faults.append(
                InjectedFault(armed_fault.fault.kind, request_number, time.monotonic() - self._started_at)
            )
            self._lock.notify_all()
            return True

    def inject_first(self, method: str, request_number: int, target: str, *kinds: str) -> Fault | None:
        """Return the first fault of these kinds that can be injected into the request, and record it."""
        due = self.matching_faults(method, request_number, target, kinds)
        return next((armed.fault for armed in due if self.try_inject(armed, request_number)), None)


class _ClientSession:
    """Handles the requests on one connection."""

    def __init__(self, proxy: FaultProxy, client: socket.socket, connection: ClientConnection) -> None:
        self._proxy, self._client, self._connection = proxy, client, connection
        self._body_actions: dict[str, Callable[[Fault, UpstreamResponse], object]] = {
            "stall": lambda fault, response: self._wait_or_close(fault.duration_s),
            "close": lambda fault, response: self._close_connection(),
            "reset": lambda fault, response: self._reset_connection(),
            "drip": self._drip,
            "corrupt": lambda fault, response: self._send(bytes([response.body.read(1)[0] ^ 0xFF])),
        }

    def run(self) -> None:
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._proxy.tls_context:
            self._tls_handshake(self._proxy.tls_context)
        buffered = b""
        while message := read_head(self._client, buffered):
            request, buffered = message
            body, buffered = self._read_request_body(request, buffered)
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
        chunks, received = [buffered], len(buffered)
        while received < length:
            chunks.append(self._client.recv(CHUNK_BYTES) or self._close_connection())
            received += len(chunks[-1])
        data = b"".join(chunks)
        return data[:length], data[length:]

    def _handle_request(self, request: MessageHead, body: bytes) -> None:
        method, target = request.start_line.split(" ")[:2]
        number = self._proxy.next_get_number() if method == "GET" else 0
        self._connection.requests.append(f"{method} {target} {request.get('Range') or ''}".rstrip())
        close_requested = (request.get("Connection") or "").lower() == "close"
        if delay := self._proxy.inject_first(method, number, target, "delay"):
            self._wait_or_close(delay.duration_s)
        response = self._error_response(method, number, target) or self._proxy.upstream(method, target, request, body)
        try:
            self._forward_response(response, method, number, target)
        finally:
            response.body.close()
        if close_requested or response.length is None:
            self._close_connection()

    def _error_response(self, method: str, request_number: int, target: str) -> UpstreamResponse | None:
        fault = self._proxy.inject_first(method, request_number, target, "status", "redirect_loop")
        if fault is None:
            return None
        if fault.kind == "redirect_loop":
            return make_response("302 Found", Location=target)
        return make_response(f"{fault.status} Fault", b"injected fault\n", Content_Type="text/plain", **fault.headers)

    def _forward_response(self, response: UpstreamResponse, method: str, request_number: int, target: str) -> None:
        if method == "HEAD":
            self._client.sendall(response.head.encode())
            return
        has_wrong_length = self._inject_length_faults(response, request_number, target)
        self._client.sendall(response.head.encode())
        sent = 0
        for offset, armed in self._body_faults(response, request_number, target):
            sent += self._forward_body(response, offset - sent)
            if sent == offset and self._proxy.try_inject(armed, request_number):
                self._body_actions[armed.fault.kind](armed.fault, response)
                sent += armed.fault.kind == "corrupt"
        self._forward_body(response, None if response.length is None else response.length - sent)
        if has_wrong_length:
            self._close_connection()

    def _inject_length_faults(self, response: UpstreamResponse, request_number: int, target: str) -> bool:
        """Change the Content-Length. Return True if it is wrong now."""
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
        candidates = [
            (armed.fault.offset_in_response(response), armed)
            for armed in self._proxy.matching_faults("GET", request_number, target, _BODY_FAULT_KINDS)
        ]
        return sorted(((offset, armed) for offset, armed in candidates if offset is not None), key=lambda pair: pair[0])

    def _forward_body(self, response: UpstreamResponse, n_bytes: int | None) -> int:
        """Forward `n_bytes` of the body (None: all). Return the number of bytes sent."""
        rate_limiter, sent = self._proxy.rate_limiter, 0
        while n_bytes is None or sent < n_bytes:
            chunk_bytes = _THROTTLED_CHUNK_BYTES if rate_limiter else 64 * CHUNK_BYTES
            max_bytes = chunk_bytes if n_bytes is None else min(chunk_bytes, n_bytes - sent)
            n_sent = response.body.send_to(self._client, max_bytes)
            if not n_sent:
                break
            sent += n_sent
            self._connection.sent_bytes += n_sent
            if rate_limiter:
                rate_limiter.wait_for(n_sent)
        return sent

    def _send(self, data: bytes) -> None:
        self._client.sendall(data)
        self._connection.sent_bytes += len(data)

    def _drip(self, fault: Fault, response: UpstreamResponse) -> None:
        deadline = None if fault.duration_s is None else time.monotonic() + fault.duration_s
        while deadline is None or time.monotonic() < deadline:
            chunk = response.body.read(max(1, int(fault.bytes_per_s / _DRIPS_PER_S)))
            if not chunk or self._proxy.released.is_set():
                return self._send(chunk)
            self._send(chunk)
            self._wait_or_close(1 / _DRIPS_PER_S)
        return None

    def _wait_or_close(self, timeout_s: float | None) -> None:
        """Wait for the timeout or `release`. Raises _ConnectionClosed if the client disconnects."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        poller = select.poll()
        poller.register(self._client, select.POLLRDHUP)
        while not self._proxy.released.is_set() and (deadline is None or time.monotonic() < deadline):
            wait_s = _POLL_INTERVAL_S if deadline is None else min(_POLL_INTERVAL_S, deadline - time.monotonic())
            if poller.poll(max(0.0, wait_s) * 1000):
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
    "response_offset": int,
    "object_offset": int,
    "extra_bytes": int,
    "status": int,
    "bytes_per_s": float,
    "active_for_s": float,
    "duration_s": float,
    "path_contains": str,
    "max_times": lambda text: None if text == "always" else int(text),
    "request_numbers": lambda text: tuple(int(part) for part in text.split("+")),
}


def parse_fault(text: str) -> Fault:
    """Parse `stall,response_offset=5000000,max_times=always`; several requests as `request_numbers=1+2`."""
    kind, *settings = text.split(",")
    pairs = (setting.partition("=") for setting in settings)
    return Fault(kind, **{name: _FIELD_PARSERS[name](value) for name, _, value in pairs})  # type: ignore[operator]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testbed.faults", description="A proxy that injects faults.")
    parser.add_argument("upstream", help="URL of a server, or a folder")
    parser.add_argument("--fault", action="append", type=parse_fault, default=[], help=", ".join(FAULT_KINDS))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--bytes-per-s", type=float, help="limit the total rate of all connections")
    args = parser.parse_args()
    upstream = args.upstream if "://" in args.upstream else Path(args.upstream)
    stop_signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)  # before threads start, which inherit it
    rate_limiter = RateLimiter(args.bytes_per_s) if args.bytes_per_s else None
    with FaultProxy(upstream, args.fault, port=args.port, rate_limiter=rate_limiter) as proxy:
        print(proxy.url, flush=True)
        signal.sigwait(stop_signals)
        connections = [dataclasses.asdict(connection) for connection in proxy.connections]
        injected = [dataclasses.asdict(fault) for fault in proxy.injected_faults]
        print(json.dumps({"sent_bytes": proxy.sent_bytes, "connections": connections, "injected_faults": injected}))


if __name__ == "__main__":
    main()
