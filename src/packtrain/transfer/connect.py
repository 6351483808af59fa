"""One connection to a server: TLS that is verified, proxies from the environment, time limits.

The limits are for silence, not for the whole: a slow transfer that progresses is never cut.
Foreign exceptions of connections become TransferErrors here and nowhere else.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from base64 import b64encode
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from packtrain.errors import TransferError
from packtrain.transfer.address import origin_of, shown

if TYPE_CHECKING:
    import socket
    import ssl
    from http.client import HTTPConnection

CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 30.0
_HANDSHAKE_STEP_S = 0.25
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_BUNDLES = (
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
        return origin_of(self.url), self.proxy

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
    return Route(url, parts, _proxy_for(parts))


def connect(route: Route, tick: Callable[[], None] = lambda: None) -> socket.socket:
    """`tick` is asked several times a second while TLS is agreed on: a stopped server still lets one connect."""
    proxy, tls = route.proxy, _tls() if route.parts.scheme == "https" else None
    with translated(route.url, connecting=True, proxy=proxy.hostname if proxy else None):
        connection = _through(proxy, route.parts) if proxy else _direct(route.parts)
        try:
            connection.connect()
            return _secured(connection.sock, tls, route.parts.hostname, tick) if tls else connection.sock
        except BaseException:
            connection.close()
            raise


def _direct(parts: SplitResult) -> HTTPConnection:
    import http.client

    port = parts.port or (443 if parts.scheme == "https" else 80)
    return http.client.HTTPConnection(parts.hostname or "", port, timeout=CONNECT_TIMEOUT_S)


def _through(proxy: SplitResult, parts: SplitResult) -> HTTPConnection:
    import http.client

    connection = http.client.HTTPConnection(proxy.hostname or "", proxy.port or 80, timeout=CONNECT_TIMEOUT_S)
    if parts.scheme == "https":
        connection.set_tunnel(parts.hostname or "", parts.port or 443, proxy_headers(proxy))
    return connection


def _secured(sock: socket.socket, tls: ssl.SSLContext, host: str | None, tick: Callable[[], None]) -> ssl.SSLSocket:
    import socket

    secured = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    secured.settimeout(_HANDSHAKE_STEP_S)
    until = time.monotonic() + CONNECT_TIMEOUT_S
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


def _proxy_for(parts: SplitResult) -> SplitResult | None:
    from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

    proxies = getproxies_environment()
    address = proxies.get(parts.scheme) or proxies.get("all")
    if not address or proxy_bypass_environment(parts.netloc.rpartition("@")[2], proxies):
        return None
    proxy = urlsplit(address if "://" in address else f"http://{address}")
    if proxy.scheme != "http":
        raise TransferError("unsupported", f"the proxy {shown(address)} is not an http:// one", shown(address))
    return proxy


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
    bundle = None if found.cafile or found.capath else next(filter(os.path.exists, _BUNDLES), None)
    return ssl.create_default_context(cafile=bundle)


@contextlib.contextmanager
def translated(url: str, connecting: bool = False, proxy: str | None = None) -> Iterator[None]:
    """Whatever the network throws leaves as a TransferError with a sentence."""
    import http.client

    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as error:
        kind, words = _judged(error, connecting)
        host = proxy or urlsplit(url).hostname
        via = f" through the proxy {proxy}" if proxy else ""
        raise TransferError(kind, f"{shown(url)}{via}: {words.format(host=host, error=error)}", shown(url)) from error


def _judged(error: Exception, connecting: bool) -> tuple[str, str]:
    return next((kind, words) for types, kind, words in _verdicts(connecting) if isinstance(error, types))


@functools.lru_cache(maxsize=2)
def _verdicts(connecting: bool) -> tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...]:
    """The first row that fits counts: exception → kind and words."""
    import http.client
    import socket
    import ssl

    silence = (
        ("network_unreachable", f"{{host}} did not answer within {CONNECT_TIMEOUT_S:.0f} s")
        if connecting
        else ("service_unavailable", f"{{host}} sent nothing for {SILENCE_TIMEOUT_S:.0f} s")
    )
    return (
        (ssl.SSLCertVerificationError, "certificate_refused", "the certificate of {host} is not trusted: {error}"),
        ((socket.gaierror, UnicodeError), "host_unknown", "the host name {host} does not resolve ({error})"),
        (socket.timeout, *silence),
        (ConnectionRefusedError, "network_unreachable", "{host} refused the connection"),
        (http.client.IncompleteRead, "truncated", "the body ended before its promised end"),
        (http.client.InvalidURL, "unsupported", "this is not a valid address"),
        (ConnectionError, "service_unavailable", "{host} dropped the connection"),
        (http.client.HTTPException, "service_unavailable", "{host} gave an answer that is not HTTP"),
        (ssl.SSLError, "service_unavailable", "TLS with {host} failed: {error}"),
        (OSError, "network_unreachable", "no connection to {host} ({error})"),
        (Exception, "unsupported", "this is not a valid address ({error})"),
    )
