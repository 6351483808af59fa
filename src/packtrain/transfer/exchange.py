"""One HTTP exchange: a request out, redirects followed by hand, an answer whose body can be read.

Credentials travel in `Request.secrets` and are sent to the origin (scheme, host, port) of the
request's own URL only, never along a redirect that leaves it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from packtrain import __version__
from packtrain.errors import TransferError
from packtrain.transfer.address import origin_of, shown
from packtrain.transfer.connect import connect, plain_proxy_headers, translated

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

MAX_HOPS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEEPS_METHOD = frozenset({307, 308})


@dataclass(frozen=True)
class Request:
    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    body: Path | None = None


class Answer:
    """Status, headers and a body. `trusted` tells whether this server was given the credentials."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse, url: str, trusted: bool) -> None:
        self.url, self.trusted = url, trusted
        self.status, self.reason, self.headers = response.status, response.reason, response.headers
        self._connection, self._response = connection, response
        self._left = None if response.chunked else response.length

    def read(self, size: int, /) -> bytes:
        """What has arrived, up to size; b"" at the end. A body that ends too early raises `truncated`."""
        # HTTPResponse.read1 of older Pythons forgets to count, and would wait for bytes after the last.
        if self._left == 0:
            return b""
        with translated(self.url):
            data = self._response.read1(size if self._left is None else min(size, self._left))
        if self._left is not None:
            self._left -= len(data)
            if not data:
                raise self._cut()
        return data

    def _cut(self) -> TransferError:
        words = f"{shown(self.url)}: the body ended {self._left} bytes before its promised end"
        return TransferError("truncated", words, shown(self.url))

    def text(self, limit: int = 1 << 20) -> str:
        """The body as text, for what is small by nature: errors, listings, discovery documents."""
        data = b""
        while len(data) < limit:
            block = self.read(limit - len(data))
            if not block:
                break
            data += block
        return data.decode("utf-8", "replace")

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def send(request: Request, hops: int = MAX_HOPS) -> Answer:
    """The first answer that is no redirect; with hops=0, the first answer."""
    url = request.url
    for _ in range(hops + 1):
        answer = _send_once(request, url)
        following = _following(answer, request.method)
        if following is None or hops == 0:
            return answer
        answer.close()
        url = following
    raise TransferError(
        "service_unavailable", f"{shown(request.url)} redirects more than {hops} times", shown(request.url)
    )


def _following(answer: Answer, method: str) -> str | None:
    location = answer.headers.get("Location")
    allowed = _REDIRECTS if method in ("GET", "HEAD") else _KEEPS_METHOD
    return urljoin(answer.url, location) if location and answer.status in allowed else None


def _send_once(request: Request, url: str) -> Answer:
    trusted = origin_of(url) == origin_of(request.url)
    connection, target = connect(url)
    try:
        with translated(url):
            response = _response(connection, request, target, _headers(request, url, trusted))
        return Answer(connection, response, url, trusted)
    except BaseException:
        connection.close()
        raise


def _headers(request: Request, url: str, trusted: bool) -> dict[str, str]:
    return {
        "User-Agent": f"packtrain/{__version__}",
        "Accept-Encoding": "identity",
        "Connection": "close",
        **plain_proxy_headers(url),
        **request.headers,
        **(request.secrets if trusted else {}),
    }


def _response(connection: HTTPConnection, request: Request, target: str, headers: dict[str, str]) -> HTTPResponse:
    if request.body is None:
        connection.request(request.method, target, headers=headers)
        return connection.getresponse()
    with open(request.body, "rb") as body:
        headers["Content-Length"] = str(request.body.stat().st_size)
        # A server that refuses early closes while we still send; its answer says why.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request(request.method, target, body=body, headers=headers)
        return connection.getresponse()
