"""Whom a Pelican federation sends us to: the discovery document names the director, the director names servers.

It answers 307 with the best server in `Location`, all caches by rank in `Link`, and what the namespace demands in
`X-Pelican-Namespace`.
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
from packtrain.transfer.http.response import error_from_response
from packtrain.transfer.urls import redact_url

OBJECT_ENDPOINT, ORIGIN_ENDPOINT = "", "/api/v1.0/director/origin"
_WELL_KNOWN_PATH = "/.well-known/pelican-configuration"
_DISCOVERY_CACHE_S = 600.0
_LINK = re.compile(r'<([^>]*)>((?:\s*;\s*[^\s=;,<]+\s*=\s*(?:"[^"]*"|[^\s";,<]*))*)')
_LINK_PARAMETER = re.compile(r';\s*([^\s=;,<]+)\s*=\s*(?:"([^"]*)"|([^\s";,<]*))')
_LOWEST_PRIORITY = 1 << 30  # the rank of a link that states none
_GENERIC_404_BODY = "404 page not found"


@dataclass(frozen=True)
class DirectorResponse:
    """Addresses of servers that have the object, the best first, and what their namespace says."""

    server_urls: tuple[str, ...]
    namespace: Mapping[str, str]

    @property
    def needs_token(self) -> bool:
        return self.namespace.get("require-token", "").lower() == "true"

    @property
    def collections_url(self) -> str | None:
        """Where folders can be listed."""
        return self.namespace.get("collections-url") or None


def query(
    federation: str,
    path: str,
    method: str,
    headers: Mapping[str, str],
    secret_headers: Mapping[str, str],
    endpoint: str = OBJECT_ENDPOINT,
) -> DirectorResponse:
    """Raises what the director's answer means, if it names no server. Over plain http it is asked without secrets."""
    url = _DIRECTOR_CACHE.get(federation) + endpoint + path
    secret_headers = secret_headers if url.lower().startswith("https://") else {}
    answer = send_request(Request(url, method, headers, secret_headers), max_redirects=0)
    try:
        location = _resolve_http_url(url, answer.headers.get("Location") or "")
        if answer.status not in (302, 307) or not location:
            raise _make_error(answer, bool(secret_headers))
    finally:
        answer.close()
    return parse_director_response(
        location, answer.headers.get_combined("Link"), answer.headers.get("X-Pelican-Namespace")
    )


def _make_error(response: Response, has_credentials: bool) -> TransferError:
    """A 404 is the director's word only if it is the director who says it: while it restarts, others do."""
    said = response.read_text().strip()
    if response.status == 404 and (_is_other_server(response) or said == _GENERIC_404_BODY):
        where = redact_url(response.url)
        words = f"{where} answered 404, but not as a Pelican director does; is it just restarting?"
        return TransferError("service_unavailable", words, where)
    return error_from_response(response, has_credentials, _parse_error_message(said))


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
    servers = filter(None, (_resolve_http_url(redirect_url, url) for url in parse_duplicate_links(link_header or "")))
    return DirectorResponse(
        tuple(dict.fromkeys(servers)) or (redirect_url,), parse_pelican_header(namespace_header or "")
    )


def _resolve_http_url(base: str, url: str) -> str | None:
    """None for what is no http address."""
    try:
        found = urljoin(base, url) if url else ""
        return found if urlsplit(found).hostname and found.startswith(("http://", "https://")) else None
    except ValueError:
        return None


def parse_duplicate_links(link_header: str) -> list[str]:
    """The addresses of a `Link` header's duplicates (RFC 6249), by their `pri`."""
    ranked = []
    for url, tail in _LINK.findall(link_header):
        parameters = {name.lower(): quoted or plain for name, quoted, plain in _LINK_PARAMETER.findall(tail)}
        if parameters.get("rel", "duplicate").lower() == "duplicate":
            ranked.append((_parse_priority(parameters.get("pri", "")), url))
    return [url for _, url in sorted(ranked, key=lambda pair: pair[0])]


def _parse_priority(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else _LOWEST_PRIORITY


def parse_pelican_header(header: str) -> dict[str, str]:
    """`a=1, b=2`, as Pelican writes its own headers."""
    pairs = (part.partition("=") for part in header.split(","))
    return {name.strip().lower(): value.strip() for name, _, value in pairs if name.strip()}


class _DirectorCache:
    """Discovered once in a while for each federation, by however many threads ask."""

    def __init__(self) -> None:
        self._endpoints: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def get(self, federation: str) -> str:
        with self._lock:
            director, until = self._endpoints.get(federation, ("", float("-inf")))
        if time.monotonic() < until:
            return director
        director = _discover_director(federation)
        with self._lock:
            self._endpoints[federation] = director, time.monotonic() + _DISCOVERY_CACHE_S
        return director


_DIRECTOR_CACHE = _DirectorCache()


def _discover_director(federation: str) -> str:
    url = f"https://{federation}{_WELL_KNOWN_PATH}"
    answer = send_request(Request(url))
    try:
        if answer.status != 200:
            raise error_from_response(answer, has_credentials=False)
        return str(json.loads(answer.read_text())["director_endpoint"]).rstrip("/")
    except (ValueError, KeyError, TypeError) as error:
        words = f"{url} is not the discovery document of a Pelican federation; is {federation!r} one?"
        raise TransferError("unexpected_content", words, url) from error
    finally:
        answer.close()
