"""Digests in response headers: the strongest one of the complete object that this machine can compute."""

from __future__ import annotations

import pytest

from packtrain.plan import Digest
from packtrain.transfer.http.digest_headers import digest_from_headers, parse_digest
from packtrain.transfer.http.headers import Headers
from packtrain.transfer.integrity import crc32c

MD5, MD5_BASE64 = "25f9e794323b453885f5181f1b624d0b", "JfnnlDI7RTiF9RgfG2JNCw=="
CRC32C = Digest("crc32c", "e3069283")


def parse(*lines: str, partial: bool = False) -> Digest | None:
    return digest_from_headers(Headers(line.split(": ", 1) for line in lines), partial)


@pytest.mark.parametrize(
    ("lines", "digest"),
    [
        (["Digest: crc32c=4waSgw=="], CRC32C),
        (["Digest: CRC32C=E3069283"], CRC32C),
        (["Repr-Digest: crc32c=:4waSgw==:"], CRC32C),
        (["Digest: adler32=091e01de,crc32c=4waSgw=="], CRC32C),
        (["Digest: adler32=091e01de", "Digest: crc32c=4waSgw=="], CRC32C),
        (["Digest: crc32c=4waSgw==", f"Content-MD5: {MD5_BASE64}"], Digest("md5", MD5)),
        (["x-goog-hash: crc32c=4waSgw=="], CRC32C),
        ([f"x-goog-hash: crc32c=4waSgw==,md5={MD5_BASE64}"], Digest("md5", MD5)),
        (["x-goog-hash: crc32c=4waSgw==", f"x-goog-hash: md5={MD5_BASE64}"], Digest("md5", MD5)),
        (["x-amz-checksum-crc32c: 4waSgw=="], CRC32C),
        (["x-amz-checksum-crc32c: 4waSgw==", "x-amz-checksum-type: FULL_OBJECT"], CRC32C),
        (["x-amz-checksum-crc32: y/Q5Jg=="], Digest("crc32", "cbf43926")),
        (["Digest: crc32=cbf43926"], None),  # XRootD's crc32 is a different checksum
        (["x-amz-checksum-crc32c: 4waSgw==-3"], None),
        (["x-amz-checksum-crc32c: 4waSgw==", "x-amz-checksum-type: COMPOSITE"], None),
        (["Digest: crc32c=4waSgw"], None),
        (["Digest: crc32c=e306928"], None),
    ],
)
def test_digest_from_headers(lines, digest):
    assert parse(*lines) == digest


def test_partial_response_uses_digests_of_the_object():
    assert parse("x-goog-hash: crc32c=4waSgw==", partial=True) == CRC32C
    assert parse("x-amz-checksum-crc32c: 4waSgw==", partial=True) is None


def test_digest_of_stored_gzip_is_ignored():
    """Google Cloud Storage decompresses on the fly, but states the digest of the compressed object."""
    stored_gzip = "x-goog-stored-content-encoding: gzip"
    assert parse(stored_gzip, "x-goog-hash: crc32c=4waSgw==") is None
    assert parse(stored_gzip, "Content-Encoding: gzip", "x-goog-hash: crc32c=4waSgw==") == CRC32C
    assert parse("x-goog-stored-content-encoding: identity", "x-goog-hash: crc32c=4waSgw==") == CRC32C


def test_crc32c_needs_a_module(monkeypatch):
    monkeypatch.setattr(crc32c, "find_extend", lambda: None)
    assert parse("Digest: crc32c=4waSgw==") is None
    assert parse("Digest: crc32c=4waSgw==, adler32=091e01de") == Digest("adler32", "091e01de")


def test_parse_digest():
    assert parse_digest("crc32c", "4waSgw==") == parse_digest("crc32c", "E3069283") == "e3069283"
    assert parse_digest("md5", MD5_BASE64) == MD5
    with pytest.raises(ValueError, match="'abc' is not a valid CRC-32C digest: write 8 hexadecimal digits, or base64"):
        parse_digest("crc32c", "abc")
