"""What an HTTP answer means: its headers as ObjectInfo, its status as a failure."""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Iterator

from packtrain.errors import TransferError
from packtrain.plan import Digest
from packtrain.transfer.address import shown
from packtrain.transfer.api import ObjectInfo
from packtrain.transfer.exchange import Answer
from packtrain.transfer.fields import Fields

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
# Name → ours, bytes; the strongest first.
_ALGORITHMS = {
    "sha-256": ("sha256", 32),
    "sha256": ("sha256", 32),
    "md5": ("md5", 16),
    "adler32": ("adler32", 4),
    "adler": ("adler32", 4),
}


def info_of(answer: Answer) -> ObjectInfo:
    headers = answer.headers
    coded = encoding_of(answer) is not None
    ranges = answer.status == PARTIAL or headers.get("Accept-Ranges", "").strip().lower() == "bytes"
    return ObjectInfo(
        size=None if coded else size_of(answer),
        etag=headers.get("ETag"),
        content_type=headers.get("Content-Type"),
        digest=None if coded else digest_of(headers, partial=answer.status == PARTIAL and not _is_whole(answer)),
        ranges=ranges and not coded,
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


def digest_of(headers: Fields, partial: bool = False) -> Digest | None:
    """The strongest digest of the whole object that the server states."""
    stated = [headers.get("Repr-Digest") or "", headers.get("Digest") or ""]
    # Content-MD5 is of the bytes in this answer, the others are of the object.
    if not partial:
        stated.append(f"md5={headers.get('Content-MD5') or ''}")
    found = {digest.algorithm: digest for text in stated for digest in _digests(text)}
    return next((found[name] for name, _ in _ALGORITHMS.values() if name in found), None)


def _digests(text: str) -> Iterator[Digest]:
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name.lower() in _ALGORITHMS:
            algorithm, size = _ALGORITHMS[name.lower()]
            plain = _hex(value.strip(), size)
            if plain:
                yield Digest(algorithm, plain)


def _hex(value: str, size: int) -> str | None:
    """base64, with colons around it in Repr-Digest; some servers write plain hex."""
    try:
        raw = base64.b64decode(value.strip(":"), validate=True)
        return raw.hex() if len(raw) == size else bytes.fromhex(value).hex() if len(value) == 2 * size else None
    except (binascii.Error, ValueError):
        return None


def failure_of(answer: Answer, secrets: bool, said: str = "") -> TransferError:
    """The error for a status that is no success; `said` is what the server explained."""
    kind = _KINDS.get(answer.status, "service_unavailable")
    words = f"{shown(answer.url)} answered {answer.status} {answer.reason}".rstrip()
    if said:
        words += f" ({said})"
    if kind == "token_refused":
        words += _about_credentials(answer, secrets)
    return TransferError(kind, words, shown(answer.url), retry_after_of(answer))


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
