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
from packtrain.transfer.http.client import Answer, Request, send
from packtrain.transfer.http.response import failure_of
from packtrain.transfer.urls import shown

OBJECT, ORIGIN = "", "/api/v1.0/director/origin"
_WELL_KNOWN = "/.well-known/pelican-configuration"
_DISCOVERED_ANEW_S = 600.0
_LINK = re.compile(r'<([^>]*)>((?:\s*;\s*[^\s=;,<]+\s*=\s*(?:"[^"]*"|[^\s";,<]*))*)')
_PARAMETER = re.compile(r';\s*([^\s=;,<]+)\s*=\s*(?:"([^"]*)"|([^\s";,<]*))')
_LAST = 1 << 30  # the rank of a link that states none
_NOT_A_DIRECTOR = "404 page not found"


@dataclass(frozen=True)
class Directions:
    """Addresses of servers that have the object, the best first, and what their namespace says."""

    servers: tuple[str, ...]
    namespace: Mapping[str, str]

    @property
    def needs_token(self) -> bool:
        return self.namespace.get("require-token", "").lower() == "true"

    @property
    def collections(self) -> str | None:
        """Where folders can be listed."""
        return self.namespace.get("collections-url") or None


def ask(
    federation: str, path: str, method: str, headers: Mapping[str, str], secrets: Mapping[str, str], kind: str = OBJECT
) -> Directions:
    """Raises what the director's answer means, if it names no server. Over plain http it is asked without secrets."""
    url = _DIRECTORS.of(federation) + kind + path
    secrets = secrets if url.lower().startswith("https://") else {}
    answer = send(Request(url, method, headers, secrets), hops=0)
    try:
        location = _absolute(url, answer.headers.get("Location") or "")
        if answer.status not in (302, 307) or not location:
            raise _refusal(answer, bool(secrets))
    finally:
        answer.close()
    return directions(location, answer.headers.joined("Link"), answer.headers.get("X-Pelican-Namespace"))


def _refusal(answer: Answer, secrets: bool) -> TransferError:
    """A 404 is the director's word only if it is the director who says it: while it restarts, others do."""
    said = answer.text().strip()
    if answer.status == 404 and (_is_foreign(answer) or said == _NOT_A_DIRECTOR):
        where = shown(answer.url)
        words = f"{where} answered 404, but not as a Pelican director does; is it just restarting?"
        return TransferError("service_unavailable", words, where)
    return failure_of(answer, secrets, _message(said))


def _is_foreign(answer: Answer) -> bool:
    return not (answer.headers.get("Server") or "").lower().startswith("pelican")


def _message(said: str) -> str:
    try:
        return str(json.loads(said)["msg"])
    except (ValueError, KeyError, TypeError):
        return ""


def directions(location: str, link: str | None, namespace: str | None) -> Directions:
    servers = filter(None, (_absolute(location, url) for url in duplicates(link or "")))
    return Directions(tuple(dict.fromkeys(servers)) or (location,), fields_of(namespace or ""))


def _absolute(base: str, url: str) -> str | None:
    """None for what is no http address."""
    try:
        found = urljoin(base, url) if url else ""
        return found if urlsplit(found).hostname and found.startswith(("http://", "https://")) else None
    except ValueError:
        return None


def duplicates(link: str) -> list[str]:
    """The addresses of a `Link` header's duplicates (RFC 6249), by their `pri`."""
    ranked = []
    for url, tail in _LINK.findall(link):
        parameters = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(tail)}
        if parameters.get("rel", "duplicate").lower() == "duplicate":
            ranked.append((_rank(parameters.get("pri", "")), url))
    return [url for _, url in sorted(ranked, key=lambda pair: pair[0])]


def _rank(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else _LAST


def fields_of(header: str) -> dict[str, str]:
    """`a=1, b=2`, as Pelican writes its own headers."""
    pairs = (part.partition("=") for part in header.split(","))
    return {name.strip().lower(): value.strip() for name, _, value in pairs if name.strip()}


class _Directors:
    """Discovered once in a while for each federation, by however many threads ask."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def of(self, federation: str) -> str:
        with self._lock:
            director, until = self._known.get(federation, ("", float("-inf")))
        if time.monotonic() < until:
            return director
        director = _discovered(federation)
        with self._lock:
            self._known[federation] = director, time.monotonic() + _DISCOVERED_ANEW_S
        return director


_DIRECTORS = _Directors()


def _discovered(federation: str) -> str:
    url = f"https://{federation}{_WELL_KNOWN}"
    answer = send(Request(url))
    try:
        if answer.status != 200:
            raise failure_of(answer, secrets=False)
        return str(json.loads(answer.text())["director_endpoint"]).rstrip("/")
    except (ValueError, KeyError, TypeError) as error:
        words = f"{url} is not the discovery document of a Pelican federation; is {federation!r} one?"
        raise TransferError("not_the_data", words, url) from error
    finally:
        answer.close()
