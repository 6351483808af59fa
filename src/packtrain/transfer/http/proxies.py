"""Find proxies in the environment: `http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`, lower or upper case.

`urllib.request` has the same rules, but importing it takes longer than fetching a small file.
"""

from __future__ import annotations

import os
from urllib.parse import SplitResult, urlsplit

from packtrain.errors import TransferError
from packtrain.transfer.urls import redact_url


def proxy_for(url_parts: SplitResult) -> SplitResult | None:
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
