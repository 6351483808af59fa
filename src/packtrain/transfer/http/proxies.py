"""Proxies from the environment: `http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`, lower or upper case.

By hand, because `urllib.request`, which has the same rules, takes longer to import than a small file to fetch.
"""

from __future__ import annotations

import os
from urllib.parse import SplitResult, urlsplit

from packtrain.errors import TransferError
from packtrain.transfer.urls import redact_url


def proxy_for(url_parts: SplitResult) -> SplitResult | None:
    address = _read_variable(f"{url_parts.scheme}_proxy") or _read_variable("all_proxy")
    if not address or _is_bypassed(url_parts):
        return None
    proxy = urlsplit(address if "://" in address else f"http://{address}")
    if proxy.scheme != "http":
        raise TransferError(
            "unsupported", f"the proxy {redact_url(address)} is not an http:// one", redact_url(address)
        )
    return proxy


def _read_variable(name: str) -> str:
    """Lower case counts first. In a CGI program HTTP_PROXY is a header that anybody may send."""
    spoofed = name == "http_proxy" and "REQUEST_METHOD" in os.environ
    return os.environ.get(name) or ("" if spoofed else os.environ.get(name.upper(), ""))


def _is_bypassed(url_parts: SplitResult) -> bool:
    """`no_proxy` lists hosts and domains, with or without a port and a leading dot; `*` is all."""
    host, place = (url_parts.hostname or "").lower(), url_parts.netloc.rpartition("@")[2].lower()
    names = [name.strip().lower().lstrip(".") for name in _read_variable("no_proxy").split(",")]
    return any(name == "*" or _matches_domain(name, host) or _matches_domain(name, place) for name in names if name)


def _matches_domain(domain: str, host: str) -> bool:
    return host == domain or host.endswith(f".{domain}")
