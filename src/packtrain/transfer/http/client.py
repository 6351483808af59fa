"""Send a request and return the response: the entry point of the HTTP client."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from packtrain import __version__
from packtrain.errors import TransferError
from packtrain.transfer.http.connect import connect
from packtrain.transfer.http.connection import Http11Connection, Http11Response
from packtrain.transfer.http.error_mapping import NETWORK_ERRORS, map_errors, to_transfer_error
from packtrain.transfer.http.headers import INVALID_CHARACTER, Headers, printable
from packtrain.transfer.http.pool import POOL
from packtrain.transfer.http.redirects import (
    MAX_REDIRECTS,
    invalid_redirect_error,
    may_send_credentials,
    redirect_target,
    too_many_redirects_error,
)
from packtrain.transfer.http.request_body import RequestBody, body_length, open_body
from packtrain.transfer.http.routes import Route, route_for
from packtrain.transfer.progress import OnBytesSent, ignore_bytes_sent
from packtrain.transfer.tasks.cancellation import check_cancelled, time_limit
from packtrain.transfer.urls import invalid_url_error, redact_url

_MAX_READ_BYTES = 1 << 20
_DOCUMENT_TIMEOUT_S = 120.0  # for the body of a small document, if no shorter limit applies
_EXPLANATION_TIMEOUT_S = 2.0  # the status is known, so waiting longer is useless
_logger = logging.getLogger("packtrain.transfer.http")


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
    """Status, headers and body. `credentials_sent` is whether this server received the secret headers."""

    def __init__(
        self, connection: Http11Connection, response: Http11Response, route: Route, credentials_sent: bool
    ) -> None:
        self.url, self.credentials_sent = route.url, credentials_sent
        self.status, self.reason = response.status, printable(response.reason)
        self.headers = Headers(response.headers.items())
        self.round_trip_s = connection.measure_round_trip_s()
        self._connection, self._response, self._route = connection, response, route
        self._closed = False

    @property
    def trailers(self) -> Headers:
        """The fields after a chunked body, empty until the body is read to its end."""
        return self._response.trailers

    def read(self, size: int, /) -> bytes:
        """Return up to `size` available bytes, b"" at the end. Raises TransferError if the body is truncated."""
        with map_errors(self.url):
            check_cancelled()  # a caller that reads in a loop may receive a few bytes at a time without an end
        view = memoryview(bytearray(min(size, _MAX_READ_BYTES)))
        return bytes(view[: self.readinto(view)])

    def readinto(self, buffer: memoryview, /) -> int:
        try:
            return self._response.readinto(buffer)
        except NETWORK_ERRORS as error:
            self._response.keep_alive = False
            raise to_transfer_error(error, self.url) from error

    def read_text(self, max_bytes: int = 1 << 20, timeout_s: float = _DOCUMENT_TIMEOUT_S) -> str:
        """Return the body as text; for small documents such as errors and listings."""
        data, ends_at = bytearray(), time.monotonic() + timeout_s
        with time_limit(lambda: ends_at):
            while len(data) < max_bytes and (block := self.read(max_bytes - len(data))):
                data += block
        return data.decode("utf-8", "replace")

    def read_explanation(self) -> str:
        """Return what the server says about its status; empty if it does not arrive completely and soon."""
        with contextlib.suppress(TransferError):
            return self.read_text(timeout_s=_EXPLANATION_TIMEOUT_S)
        return ""

    def close(self) -> None:
        """Release the connection to the pool if the body was read completely, else close it."""
        if self._closed:
            return
        is_complete, self._closed = self._response.is_complete(), True
        self._response.close()
        if self._response.keep_alive and is_complete:
            POOL.release(self._route.pool_key, self._connection)
        else:
            self._connection.close()


def send_request(request: Request, max_redirects: int = MAX_REDIRECTS) -> Response:
    """Send a request and follow redirects; with `max_redirects=0`, return the first response."""
    url = request.url
    for _ in range(max_redirects + 1):
        response = _send_single_request(request, url)
        try:
            target = redirect_target(request.method, response.url, response.status, response.headers)
        except BaseException:
            response.close()
            raise
        if target is None or max_redirects == 0:
            return response
        response.close()
        _logger.debug("%s redirects to %s", redact_url(url), redact_url(target))
        url = target
    raise too_many_redirects_error(request.url, max_redirects)


def _send_single_request(request: Request, url: str) -> Response:
    try:
        send_credentials, route = may_send_credentials(request.url, url), route_for(url)
        headers = _build_headers(request, route, send_credentials)
    except ValueError as error:
        is_redirect = url != request.url
        raise (invalid_redirect_error if is_redirect else invalid_url_error)(request.url, error) from error
    can_repeat = request.body is None and request.method != "POST"
    pooled = POOL.acquire(route.pool_key) if can_repeat else None
    if pooled is not None:
        try:
            return _send_on_connection(pooled, request, headers, route, send_credentials)
        except TransferError as error:  # the server may have closed the idle connection
            _logger.debug("%s: retry on a new connection after: %s", redact_url(url), error.detail)
    return _send_on_connection(connect(route), request, headers, route, send_credentials)


def _send_on_connection(
    connection: Http11Connection, request: Request, headers: dict[str, str], route: Route, send_credentials: bool
) -> Response:
    _logger.debug("%s %s", request.method, redact_url(route.url))
    try:
        with map_errors(route.url):
            _write_request(connection, request, route.target, headers)
            response = Response(connection, connection.getresponse(), route, send_credentials)
    except BaseException:
        connection.close()
        raise
    _logger.debug("%s returned %d %s", redact_url(route.url), response.status, response.reason)
    return response


def _write_request(connection: Http11Connection, request: Request, target: str, headers: dict[str, str]) -> None:
    if request.body is None:
        connection.request(request.method, target, headers=headers)
        return
    # A server that rejects a request early closes the connection during the upload; its response says why.
    with (
        open_body(request.body, request.on_bytes_sent) as body,
        contextlib.suppress(BrokenPipeError, ConnectionResetError),
    ):
        connection.request(request.method, target, body, headers)


def _build_headers(request: Request, route: Route, send_credentials: bool) -> dict[str, str]:
    headers = {
        "Host": route.host_header,
        "User-Agent": f"packtrain/{__version__}",
        "Accept-Encoding": "identity",
        "Connection": "keep-alive" if POOL.is_enabled else "close",
        **({} if route.uses_tls else route.proxy_headers),
        **request.headers,
        **(request.secret_headers if send_credentials else {}),
    }
    if request.body is not None:
        headers["Content-Length"] = str(body_length(request.body))
    if any(INVALID_CHARACTER.search(text) for item in headers.items() for text in item):
        raise TransferError("unsupported", f"{redact_url(route.url)}: a header has characters that cannot be sent")
    return headers
