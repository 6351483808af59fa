"""Open connections: TCP, a tunnel through a proxy, TLS."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from packtrain.transfer.http.connection import Http11Connection
from packtrain.transfer.http.error_mapping import map_errors
from packtrain.transfer.http.headers import printable
from packtrain.transfer.http.routes import Route
from packtrain.transfer.http.tls import ssl_context_from_environ
from packtrain.transfer.tasks.cancellation import check_cancelled
from packtrain.transfer.urls import redact_url

if TYPE_CHECKING:
    import ssl

CONNECT_TIMEOUT_S = 10.0
_POLL_INTERVAL_S = 0.25
_ADDRESS_TIMEOUT_S = 2.0  # per address while the host has others
_UNREACHABLE_ADDRESSES: set[Any] = set()  # addresses whose last connection attempt failed
_AddressInfo = tuple[Any, Any, int, str, Any]  # as getaddrinfo returns it
_logger = logging.getLogger("packtrain.transfer.http")


def connect(route: Route) -> Http11Connection:
    """Connect to the route's server."""
    proxy, uses_tls = route.proxy, route.uses_tls
    context = ssl_context_from_environ() if uses_tls else None  # reports an unreadable CA bundle before connecting
    _logger.debug("connect to %s%s", redact_url(route.url), f" through the proxy {proxy.hostname}" if proxy else "")
    with map_errors(route.url, CONNECT_TIMEOUT_S, proxy.hostname if proxy else None):
        sock = _connect_tcp(proxy or route.url_parts)
        try:
            if proxy and uses_tls:
                _open_tunnel(sock, route)
            return Http11Connection(_start_tls(sock, context, route) if context else sock)
        except BaseException:
            sock.close()
            raise


def _connect_tcp(url_parts: SplitResult) -> socket.socket:
    """Connect to the first reachable address of the host; recently unreachable ones are tried last."""
    host, port = url_parts.hostname or "", url_parts.port or (443 if url_parts.scheme == "https" else 80)
    name = host.encode("ascii" if host.isascii() else "idna")  # otherwise getaddrinfo imports the large IDNA codec
    last_error: OSError = OSError("the host has no address")
    addresses = sorted(_look_up(name, port), key=lambda row: row[4] in _UNREACHABLE_ADDRESSES)
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            _connect_socket(sock, address, CONNECT_TIMEOUT_S if address == addresses[-1][4] else _ADDRESS_TIMEOUT_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _UNREACHABLE_ADDRESSES.discard(address)
            return sock
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):
                raise
            _UNREACHABLE_ADDRESSES.add(address)
            last_error = error
    raise last_error


def _look_up(name: bytes, port: int) -> list[_AddressInfo]:
    """Return the addresses of a host. A silent name server is queried in a thread, because that cannot be cancelled."""
    with contextlib.suppress(socket.gaierror):
        return socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    results: queue.SimpleQueue[list[_AddressInfo] | OSError | UnicodeError] = queue.SimpleQueue()

    def query() -> None:
        try:
            results.put(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            results.put(error)

    threading.Thread(target=query, name="name-lookup", daemon=True).start()
    while True:
        with contextlib.suppress(queue.Empty):
            result = results.get(timeout=_POLL_INTERVAL_S)
            if isinstance(result, Exception):
                raise result
            return result
        check_cancelled()


def _connect_socket(sock: socket.socket, address: Any, timeout_s: float) -> None:
    sock.setblocking(False)
    deadline, poller = time.monotonic() + timeout_s, select.poll()
    error = sock.connect_ex(address)
    poller.register(sock, select.POLLOUT)
    while error == errno.EINPROGRESS:
        if poller.poll(_POLL_INTERVAL_S * 1000):
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        elif time.monotonic() >= deadline:
            raise socket.timeout("timed out")
        else:
            check_cancelled()
    if error:
        raise OSError(error, os.strerror(error))


def _open_tunnel(sock: socket.socket, route: Route) -> None:
    host = (route.url_parts.hostname or "").encode("idna").decode()
    authority = f"{f'[{host}]' if ':' in host else host}:{route.url_parts.port or 443}"
    tunnel = Http11Connection(sock)
    tunnel.request("CONNECT", authority, headers={"Host": authority, **route.proxy_headers})
    response = tunnel.getresponse()
    if response.status != 200:
        raise OSError(f"the proxy returned {response.status} {printable(response.reason)}")


def _start_tls(sock: socket.socket, context: ssl.SSLContext, route: Route) -> ssl.SSLSocket:
    """Wrap the socket in TLS and verify the server; errors name the server, also behind a proxy."""
    with map_errors(route.url, CONNECT_TIMEOUT_S):
        return _handshake(sock, context, route.url_parts.hostname)


def _handshake(sock: socket.socket, context: ssl.SSLContext, host: str | None) -> ssl.SSLSocket:
    tls_socket = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    tls_socket.settimeout(_POLL_INTERVAL_S)
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    try:
        while True:
            try:
                tls_socket.do_handshake()
                return tls_socket
            except socket.timeout:
                check_cancelled()
                if time.monotonic() >= deadline:
                    raise
    except BaseException:
        tls_socket.close()
        raise
