"""Parse digests in response headers and in user input: hexadecimal or base64."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from packtrain.plan import Digest
from packtrain.transfer.http.headers import Headers
from packtrain.transfer.integrity.digests import can_compute

DIGEST_BYTES = {"sha256": 32, "md5": 16, "crc32c": 4, "crc32": 4, "adler32": 4}  # the strongest first
# Names in Digest (RFC 3230), Repr-Digest (RFC 9530) and x-goog-hash. crc32 is omitted, because XRootD's differs.
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
    """Return a digest as lower-case hex. Raises ValueError."""
    hex_digest = _to_hex(algorithm, text)
    if hex_digest is None:
        digits = 2 * DIGEST_BYTES[algorithm]
        raise ValueError(
            f"{text[:80]!r} is not a valid {_DISPLAY_NAMES[algorithm]} digest: "
            f"write {digits} hexadecimal digits, or base64"
        )
    return hex_digest


def digest_from_headers(headers: Headers, is_partial: bool = False) -> Digest | None:
    """Return the strongest stated digest of the whole object that can be computed here, or None."""
    digests = {
        digest.algorithm: digest
        for text in _iter_digest_headers(headers, is_partial)
        for digest in _parse_digest_list(text)
    }
    if not is_partial:
        digests.update((digest.algorithm, digest) for digest in _parse_s3_digests(headers))
    return next((digests[name] for name in DIGEST_BYTES if name in digests and can_compute(name)), None)


def _iter_digest_headers(headers: Headers, is_partial: bool) -> Iterator[str]:
    yield headers.get_combined("Repr-Digest") or ""
    yield headers.get_combined("Digest") or ""
    if not _is_transcoded_by_gcs(headers):
        yield headers.get_combined("x-goog-hash") or ""
    # Content-MD5 covers the bytes of this response, the others the whole object.
    if not is_partial:
        yield f"md5={headers.get('Content-MD5') or ''}"


def _is_transcoded_by_gcs(headers: Headers) -> bool:
    """Return whether Google Cloud Storage decompressed the object, so that its digests do not apply."""
    stored = headers.get("x-goog-stored-content-encoding", "identity").lower()
    return stored not in ("", "identity") and not headers.get("Content-Encoding")


def _parse_digest_list(text: str) -> Iterator[Digest]:
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        algorithm = _ALGORITHM_BY_HEADER_NAME.get(name.lower())
        hex_digest = _to_hex(algorithm, value.strip().strip(":")) if algorithm else None
        if algorithm and hex_digest:
            yield Digest(algorithm, hex_digest)


def _parse_s3_digests(headers: Headers) -> Iterator[Digest]:
    """Yield the S3 checksums of the whole object; those of multipart objects (ending in -N) are skipped."""
    if headers.get("x-amz-checksum-type", "FULL_OBJECT") != "FULL_OBJECT":
        return
    for algorithm in _S3_ALGORITHMS:
        hex_digest = _to_hex(algorithm, headers.get(f"x-amz-checksum-{algorithm}", "").strip())
        if hex_digest:
            yield Digest(algorithm, hex_digest)


def _to_hex(algorithm: str, text: str) -> str | None:
    size = DIGEST_BYTES[algorithm]
    if re.fullmatch(rf"[0-9a-fA-F]{{{2 * size}}}", text):
        return text.lower()
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw.hex() if len(raw) == size else None
