"""One HTTP exchange: a request out, redirects followed by hand, an answer whose body can be read.

Credentials travel in `Request.secrets` and are sent to the origin (scheme, host, port) of the
request's own URL only, never along a redirect that leaves it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin

from packtrain import __version__
from packtrain.errors import TransferError
from packtrain.transfer.http.connect import Route, connect, plain_proxy_headers, route_to
from packtrain.transfer.http.connection import Head, Wire, tick
from packtrain.transfer.http.error_mapping import FOREIGN, translated, translation
from packtrain.transfer.http.headers import Fields
from packtrain.transfer.http.pool import KEPT
from packtrain.transfer.http.request_body import Body, Sent, length_of, opened, unwatched
from packtrain.transfer.http.response_body import body_of
from packtrain.transfer.urls import invalid, origin_of, shown

MAX_HOPS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_READ_AT_ONCE = 1 << 20
_CONTROL = re.compile(r"[\r\n\0]")
_KEEPS_METHOD = frozenset({307, 308})


@dataclass(frozen=True)
class Request:
    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    body: Body | None = None
    sent: Sent = unwatched


class Answer:
    """Status, headers and a body. `trusted` tells whether this server was given the credentials.

    `trailers` are the fields behind a chunked body; there are none before it is read to its end.
    """

    def __init__(self, wire: Wire, head: Head, route: Route, method: str, trusted: bool) -> None:
        self.url, self.trusted = route.url, trusted
        self.status, self.reason, self.headers = head.status, head.reason, head.headers
        self.trailers = Fields()
        self._wire, self._route, self._keeps = wire, route, head.keeps
        self._body = body_of(wire, head, method, self.trailers)
        self._closed = False

    def read(self, size: int, /) -> bytes:
        """What has arrived, up to size; b"" at the end. A body that ends too early raises `truncated`."""
        view = memoryview(bytearray(min(size, _READ_AT_ONCE)))
        return bytes(view[: self.readinto(view)])

    def readinto(self, buffer: memoryview, /) -> int:
        try:
            return self._body.readinto(buffer)
        except FOREIGN as error:
            raise translation(error, self.url) from error

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
        """A connection that is clean behind the body serves the next request."""
        if self._closed:
            return
        self._closed = True
        if self._keeps and self._body.done() and not self._wire.worn:
            KEPT.give(self._route.key, self._wire)
        else:
            self._wire.close()


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
    if not location or answer.status not in allowed:
        return None
    try:
        return urljoin(answer.url, location)
    except ValueError as error:
        answer.close()
        raise _nowhere(answer.url, error) from error


def _nowhere(url: str, error: ValueError) -> TransferError:
    """A mistake of the server, who may know better later."""
    return TransferError("service_unavailable", f"{shown(url)} redirects to what is no address ({error})", shown(url))


def _send_once(request: Request, url: str) -> Answer:
    route, head, trusted = _prepared(request, url)
    kept = KEPT.take(route.key) if request.body is None else None
    if kept is not None:
        try:
            return _answer(kept, request, head, route, trusted)
        except TransferError:
            pass  # the server may close an idle connection at any moment: a fresh one tells
    return _answer(Wire(connect(route, tick)), request, head, route, trusted)


def _prepared(request: Request, url: str) -> tuple[Route, bytes, bool]:
    """How to reach the address, and what to say there."""
    try:
        trusted, route = origin_of(url) == origin_of(request.url), route_to(url)
        return route, _head(request, route, trusted), trusted
    except ValueError as error:
        raise (invalid(url, error) if url == request.url else _nowhere(request.url, error)) from error


def _answer(wire: Wire, request: Request, head: bytes, route: Route, trusted: bool) -> Answer:
    try:
        with translated(route.url):
            _transmit(wire, request, head)
            return Answer(wire, wire.head(), route, request.method, trusted)
    except BaseException:
        wire.close()
        raise


def _transmit(wire: Wire, request: Request, head: bytes) -> None:
    if request.body is None:
        wire.send(head, None)
        return
    # A server that refuses early closes while we still send; its answer says why.
    with opened(request.body, request.sent) as body, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        wire.send(head, body)


def _head(request: Request, route: Route, trusted: bool) -> bytes:
    fields = {
        "Host": route.host,
        "User-Agent": f"packtrain/{__version__}",
        "Accept-Encoding": "identity",
        "Connection": "keep-alive" if KEPT.wanted else "close",
        **plain_proxy_headers(route),
        **request.headers,
        **(request.secrets if trusted else {}),
    }
    if request.body is not None:
        fields["Content-Length"] = str(length_of(request.body))
    lines = [f"{request.method} {route.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    if any(_CONTROL.search(line) for line in lines):
        raise TransferError("unsupported", f"{shown(route.url)}: a header has characters that cannot be sent")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
