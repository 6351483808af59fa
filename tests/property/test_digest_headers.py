"""Digests in workflows and headers are parsed, or rejected with a clear message."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.transfer.http.digest_headers import DIGEST_BYTES, digest_from_headers, parse_digest
from packtrain.transfer.http.headers import Headers

ALGORITHMS = ["sha256", "md5", "crc32c"]
HEADERS = ["Digest", "Repr-Digest", "Content-MD5", "x-goog-hash", "x-amz-checksum-crc32c", "x-amz-checksum-type"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(deadline=None)
@given(data=st.data())
def test_hex_and_base64_digests(algorithm, data):
    raw = data.draw(st.binary(min_size=DIGEST_BYTES[algorithm], max_size=DIGEST_BYTES[algorithm]))
    for text in (raw.hex(), raw.hex().upper(), base64.b64encode(raw).decode()):
        assert parse_digest(algorithm, text) == raw.hex()


@settings(deadline=None)
@given(
    algorithm=st.sampled_from(ALGORITHMS), text=st.text(max_size=70) | st.text("0123456789abcdefAF+/=-: ", max_size=70)
)
def test_any_text_as_digest(algorithm, text):
    try:
        digest = parse_digest(algorithm, text)
    except ValueError as error:
        assert f"{2 * DIGEST_BYTES[algorithm]} hexadecimal digits, or base64" in str(error)
    else:
        assert re.fullmatch(f"[0-9a-f]{{{2 * DIGEST_BYTES[algorithm]}}}", digest)


@settings(deadline=None)
@given(
    lines=st.lists(st.tuples(st.sampled_from(HEADERS), st.text("md5crc32csha-=,:; AB90+/=_é", max_size=60))),
    partial=st.booleans(),
)
def test_any_digest_headers(lines, partial):
    digest = digest_from_headers(Headers(lines), partial)
    assert digest is None or len(digest.value) == 2 * DIGEST_BYTES[digest.algorithm]
