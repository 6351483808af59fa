"""Query the director of a Pelican federation for the servers of an object.

The federation's discovery document names the director. The director responds with 307, the best server in `Location`,
all caches by priority in `Link`, and the properties of the namespace in `X-Pelican-Namespace`.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from packtrain.errors import TransferError
from packtrain.transfer.http.client import Request, Response, send_request
from packtrain.transfer.http.headers import parse_number
from packtrain.transfer.http.response import error_from_response
from packtrain.transfer.urls import redact_url

OBJECT_ENDPOINT, ORIGIN_ENDPOINT = "", "/api/v1.0/director/origin"
_WELL_KNOWN_PATH = "/.well-known/pelican-configuration"
_DISCOVERY_CACHE_S = 600.0
_LINK = re.compile(r'<([^>]*)>((?:\s*;\s*[^\s=;,<]+\s*=\s*(?:"[^"]*"|[^\s";,<]*))*)')
_LINK_PARAMETER = re.compile(r';\s*([^\s=;,<]+)\s*=\s*(?:"([^"]*)"|([^\s";,<]*))')
_LOWEST_PRIORITY = 1 << 30  # of a link without `pri`
_GENERIC_404_BODY = "404 page not found"


@dataclass(frozen=True)
class DirectorResponse:
    """URLs of the servers that have the object, the best first, and the properties of the namespace."""

    server_urls: tuple[str, ...]
    namespace: Mapping[str, str]

    @property
    def needs_token(self) -> bool:
        return self.namespace.get("require-token", "").lower() == "true"

    @property
    def collections_url(self) -> str | None:
        """The URL for folder listings, if there is one."""
        return self.namespace.get("collections-url") or None


def query(
    federation: str,
    path: str,
    method: str,
    headers: Mapping[str, str],
    secret_headers: Mapping[str, str],
    endpoint: str = OBJECT_ENDPOINT,
) -> DirectorResponse:
    """Return the servers for a path. Raises TransferError if the director names none.

    Secret headers are sent over https only.
    """
    url = _DIRECTOR_CACHE.get(federation) + endpoint + path
    secret_headers = secret_headers if url.lower().startswith("https://") else {}
    response = send_request(Request(url, method, headers, secret_headers), max_redirects=0)
    try:
        location = _resolve_http_url(url, response.headers.get("Location") or "")
        if response.status not in (302, 307) or not location:
            raise _make_error(response, bool(secret_headers))
    finally:
        response.close()
    return parse_director_response(
        location, response.headers.get_combined("Link"), response.headers.get("X-Pelican-Namespace")
    )


def _make_error(response: Response, has_credentials: bool) -> TransferError:
    """Map an error response. A 404 is final only from the director itself: proxies return 404 while it restarts."""
    body = response.read_explanation().strip()
    if response.status == 404 and (_is_other_server(response) or body == _GENERIC_404_BODY):
        url = redact_url(response.url)
        message = f"{url} returned a 404 that is not from a Pelican director; it may be restarting"
        return TransferError("service_unavailable", message, url)
    return error_from_response(response, has_credentials, _parse_error_message(body))


def _is_other_server(response: Response) -> bool:
    return not (response.headers.get("Server") or "").lower().startswith("pelican")


def _parse_error_message(body: str) -> str:
    try:
        return str(json.loads(body)["msg"])
    except (ValueError, KeyError, TypeError):
        return ""


def parse_director_response(
    redirect_url: str, link_header: str | None, namespace_header: str | None
) -> DirectorResponse:
    """Parse the headers of the director's redirect."""
    servers = filter(None, (_resolve_http_url(redirect_url, url) for url in parse_duplicate_links(link_header or "")))
    return DirectorResponse(
        tuple(dict.fromkeys(servers)) or (redirect_url,), parse_pelican_header(namespace_header or "")
    )


def _resolve_http_url(base: str, url: str) -> str | None:
    """Return the absolute URL, or None if it is not an http(s) URL."""
    try:
        absolute = urljoin(base, url) if url else ""
        return absolute if urlsplit(absolute).hostname and absolute.startswith(("http://", "https://")) else None
    except ValueError:
        return None


def parse_duplicate_links(link_header: str) -> list[str]:
    """Return the duplicate links of a `Link` header (RFC 6249), ordered by `pri`."""
    ranked = []
    for url, tail in _LINK.findall(link_header):
        parameters = {name.lower(): quoted or plain for name, quoted, plain in _LINK_PARAMETER.findall(tail)}
        if parameters.get("rel", "duplicate").lower() == "duplicate":
            ranked.append((_parse_priority(parameters.get("pri", "")), url))
    return [url for _, url in sorted(ranked, key=lambda pair: pair[0])]


def _parse_priority(text: str) -> int:
    priority = parse_number(text)
    return _LOWEST_PRIORITY if priority is None else priority


def parse_pelican_header(header: str) -> dict[str, str]:
    """Parse a header in Pelican's form `a=1, b=2`."""
    pairs = (part.partition("=") for part in header.split(","))
    return {name.strip().lower(): value.strip() for name, _, value in pairs if name.strip()}


class _DirectorCache:
    """Caches the director of each federation; thread-safe."""

    def __init__(self) -> None:
        self._endpoints: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def get(self, federation: str) -> str:
        with self._lock:
            director, expires_at = self._endpoints.get(federation, ("", float("-inf")))
        if time.monotonic() < expires_at:
            return director
        director = _discover_director(federation)
        with self._lock:
            self._endpoints[federation] = director, time.monotonic() + _DISCOVERY_CACHE_S
        return director


_DIRECTOR_CACHE = _DirectorCache()


def _discover_director(federation: str) -> str:
    url = f"https://{federation}{_WELL_KNOWN_PATH}"
    response = send_request(Request(url))
    try:
        if response.status != 200:
            raise error_from_response(response, has_credentials=False)
        return str(json.loads(response.read_text())["director_endpoint"]).rstrip("/")
    except (ValueError, KeyError, TypeError) as error:
        message = f"{url} is not the discovery document of a Pelican federation; check {federation!r}"
        raise TransferError("unexpected_content", message, url) from error
    finally:
        response.close()
