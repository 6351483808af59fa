"""Routes: how to reach a URL, directly or through a proxy of the environment.

Proxies are in `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, lower or upper case. `urllib.request` has the
same rules, but importing it takes longer than fetching a small file.
"""

from __future__ import annotations

import os
import socket
from base64 import b64encode
from collections.abc import Hashable
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, urlsplit

from packtrain.errors import TransferError
from packtrain.transfer.urls import redact_url, url_origin

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True)
class Route:
    """How to reach a URL. Routes with equal `pool_key`s may share a connection."""

    url: str
    url_parts: SplitResult
    proxy: SplitResult | None

    @property
    def uses_tls(self) -> bool:
        return self.url_parts.scheme == "https"

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
        path = quote(self.url_parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
        query = quote(self.url_parts.query, safe="/%:@!$&'()*+,;=~-._?")
        target = f"{path}?{query}" if query else path
        return f"http://{self.host_header}{target}" if self.proxy and not self.uses_tls else target

    @property
    def proxy_headers(self) -> dict[str, str]:
        """The headers that the proxy needs with a request or a CONNECT."""
        if self.proxy is None or not self.proxy.username:
            return {}
        return {"Proxy-Authorization": basic_auth_header(self.proxy)}


def route_for(url: str) -> Route:
    """Return the route to a URL. Raises TransferError if it is not http or https."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise TransferError("unsupported", f"{redact_url(url)} is not an http or https URL", redact_url(url))
    return Route(url, parts, _proxy_for(parts))


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


def basic_auth_header(url_parts: SplitResult) -> str:
    """Return the Basic Authorization for the user and password of a URL."""
    pair = f"{unquote(url_parts.username or '')}:{unquote(url_parts.password or '')}"
    return "Basic " + b64encode(pair.encode()).decode()


def _proxy_for(url_parts: SplitResult) -> SplitResult | None:
    """Return the proxy for a URL, or None. Raises TransferError for proxies other than http://."""
    proxy_url = _read_variable(f"{url_parts.scheme}_proxy") or _read_variable("all_proxy")
    if not proxy_url or _is_bypassed(url_parts):
        return None
    proxy = urlsplit(proxy_url if "://" in proxy_url else f"http://{proxy_url}")
    if proxy.scheme != "http":
        raise TransferError(
            "unsupported", f"the proxy {redact_url(proxy_url)} is not an http:// URL", redact_url(proxy_url)
        )
    return proxy


def _read_variable(name: str) -> str:
    """Return a variable, lower case first. In CGI programs HTTP_PROXY may come from a client's header."""
    is_spoofed = name == "http_proxy" and "REQUEST_METHOD" in os.environ
    return os.environ.get(name) or ("" if is_spoofed else os.environ.get(name.upper(), ""))


def _is_bypassed(url_parts: SplitResult) -> bool:
    """Return whether `no_proxy` lists the host: hosts and domains, optionally with port; `*` matches all."""
    host = (url_parts.hostname or "").lower()
    host_and_port = url_parts.netloc.rpartition("@")[2].lower()
    names = [name.strip().lower().lstrip(".") for name in _read_variable("no_proxy").split(",")]
    return any(
        name == "*" or _matches_domain(name, host) or _matches_domain(name, host_and_port) for name in names if name
    )


def _matches_domain(domain: str, host: str) -> bool:
    return host == domain or host.endswith(f".{domain}")
