"""What an HTTP answer means: its headers as ObjectInfo, its status as a failure."""

from __future__ import annotations

import re
import time

from packtrain.errors import TransferError
from packtrain.transfer.api import ObjectInfo
from packtrain.transfer.http.client import Response
from packtrain.transfer.http.digest_headers import digest_from_headers
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
_CONTENT_RANGE = re.compile(r"bytes\s+(?:(\d+)-(\d+)|\*)/(\d+|\*)", re.IGNORECASE)


def parse_object_info(response: Response) -> ObjectInfo:
    headers = response.headers
    coded = parse_content_encoding(response) is not None
    ranges = response.status == PARTIAL_CONTENT or headers.get("Accept-Ranges", "").strip().lower() == "bytes"
    size, partial = (
        parse_object_size(response),
        response.status == PARTIAL_CONTENT and not _is_complete_object(response),
    )
    return ObjectInfo(
        size=None if coded else size,
        etag=headers.get("ETag"),
        content_type=headers.get("Content-Type"),
        digest=None if coded else digest_from_headers(headers, size, partial),
        accepts_ranges=ranges and not coded,
        last_modified=headers.get("Last-Modified"),
        round_trip_s=response.round_trip_s,
    )


def parse_object_size(response: Response) -> int | None:
    """Of the whole object, whatever part of it this answer carries."""
    if response.status in (PARTIAL_CONTENT, RANGE_NOT_SATISFIABLE):
        return parse_content_range(response)[1]
    length = response.headers.get("Content-Length", "").strip()
    return int(length) if length.isdecimal() else None


def parse_content_range(response: Response) -> tuple[int | None, int | None]:
    """First byte and total size as Content-Range has them."""
    match = _CONTENT_RANGE.match(response.headers.get("Content-Range", "").strip())
    if match is None:
        return None, None
    first, _, total = match.groups()
    return None if first is None else int(first), None if total == "*" else int(total)


def _is_complete_object(response: Response) -> bool:
    """Whether a 206 carries all bytes nevertheless."""
    first, total = parse_content_range(response)
    return first == 0 and response.headers.get("Content-Length", "").strip() == str(total)


def parse_content_encoding(response: Response) -> str | None:
    """The Content-Encoding that must be undone; None when the bytes are the object's own."""
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return None
    # Many servers call every stored .gz file gzip-encoded; the bytes are the file, as curl takes them.
    stored = response.url.partition("?")[0].lower().endswith((".gz", ".tgz"))
    return None if stored and encoding in ("gzip", "x-gzip") else encoding


def error_from_response(response: Response, has_credentials: bool, server_message: str = "") -> TransferError:
    """The error for a status that is no success; `said` is what the server explained."""
    kind = _FAILURE_KIND_BY_STATUS.get(response.status, "service_unavailable")
    words = f"{redact_url(response.url)} answered {response.status} {response.reason}".rstrip()
    if server_message:
        words += f" ({server_message})"
    if kind == "access_denied":
        words += _credentials_hint(response, has_credentials)
    return TransferError(kind, words, redact_url(response.url), parse_retry_after_s(response), response.status)


def parse_retry_after_s(response: Response) -> float | None:
    """Seconds, or a date; None where the server does not say."""
    said = (response.headers.get("Retry-After") or "").strip()
    if said.isdecimal():
        return float(said)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - time.time()) if said else None
    except (TypeError, ValueError):
        return None


def _credentials_hint(response: Response, has_credentials: bool) -> str:
    if not has_credentials:
        return "; no token was sent: name one in the workflow"
    if not response.credentials_sent:
        return "; the token was not sent, because a redirect led to another host"
    return "; a token was sent: is it the right one, and still valid?"
