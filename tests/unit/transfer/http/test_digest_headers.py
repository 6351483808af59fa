"""Which digest a server states: the strongest one of the whole object that can be computed here."""

from __future__ import annotations

import pytest

from packtrain.plan import Digest
from packtrain.transfer import crc32c
from packtrain.transfer.http.digest_headers import digest_from_headers, parse_digest
from packtrain.transfer.http.headers import Headers

MD5, MD5_BASE64 = "25f9e794323b453885f5181f1b624d0b", "JfnnlDI7RTiF9RgfG2JNCw=="
CRC32C = Digest("crc32c", "e3069283")
HUGE = crc32c.MAX_PURE_PYTHON_UNREQUESTED_BYTES + 1


@pytest.fixture
def no_module(monkeypatch):
    monkeypatch.setattr(crc32c, "_find_native_extend", lambda: None)


def stated(*lines: str, size: int | None = 9, partial: bool = False) -> Digest | None:
    return digest_from_headers(Headers.parse("\r\n".join(lines).encode()), size, partial)


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
        (["Digest: crc32=cbf43926"], None),  # as XRootD has it, that is another checksum
        (["x-amz-checksum-crc32c: 4waSgw==-3"], None),
        (["x-amz-checksum-crc32c: 4waSgw==", "x-amz-checksum-type: COMPOSITE"], None),
        (["Digest: crc32c=4waSgw"], None),
        (["Digest: crc32c=e306928"], None),
    ],
)
def test_what_a_server_says(lines, digest):
    assert stated(*lines) == digest


def test_of_a_part_of_an_object_only_what_is_said_of_the_whole_counts():
    assert stated("x-goog-hash: crc32c=4waSgw==", partial=True) == CRC32C
    assert stated("x-amz-checksum-crc32c: 4waSgw==", partial=True) is None


def test_what_google_unpacks_on_the_way_has_the_digest_of_what_is_packed():
    packed = "x-goog-stored-content-encoding: gzip"
    assert stated(packed, "x-goog-hash: crc32c=4waSgw==") is None
    assert stated(packed, "Content-Encoding: gzip", "x-goog-hash: crc32c=4waSgw==") == CRC32C
    assert stated("x-goog-stored-content-encoding: identity", "x-goog-hash: crc32c=4waSgw==") == CRC32C


@pytest.mark.usefixtures("no_module")
def test_without_a_module_the_crc32c_of_much_is_as_good_as_none():
    assert stated("Digest: crc32c=4waSgw==", size=HUGE) is None
    assert stated("Digest: crc32c=4waSgw==", size=None) is None
    assert stated("Digest: crc32c=4waSgw==", size=HUGE - 1) == CRC32C
    assert stated("Digest: crc32c=4waSgw==, adler32=091e01de", size=HUGE) == Digest("adler32", "091e01de")


def test_with_a_module_it_is_used(monkeypatch):
    monkeypatch.setattr(crc32c, "_find_native_extend", lambda: lambda value, data: 0)
    assert stated("Digest: crc32c=4waSgw==", size=HUGE) == CRC32C


def test_what_people_write():
    assert parse_digest("crc32c", "4waSgw==") == parse_digest("crc32c", "E3069283") == "e3069283"
    assert parse_digest("md5", MD5_BASE64) == MD5
    with pytest.raises(ValueError, match="'abc' is no CRC-32C digest: 8 hexadecimal digits, or base64"):
        parse_digest("crc32c", "abc")
