"""Send a request, follow redirects and return the response.

Credentials are in `Request.secret_headers`. They are sent only to the origin (scheme, host, port) of the request's own
URL, never to another one that a redirect names.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin

from packtrain import __version__
from packtrain.errors import TransferError
from packtrain.transfer.cancellation import check_cancelled
from packtrain.transfer.http.connect import Route, connect, forward_proxy_headers, route_for
from packtrain.transfer.http.connection import Http11Connection, ResponseHead
from packtrain.transfer.http.error_mapping import NETWORK_ERRORS, map_errors, to_transfer_error
from packtrain.transfer.http.headers import Headers
from packtrain.transfer.http.pool import POOL
from packtrain.transfer.http.request_body import RequestBody, body_length, open_body
from packtrain.transfer.http.response_body import make_response_body
from packtrain.transfer.progress import OnBytesSent, ignore_bytes_sent
from packtrain.transfer.urls import invalid_url_error, redact_url, url_origin

MAX_REDIRECTS = 10
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_MAX_READ_BYTES = 1 << 20
_CONTROL_CHARACTERS = re.compile(r"[\r\n\0]")
_METHOD_PRESERVING_STATUSES = frozenset({307, 308})


@dataclass(frozen=True)
class Request:
    """An HTTP request."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    secret_headers: Mapping[str, str] = field(default_factory=dict)
    body: RequestBody | None = None
    on_bytes_sent: OnBytesSent = ignore_bytes_sent


class Response:
    """Status, headers and body. `credentials_sent` is whether this server received the secret headers.

    `trailers` are the fields after a chunked body, empty until the body is read to its end.
    """

    def __init__(
        self, connection: Http11Connection, head: ResponseHead, route: Route, method: str, credentials_sent: bool
    ) -> None:
        self.url, self.credentials_sent = route.url, credentials_sent
        self.status, self.reason, self.headers = head.status, head.reason, head.headers
        self.trailers = Headers()
        self.round_trip_s = connection.round_trip_s
        self._connection, self._route, self._keep_alive = connection, route, head.keep_alive
        self._body = make_response_body(connection, head, method, self.trailers)
        self._closed = False

    def read(self, size: int, /) -> bytes:
        """Return up to `size` available bytes, b"" at the end. Raises TransferError if the body is truncated."""
        view = memoryview(bytearray(min(size, _MAX_READ_BYTES)))
        return bytes(view[: self.readinto(view)])

    def readinto(self, buffer: memoryview, /) -> int:
        try:
            return self._body.readinto(buffer)
        except NETWORK_ERRORS as error:
            raise to_transfer_error(error, self.url) from error

    def read_text(self, max_bytes: int = 1 << 20) -> str:
        """Return the body as text; for small documents such as errors and listings."""
        data = b""
        while len(data) < max_bytes:
            block = self.read(max_bytes - len(data))
            if not block:
                break
            data += block
        return data.decode("utf-8", "replace")

    def close(self) -> None:
        """Release the connection to the pool if the body was read completely, else close it."""
        if self._closed:
            return
        self._closed = True
        if self._keep_alive and self._body.can_reuse_connection():
            POOL.release(self._route.pool_key, self._connection)
        else:
            self._connection.close()


def send_request(request: Request, max_redirects: int = MAX_REDIRECTS) -> Response:
    """Send a request and follow redirects; with `max_redirects=0`, return the first response."""
    url = request.url
    for _ in range(max_redirects + 1):
        response = _send_single_request(request, url)
        target = _redirect_target(response, request.method)
        if target is None or max_redirects == 0:
            return response
        response.close()
        url = target
    raise TransferError(
        "service_unavailable",
        f"{redact_url(request.url)} redirects more than {max_redirects} times",
        redact_url(request.url),
    )


def _redirect_target(response: Response, method: str) -> str | None:
    location = response.headers.get("Location")
    allowed = _REDIRECT_STATUSES if method in ("GET", "HEAD") else _METHOD_PRESERVING_STATUSES
    if not location or response.status not in allowed:
        return None
    try:
        return urljoin(response.url, location)
    except ValueError as error:
        response.close()
        raise _bad_redirect(response.url, error) from error


def _bad_redirect(url: str, error: ValueError) -> TransferError:
    """Return a transient error, because the server may recover."""
    return TransferError(
        "service_unavailable", f"{redact_url(url)} redirects to an invalid URL ({error})", redact_url(url)
    )


def _send_single_request(request: Request, url: str) -> Response:
    route, head, is_same_origin = _prepare(request, url)
    pooled = POOL.acquire(route.pool_key) if request.body is None else None
    if pooled is not None:
        try:
            return _send_on_connection(pooled, request, head, route, is_same_origin)
        except TransferError:
            pass  # the server may have closed the idle connection, so a new one is tried
    connection = Http11Connection(connect(route, check_cancelled))
    return _send_on_connection(connection, request, head, route, is_same_origin)


def _prepare(request: Request, url: str) -> tuple[Route, bytes, bool]:
    """Return the route, the request head, and whether credentials may be sent."""
    try:
        is_same_origin, route = url_origin(url) == url_origin(request.url), route_for(url)
        return route, _format_request_head(request, route, is_same_origin), is_same_origin
    except ValueError as error:
        raise (invalid_url_error(url, error) if url == request.url else _bad_redirect(request.url, error)) from error


def _send_on_connection(
    connection: Http11Connection, request: Request, request_head: bytes, route: Route, send_credentials: bool
) -> Response:
    try:
        with map_errors(route.url):
            _write_request(connection, request, request_head)
            return Response(connection, connection.read_response_head(), route, request.method, send_credentials)
    except BaseException:
        connection.close()
        raise


def _write_request(connection: Http11Connection, request: Request, request_head: bytes) -> None:
    if request.body is None:
        connection.write_request(request_head, None)
        return
    # A server that rejects a request early closes the connection during the upload; its response says why.
    with (
        open_body(request.body, request.on_bytes_sent) as body,
        contextlib.suppress(BrokenPipeError, ConnectionResetError),
    ):
        connection.write_request(request_head, body)


def _format_request_head(request: Request, route: Route, send_credentials: bool) -> bytes:
    fields = {
        "Host": route.host_header,
        "User-Agent": f"packtrain/{__version__}",
        "Accept-Encoding": "identity",
        "Connection": "keep-alive" if POOL.is_enabled else "close",
        **forward_proxy_headers(route),
        **request.headers,
        **(request.secret_headers if send_credentials else {}),
    }
    if request.body is not None:
        fields["Content-Length"] = str(body_length(request.body))
    lines = [f"{request.method} {route.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    if any(_CONTROL_CHARACTERS.search(line) for line in lines):
        raise TransferError("unsupported", f"{redact_url(route.url)}: a header has characters that cannot be sent")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
