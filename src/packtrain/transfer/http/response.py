"""What an HTTP answer means: its headers as ObjectInfo, its status as a failure."""

from __future__ import annotations

import re
import time

from packtrain.errors import TransferError
from packtrain.transfer.api import ObjectInfo
from packtrain.transfer.http.client import Answer
from packtrain.transfer.http.digest_headers import digest_of
from packtrain.transfer.urls import shown

PARTIAL = 206
RANGE_NOT_SATISFIABLE = 416
_KINDS = {
    401: "token_refused",
    403: "token_refused",
    407: "token_refused",
    404: "object_missing",
    410: "object_missing",
    416: "not_the_data",
}
_CONTENT_RANGE = re.compile(r"bytes\s+(?:(\d+)-(\d+)|\*)/(\d+|\*)", re.IGNORECASE)


def info_of(answer: Answer) -> ObjectInfo:
    headers = answer.headers
    coded = encoding_of(answer) is not None
    ranges = answer.status == PARTIAL or headers.get("Accept-Ranges", "").strip().lower() == "bytes"
    size, partial = size_of(answer), answer.status == PARTIAL and not _is_whole(answer)
    return ObjectInfo(
        size=None if coded else size,
        etag=headers.get("ETag"),
        content_type=headers.get("Content-Type"),
        digest=None if coded else digest_of(headers, size, partial),
        ranges=ranges and not coded,
        modified=headers.get("Last-Modified"),
    )


def size_of(answer: Answer) -> int | None:
    """Of the whole object, whatever part of it this answer carries."""
    if answer.status in (PARTIAL, RANGE_NOT_SATISFIABLE):
        return range_of(answer)[1]
    length = answer.headers.get("Content-Length", "").strip()
    return int(length) if length.isdecimal() else None


def range_of(answer: Answer) -> tuple[int | None, int | None]:
    """First byte and total size as Content-Range has them."""
    match = _CONTENT_RANGE.match(answer.headers.get("Content-Range", "").strip())
    if match is None:
        return None, None
    first, _, total = match.groups()
    return None if first is None else int(first), None if total == "*" else int(total)


def _is_whole(answer: Answer) -> bool:
    """Whether a 206 carries all bytes nevertheless."""
    first, total = range_of(answer)
    return first == 0 and answer.headers.get("Content-Length", "").strip() == str(total)


def encoding_of(answer: Answer) -> str | None:
    """The Content-Encoding that must be undone; None when the bytes are the object's own."""
    encoding = answer.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return None
    # Many servers call every stored .gz file gzip-encoded; the bytes are the file, as curl takes them.
    stored = answer.url.partition("?")[0].lower().endswith((".gz", ".tgz"))
    return None if stored and encoding in ("gzip", "x-gzip") else encoding


def failure_of(answer: Answer, secrets: bool, said: str = "") -> TransferError:
    """The error for a status that is no success; `said` is what the server explained."""
    kind = _KINDS.get(answer.status, "service_unavailable")
    words = f"{shown(answer.url)} answered {answer.status} {answer.reason}".rstrip()
    if said:
        words += f" ({said})"
    if kind == "token_refused":
        words += _about_credentials(answer, secrets)
    return TransferError(kind, words, shown(answer.url), retry_after_of(answer), answer.status)


def retry_after_of(answer: Answer) -> float | None:
    """Seconds, or a date; None where the server does not say."""
    said = (answer.headers.get("Retry-After") or "").strip()
    if said.isdecimal():
        return float(said)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - time.time()) if said else None
    except (TypeError, ValueError):
        return None


def _about_credentials(answer: Answer, secrets: bool) -> str:
    if not secrets:
        return "; no token was sent: name one in the workflow"
    if not answer.trusted:
        return "; the token was not sent, because a redirect led to another host"
    return "; a token was sent: is it the right one, and still valid?"
