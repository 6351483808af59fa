"""One connection to a server: TLS that is verified, proxies from the environment.

Time limits (in `wire`) are for silence, not for the whole: a slow transfer that progresses is never cut.
"""

from __future__ import annotations

import errno
import functools
import os
import select
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from packtrain.errors import TransferError
from packtrain.transfer.http import connection
from packtrain.transfer.http.error_mapping import translated
from packtrain.transfer.http.proxies import proxy_for
from packtrain.transfer.http.tls_process import RELAY
from packtrain.transfer.urls import origin_of, shown

if TYPE_CHECKING:
    import ssl

Tick = Callable[[], None]

_STEP_S = 0.25
_TRIED_S = 2.0  # of an address, while the host has others: whoever waits for the first byte gives up after 8 s
_DEAD: set[Any] = set()  # addresses that did not let us in when they were tried last
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


@dataclass(frozen=True)
class Route:
    """How an address is reached. Equal `key`s may share a connection."""

    url: str
    parts: SplitResult
    proxy: SplitResult | None

    @property
    def key(self) -> Hashable:
        return origin_of(self.url), self.proxy, RELAY.wanted

    @property
    def host(self) -> str:
        """The Host header; the same as `sigv4` signs."""
        host = self.parts.netloc.rpartition("@")[2]
        default = _DEFAULT_PORTS[self.parts.scheme]
        host = host[: -len(default)] if host.endswith(default) else host
        return host if host.isascii() else host.encode("idna").decode()

    @property
    def target(self) -> str:
        """What to ask for: a proxy wants the whole address."""
        return _target(self.parts, whole=self.proxy is not None and self.parts.scheme == "http")


def route_to(url: str) -> Route:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise TransferError("unsupported", f"{shown(url)} is not an http or https address", shown(url))
    return Route(url, parts, proxy_for(parts))


def is_here(url: str) -> bool:
    """Whether the server is on this machine: by its address, without asking anybody. No other can be bound to."""
    try:
        route = route_to(url)
        host = "127.0.0.1" if route.parts.hostname == "localhost" else route.parts.hostname or ""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.inet_pton(family, host)  # a name would have to be asked for
        with socket.socket(family) as probe:
            probe.bind((host, 0))
    except (OSError, ValueError, TransferError):  # what is wrong with an address is told by whoever calls it
        return False
    return route.proxy is None


def connect(route: Route, tick: Tick = lambda: None) -> socket.socket:
    """`tick` is asked several times a second: a server that is stopped lets one connect, and says no more."""
    proxy, tls = route.proxy, route.parts.scheme == "https"
    if tls and not RELAY.wanted:
        _tls()  # a CA bundle that cannot be read is told before anybody is called
    with translated(route.url, connecting=True, proxy=proxy.hostname if proxy else None):
        sock = _opened(proxy or route.parts, tick)
        try:
            if proxy and tls:
                _tunnel(sock, proxy, route.parts)
            return _with_tls(sock, route, tick) if tls else sock
        except BaseException:
            sock.close()
            raise


def _with_tls(sock: socket.socket, route: Route, tick: Tick) -> socket.socket:
    host = route.parts.hostname or ""
    relayed = RELAY.secured(sock, host, route.url, tick) if RELAY.wanted else None
    return relayed or agreed(sock, host, route.url, tick)


def agreed(sock: socket.socket, host: str, url: str, tick: Tick = lambda: None) -> ssl.SSLSocket:
    """The socket with TLS on it, its server verified."""
    with translated(url, connecting=True):
        return _secured(sock, _tls(), host, tick)


def _opened(parts: SplitResult, tick: Tick) -> socket.socket:
    """The first of the host's addresses that lets us in; those that did not last time are tried last."""
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    name = host.encode("ascii" if host.isascii() else "idna")  # left to itself, getaddrinfo imports all about IDNA
    problem: OSError = OSError("the host has no address")
    found = sorted(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM), key=lambda row: row[4] in _DEAD)
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            _reach(sock, address, tick, connection.CONNECT_TIMEOUT_S if address == found[-1][4] else _TRIED_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _DEAD.discard(address)
            return sock
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):
                raise
            _DEAD.add(address)
            problem = error
    raise problem


def _reach(sock: socket.socket, address: Any, tick: Tick, limit_s: float) -> None:
    sock.setblocking(False)
    until, waiting = time.monotonic() + limit_s, select.poll()
    failed = sock.connect_ex(address)
    waiting.register(sock, select.POLLOUT)
    while failed == errno.EINPROGRESS:
        if waiting.poll(_STEP_S * 1000):
            failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        elif time.monotonic() >= until:
            raise socket.timeout("timed out")
        else:
            tick()
    if failed:
        raise OSError(failed, os.strerror(failed))


def _tunnel(sock: socket.socket, proxy: SplitResult, parts: SplitResult) -> None:
    host = (parts.hostname or "").encode("idna").decode()
    place = f"{f'[{host}]' if ':' in host else host}:{parts.port or 443}"
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    lines += [f"{name}: {value}" for name, value in proxy_headers(proxy).items()]
    line = connection.Wire(sock)
    line.send("\r\n".join([*lines, "", ""]).encode("latin-1"), None)
    head = line.head()
    if head.status != 200:
        raise OSError(f"the proxy answered {head.status} {head.reason}")


def _secured(sock: socket.socket, tls: ssl.SSLContext, host: str | None, tick: Tick) -> ssl.SSLSocket:
    secured = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    secured.settimeout(_STEP_S)
    until = time.monotonic() + connection.CONNECT_TIMEOUT_S
    try:
        while True:
            try:
                secured.do_handshake()
                return secured
            except socket.timeout:
                tick()
                if time.monotonic() >= until:
                    raise
    except BaseException:
        secured.close()
        raise


def proxy_headers(proxy: SplitResult) -> dict[str, str]:
    return {"Proxy-Authorization": basic(proxy)} if proxy.username else {}


def plain_proxy_headers(route: Route) -> dict[str, str]:
    """What a proxy wants with each request that is not inside a tunnel."""
    return proxy_headers(route.proxy) if route.proxy and route.parts.scheme == "http" else {}


def basic(parts: SplitResult) -> str:
    """The Authorization that user and password of an address ask for."""
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return "Basic " + b64encode(pair.encode()).decode()


def _target(parts: SplitResult, whole: bool) -> str:
    from urllib.parse import quote

    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(parts.query, safe="/%:@!$&'()*+,;=~-._?")
    target = f"{path}?{query}" if query else path
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{target}" if whole else target


def _tls() -> ssl.SSLContext:
    return _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.lru_cache(maxsize=4)
def _context(cafile: str | None, capath: str | None) -> ssl.SSLContext:
    import ssl

    if cafile or capath:
        try:
            return ssl.create_default_context(cafile=cafile or None, capath=capath or None)
        except OSError as error:
            words = f"the CA bundle {cafile or capath} of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error}"
            raise TransferError("certificate_refused", words) from error
    found = ssl.get_default_verify_paths()
    bundle = None if found.cafile or found.capath else next(filter(os.path.exists, BUNDLES), None)
    return ssl.create_default_context(cafile=bundle)
