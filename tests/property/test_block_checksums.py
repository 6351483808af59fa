"""Checksums of any file survive a round trip, and locate any flipped byte in its block."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.errors import FormatError
from packtrain.transfer.integrity.block_checksums import (
    find_bad_blocks,
    format_checksums,
    make_checksums,
    parse_checksums,
)

contents = st.binary(max_size=3000)
blocks = st.integers(1, 1000)


@settings(max_examples=100, deadline=None)
@given(data=contents, block=blocks)
def test_round_trip(data, block):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data")
        path.write_bytes(data)
        checksums = make_checksums(path, block)
        assert parse_checksums(format_checksums(checksums), "x") == checksums
        assert find_bad_blocks(path, checksums) == []


@settings(max_examples=100, deadline=None)
@given(data=contents.filter(bool), block=blocks, where=st.integers(0), change=st.integers(1, 255))
def test_flipped_byte_is_located(data, block, where, change):
    position = where % len(data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data")
        path.write_bytes(data)
        checksums = make_checksums(path, block)
        path.write_bytes(data[:position] + bytes([data[position] ^ change]) + data[position + 1 :])
        assert find_bad_blocks(path, checksums) == [position // block]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(["version", "size", "block_bytes", "block_sha256", "sha256", "name", "more"])


@settings(max_examples=200, deadline=None)
@given(document=st.dictionaries(keys, json_values | st.just(1) | st.just(0) | st.just("")) | json_values)
def test_any_document_is_parsed_or_rejected(document):
    import json

    try:
        checksums = parse_checksums(json.dumps(document), "x")
    except FormatError:
        return
    assert parse_checksums(format_checksums(checksums), "x") == checksums
