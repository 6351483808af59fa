"""Open connections: TCP, proxies from the environment, verified TLS.

Timeouts (see `connection`) apply to silence, not to the whole transfer: a slow transfer that makes progress is never
aborted.
"""

from __future__ import annotations

import errno
import functools
import os
import select
import socket
import time
from base64 import b64encode
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from packtrain.errors import TransferError
from packtrain.transfer.cancellation import CancelCheck
from packtrain.transfer.http import connection
from packtrain.transfer.http.error_mapping import map_errors
from packtrain.transfer.http.proxies import proxy_for
from packtrain.transfer.urls import redact_url, url_origin

if TYPE_CHECKING:
    import ssl

_POLL_INTERVAL_S = 0.25
_ADDRESS_TIMEOUT_S = 2.0  # per address while the host has others
_UNREACHABLE_ADDRESSES: set[Any] = set()  # addresses whose last connection attempt failed
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


@dataclass(frozen=True)
class Route:
    """How to reach a URL. Routes with equal `pool_key`s may share a connection."""

    url: str
    url_parts: SplitResult
    proxy: SplitResult | None

    @property
    def pool_key(self) -> Hashable:
        return url_origin(self.url), self.proxy

    @property
    def host_header(self) -> str:
        """The Host header, identical to the one that `sigv4` signs."""
        host = self.url_parts.netloc.rpartition("@")[2]
        default = _DEFAULT_PORTS[self.url_parts.scheme]
        host = host[: -len(default)] if host.endswith(default) else host
        return host if host.isascii() else host.encode("idna").decode()

    @property
    def target(self) -> str:
        """The request target; a forward proxy needs the absolute URL."""
        return _format_request_target(
            self.url_parts, is_absolute=self.proxy is not None and self.url_parts.scheme == "http"
        )


def route_for(url: str) -> Route:
    """Return the route to a URL. Raises TransferError if it is not http or https."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise TransferError("unsupported", f"{redact_url(url)} is not an http or https URL", redact_url(url))
    return Route(url, parts, proxy_for(parts))


def is_local_server(url: str) -> bool:
    """Return whether the server's IP address belongs to this machine, tested by binding to it."""
    try:
        route = route_for(url)
        host = "127.0.0.1" if route.url_parts.hostname == "localhost" else route.url_parts.hostname or ""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.inet_pton(family, host)  # host names are not resolved
        with socket.socket(family) as probe:
            probe.bind((host, 0))
    except (OSError, ValueError, TransferError):  # invalid URLs are reported when they are used
        return False
    return route.proxy is None


def connect(route: Route, check_cancelled: CancelCheck = lambda: None) -> socket.socket:
    """Connect to the route's server; `check_cancelled` is called several times per second."""
    proxy, uses_tls = route.proxy, route.url_parts.scheme == "https"
    context = _ssl_context_from_environ() if uses_tls else None  # reports an unreadable CA bundle before connecting
    with map_errors(route.url, connecting=True, proxy=proxy.hostname if proxy else None):
        sock = _connect_tcp(proxy or route.url_parts, check_cancelled)
        try:
            if proxy and uses_tls:
                _open_tunnel(sock, proxy, route.url_parts)
            return _start_tls(sock, context, route, check_cancelled) if context else sock
        except BaseException:
            sock.close()
            raise


def _connect_tcp(url_parts: SplitResult, check_cancelled: CancelCheck) -> socket.socket:
    """Connect to the first reachable address of the host; recently unreachable ones are tried last."""
    host, port = url_parts.hostname or "", url_parts.port or (443 if url_parts.scheme == "https" else 80)
    name = host.encode("ascii" if host.isascii() else "idna")  # otherwise getaddrinfo imports the large IDNA codec
    last_error: OSError = OSError("the host has no address")
    addresses = sorted(
        socket.getaddrinfo(name, port, type=socket.SOCK_STREAM), key=lambda row: row[4] in _UNREACHABLE_ADDRESSES
    )
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            _connect_socket(
                sock,
                address,
                check_cancelled,
                connection.CONNECT_TIMEOUT_S if address == addresses[-1][4] else _ADDRESS_TIMEOUT_S,
            )
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


def _connect_socket(sock: socket.socket, address: Any, check_cancelled: CancelCheck, timeout_s: float) -> None:
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


def _open_tunnel(sock: socket.socket, proxy: SplitResult, url_parts: SplitResult) -> None:
    host = (url_parts.hostname or "").encode("idna").decode()
    authority = f"{f'[{host}]' if ':' in host else host}:{url_parts.port or 443}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    lines += [f"{name}: {value}" for name, value in proxy_headers(proxy).items()]
    http = connection.Http11Connection(sock)
    http.write_request("\r\n".join([*lines, "", ""]).encode("latin-1"), None)
    head = http.read_response_head()
    if head.status != 200:
        raise OSError(f"the proxy returned {head.status} {head.reason}")


def _start_tls(
    sock: socket.socket, context: ssl.SSLContext, route: Route, check_cancelled: CancelCheck
) -> ssl.SSLSocket:
    """Wrap the socket in TLS and verify the server; errors name the server, also behind a proxy."""
    with map_errors(route.url, connecting=True):
        return _handshake(sock, context, route.url_parts.hostname, check_cancelled)


def _handshake(
    sock: socket.socket, context: ssl.SSLContext, host: str | None, check_cancelled: CancelCheck
) -> ssl.SSLSocket:
    tls_socket = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    tls_socket.settimeout(_POLL_INTERVAL_S)
    deadline = time.monotonic() + connection.CONNECT_TIMEOUT_S
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


def proxy_headers(proxy: SplitResult) -> dict[str, str]:
    """Return the authorization header for a proxy."""
    return {"Proxy-Authorization": basic_auth_header(proxy)} if proxy.username else {}


def forward_proxy_headers(route: Route) -> dict[str, str]:
    """Return the headers that a forward proxy needs with each request outside of a tunnel."""
    return proxy_headers(route.proxy) if route.proxy and route.url_parts.scheme == "http" else {}


def basic_auth_header(url_parts: SplitResult) -> str:
    """Return the Basic Authorization for the user and password of a URL."""
    pair = f"{unquote(url_parts.username or '')}:{unquote(url_parts.password or '')}"
    return "Basic " + b64encode(pair.encode()).decode()


def _format_request_target(url_parts: SplitResult, is_absolute: bool) -> str:
    from urllib.parse import quote

    path = quote(url_parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(url_parts.query, safe="/%:@!$&'()*+,;=~-._?")
    target = f"{path}?{query}" if query else path
    return f"{url_parts.scheme}://{url_parts.netloc.rpartition('@')[2]}{target}" if is_absolute else target


def _ssl_context_from_environ() -> ssl.SSLContext:
    return _load_ssl_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.lru_cache(maxsize=4)
def _load_ssl_context(cafile: str | None, capath: str | None) -> ssl.SSLContext:
    import ssl

    if cafile or capath:
        try:
            return ssl.create_default_context(cafile=cafile or None, capath=capath or None)
        except OSError as error:
            message = f"the CA bundle {cafile or capath} of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error}"
            raise TransferError("certificate_invalid", message) from error
    defaults = ssl.get_default_verify_paths()
    bundle = None if defaults.cafile or defaults.capath else next(filter(os.path.exists, CA_BUNDLES), None)
    return ssl.create_default_context(cafile=bundle)
