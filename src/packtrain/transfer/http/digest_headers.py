"""Digests as servers state them and people write them: hexadecimal, or base64."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from packtrain.plan import Digest
from packtrain.transfer.digests import is_digest_affordable
from packtrain.transfer.http.headers import Headers

DIGEST_BYTES = {"sha256": 32, "md5": 16, "crc32c": 4, "crc32": 4, "adler32": 4}  # the strongest first
# As Digest (RFC 3230), Repr-Digest (RFC 9530) and x-goog-hash name them. Their crc32 is left out: XRootD's is another.
_ALGORITHM_BY_HEADER_NAME = {
    "sha-256": "sha256",
    "sha256": "sha256",
    "md5": "md5",
    "crc32c": "crc32c",
    "adler32": "adler32",
    "adler": "adler32",
}
_S3_ALGORITHMS = ("sha256", "crc32c", "crc32")
_DISPLAY_NAMES = {"sha256": "SHA-256", "md5": "MD5", "crc32c": "CRC-32C"}


def parse_digest(algorithm: str, text: str) -> str:
    """What a person wrote, as lower-case hex; ValueError says what it should be."""
    found = _to_hex(algorithm, text)
    if found is None:
        digits = 2 * DIGEST_BYTES[algorithm]
        raise ValueError(
            f"{text[:80]!r} is no {_DISPLAY_NAMES[algorithm]} digest: {digits} hexadecimal digits, or base64"
        )
    return found


def digest_from_headers(headers: Headers, size: int | None, is_partial: bool = False) -> Digest | None:
    """The strongest digest of the whole object that the server states and that can be computed here."""
    found = {
        digest.algorithm: digest
        for text in _iter_digest_headers(headers, is_partial)
        for digest in _parse_digest_list(text)
    }
    if not is_partial:
        found.update((digest.algorithm, digest) for digest in _parse_s3_digests(headers))
    return next(
        (found[name] for name in DIGEST_BYTES if name in found and is_digest_affordable(name, size, from_server=True)),
        None,
    )


def _iter_digest_headers(headers: Headers, is_partial: bool) -> Iterator[str]:
    yield headers.get_combined("Repr-Digest") or ""
    yield headers.get_combined("Digest") or ""
    if not _is_transcoded_by_gcs(headers):
        yield headers.get_combined("x-goog-hash") or ""
    # Content-MD5 is of the bytes in this answer, the others are of the object.
    if not is_partial:
        yield f"md5={headers.get('Content-MD5') or ''}"


def _is_transcoded_by_gcs(headers: Headers) -> bool:
    """What is stored compressed is sent plain to those who want it so, with the digests of what is stored."""
    stored = headers.get("x-goog-stored-content-encoding", "identity").lower()
    return stored not in ("", "identity") and not headers.get("Content-Encoding")


def _parse_digest_list(text: str) -> Iterator[Digest]:
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        algorithm = _ALGORITHM_BY_HEADER_NAME.get(name.lower())
        plain = _to_hex(algorithm, value.strip().strip(":")) if algorithm else None
        if algorithm and plain:
            yield Digest(algorithm, plain)


def _parse_s3_digests(headers: Headers) -> Iterator[Digest]:
    """Of an object put in parts there may be a digest of the parts' digests instead, which ends in -N."""
    if headers.get("x-amz-checksum-type", "FULL_OBJECT") != "FULL_OBJECT":
        return
    for algorithm in _S3_ALGORITHMS:
        plain = _to_hex(algorithm, headers.get(f"x-amz-checksum-{algorithm}", "").strip())
        if plain:
            yield Digest(algorithm, plain)


def _to_hex(algorithm: str, text: str) -> str | None:
    size = DIGEST_BYTES[algorithm]
    if re.fullmatch(rf"[0-9a-fA-F]{{{2 * size}}}", text):
        return text.lower()
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw.hex() if len(raw) == size else None
