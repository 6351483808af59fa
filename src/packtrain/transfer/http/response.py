"""Interpret responses: headers as ObjectInfo, error statuses as TransferError."""

from __future__ import annotations

from packtrain.errors import TransferError
from packtrain.transfer.api import ObjectInfo
from packtrain.transfer.archive.formats import format_from_name
from packtrain.transfer.http.client import Response
from packtrain.transfer.http.digest_headers import digest_from_headers
from packtrain.transfer.http.headers import parse_content_range, parse_number, parse_retry_after_s, printable
from packtrain.transfer.urls import redact_url

PARTIAL_CONTENT = 206
RANGE_NOT_SATISFIABLE = 416
_FAILURE_KIND_BY_STATUS = {
    401: "access_denied",
    403: "access_denied",
    407: "access_denied",
    404: "object_missing",
    410: "object_missing",
    416: "unexpected_content",
}


def parse_object_info(response: Response) -> ObjectInfo:
    """Return the metadata of the object."""
    headers = response.headers
    is_encoded = parse_content_encoding(response) is not None
    accepts_ranges = response.status == PARTIAL_CONTENT or headers.get("Accept-Ranges", "").lower() == "bytes"
    size = parse_object_size(response)
    is_partial = response.status == PARTIAL_CONTENT and not _is_complete_object(response)
    return ObjectInfo(
        size=None if is_encoded else size,
        etag=headers.get("ETag"),
        content_type=headers.get("Content-Type"),
        digest=None if is_encoded else digest_from_headers(headers, is_partial),
        accepts_ranges=accepts_ranges and not is_encoded,
        last_modified=headers.get("Last-Modified"),
        round_trip_s=response.round_trip_s,
    )


def parse_object_size(response: Response) -> int | None:
    """Return the size of the whole object, also from a partial response."""
    if response.status in (PARTIAL_CONTENT, RANGE_NOT_SATISFIABLE):
        return parse_content_range(response.headers)[1]
    return parse_number(response.headers.get("Content-Length", ""))


def _is_complete_object(response: Response) -> bool:
    """Return whether a 206 response contains the whole object."""
    first, total = parse_content_range(response.headers)
    return first == 0 and response.headers.get("Content-Length", "") == str(total)


def parse_content_encoding(response: Response) -> str | None:
    """Return the Content-Encoding to decode, or None if the bytes are the object itself."""
    encoding = response.headers.get("Content-Encoding", "").lower()
    if encoding in ("", "identity"):
        return None
    # Many servers declare stored .gz files as gzip-encoded; like curl, keep the bytes unchanged.
    archive_format = format_from_name(response.url.partition("?")[0])
    is_gzip_file = archive_format is not None and archive_format.name == "gz"
    return None if is_gzip_file and encoding in ("gzip", "x-gzip") else encoding


def error_from_response(response: Response, has_credentials: bool, server_message: str = "") -> TransferError:
    """Return the error for a status.

    Args:
        response: The response.
        has_credentials: Whether the request had credentials.
        server_message: The server's explanation, if it gave one.
    """
    kind = _FAILURE_KIND_BY_STATUS.get(response.status, "service_unavailable")
    message = f"{redact_url(response.url)} returned {response.status} {response.reason}".rstrip()
    if server_message:
        message += f" ({printable(server_message)})"
    if kind == "access_denied":
        message += _credentials_hint(response, has_credentials)
    return TransferError(
        kind, message, redact_url(response.url), parse_retry_after_s(response.headers), response.status
    )


def _credentials_hint(response: Response, has_credentials: bool) -> str:
    if not has_credentials:
        return "; no token was sent; configure one in the workflow"
    if not response.credentials_sent:
        return "; the token was not sent, because a redirect led to another host"
    return "; a token was sent; check that it is the right one and still valid"
