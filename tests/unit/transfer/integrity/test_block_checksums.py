"""Checksums files: computed, written, and parsed strictly."""

from __future__ import annotations

import base64
import hashlib
import json
import tracemalloc

import pytest

from packtrain.errors import FormatError
from packtrain.transfer.api import ByteRange
from packtrain.transfer.integrity.block_checksums import (
    BlockChecksums,
    HexDigests,
    choose_block_bytes,
    find_bad_blocks,
    find_block_problem,
    format_checksums,
    make_checksums,
    parse_checksums,
    read_checksums,
    write_checksums,
)

DATA = bytes(i * 7919 % 251 for i in range(10_000))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(DATA)
    return path


def make_document(**changes):
    digest = hashlib.sha256(b"abc").digest()
    document = {"version": 2, "size": 3, "block_bytes": 4, "block_sha256": base64.b64encode(digest).decode(), **changes}
    return json.dumps({key: value for key, value in document.items() if value is not None})


def test_digests_match_hashlib(file):
    checksums = make_checksums(file, 4096)
    assert checksums.block_sha256 == tuple(
        hashlib.sha256(DATA[start : start + 4096]).hexdigest() for start in (0, 4096, 8192)
    )
    assert (checksums.file_sha256, checksums.size, checksums.name) == (
        hashlib.sha256(DATA).hexdigest(),
        len(DATA),
        "data.bin",
    )
    assert checksums.block_range(2) == ByteRange(8192, 10_000)


def test_blocks_larger_than_read_size(tmp_path):
    data = DATA * 300
    (tmp_path / "large").write_bytes(data)
    reports = []
    checksums = make_checksums(tmp_path / "large", 2_500_000, lambda done, total: reports.append((done, total)))
    assert checksums.block_sha256 == tuple(
        hashlib.sha256(part).hexdigest() for part in (data[:2_500_000], data[2_500_000:])
    )
    assert reports == [(2_500_000, 3_000_000), (3_000_000, 3_000_000)]


def test_empty_file(tmp_path):
    (tmp_path / "empty").touch()
    checksums = make_checksums(tmp_path / "empty")
    assert (checksums.block_sha256, checksums.file_sha256) == ((), hashlib.sha256(b"").hexdigest())
    assert parse_checksums(format_checksums(checksums), "x") == checksums


def test_write_and_read(file, tmp_path):
    checksums, path = make_checksums(file, 1000), tmp_path / "data.bin.checksums.json"
    write_checksums(checksums, path)
    assert read_checksums(path) == checksums
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.bin", "data.bin.checksums.json"]


@pytest.mark.parametrize("size", [0, 1, 10**9, 47 * 10**9])
def test_file_is_small(size):
    block = choose_block_bytes(size)
    checksums = BlockChecksums(block, size, ("ab" * 32,) * -(-size // block), "cd" * 32, "name")
    assert len(format_checksums(checksums)) < 2_000_000


@pytest.mark.parametrize(
    ("size", "block"), [(10**9, 1), (47 * 10**9, 1), (137 * 10**9, 2), (10**12, 2), (2 * 10**12, 4)]
)
def test_choose_block_bytes(size, block):
    assert choose_block_bytes(size) == block << 20
    assert not find_block_problem(block << 20, size)


@pytest.mark.parametrize(
    ("size", "block", "message"),
    [(10**13, 4 << 20, "2384186 blocks"), (10**9, 1, "1000000000 blocks"), (10**6, 512 << 20, "many in memory")],
)
def test_excessive_memory_is_rejected(size, block, message):
    assert message in find_block_problem(block, size)
    with pytest.raises(FormatError, match=f"{message}.*packtrain checksums"):
        parse_checksums(make_document(size=size, block_bytes=block), "x")


def test_hex_digests_behave_like_a_tuple():
    first, second = hashlib.sha256(b"1").hexdigest(), hashlib.sha256(b"2").hexdigest()
    checksums = HexDigests.from_hex([first, second])
    assert (list(checksums), checksums[-1], checksums[:1], len(checksums)) == ([first, second], second, (first,), 2)
    assert checksums == (first, second) == checksums and checksums != (second, first) and checksums != (first,)
    with pytest.raises(IndexError):
        checksums[2]


def test_hex_digests_take_little_memory():
    text = make_document(
        size=(1 << 20) * 400_000, block_bytes=1 << 20, block_sha256=base64.b64encode(bytes(32 * 400_000)).decode()
    )
    tracemalloc.start()
    try:
        checksums = parse_checksums(text, "x")
        current, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(checksums.block_sha256) == 400_000
    assert current < 14_000_000 and peak < 60_000_000


def test_truncated_file_lacks_last_blocks(file):
    checksums = make_checksums(file, 1000)
    file.write_bytes(DATA[:4500])
    assert find_bad_blocks(file, checksums) == [4, 5, 6, 7, 8, 9]
    file.write_bytes(b"")
    assert find_bad_blocks(file, checksums) == list(range(10))


def test_valid_document():
    assert parse_checksums(make_document(), "x") == BlockChecksums(4, 3, (hashlib.sha256(b"abc").hexdigest(),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a checksums file"),
        ("[]", "version"),
        ("[" * 100_000, "not a checksums file"),
        (make_document(version=1), "its version: 1"),
        (make_document(version=True), "its version: True"),
        (make_document(extra=1), "unknown key 'extra'"),
        (make_document(block_sha256=None), "incomplete"),
        (make_document(size="3"), "x.size should be int"),
        (make_document(size=-1), "out of range"),
        (make_document(block_bytes=0), "out of range"),
        (make_document(size=5), "2 blocks"),
        (make_document(block_sha256="@@"), "not base64"),
        (make_document(block_sha256="é"), "not base64"),
        (make_document(block_sha256=""), "has 0 bytes"),
        (make_document(sha256="ABC"), "x.sha256"),
        (make_document(sha256="a" * 63 + "\n"), "x.sha256"),
    ],
)
def test_invalid_documents(text, message):
    with pytest.raises(FormatError, match=message):
        parse_checksums(text, "x")


def test_binary_file_is_rejected(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="binary is not a checksums file"):
        read_checksums(tmp_path / "binary")
