"""The checksums file: made, written, read strictly."""

from __future__ import annotations

import base64
import hashlib
import json
import tracemalloc

import pytest

from packtrain.errors import FormatError
from packtrain.transfer.api import ByteRange
from packtrain.transfer.block_checksums import (
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


def document(**changes):
    digest = hashlib.sha256(b"abc").digest()
    made = {"version": 2, "size": 3, "block_bytes": 4, "block_sha256": base64.b64encode(digest).decode(), **changes}
    return json.dumps({key: value for key, value in made.items() if value is not None})


def test_digests_are_those_of_hashlib(file):
    made = make_checksums(file, 4096)
    assert made.block_sha256 == tuple(hashlib.sha256(DATA[at : at + 4096]).hexdigest() for at in (0, 4096, 8192))
    assert (made.file_sha256, made.size, made.name) == (hashlib.sha256(DATA).hexdigest(), len(DATA), "data.bin")
    assert made.block_range(2) == ByteRange(8192, 10_000)


def test_blocks_larger_than_what_is_read_at_once(tmp_path):
    data = DATA * 300
    (tmp_path / "large").write_bytes(data)
    seen = []
    made = make_checksums(tmp_path / "large", 2_500_000, lambda done, total: seen.append((done, total)))
    assert made.block_sha256 == tuple(hashlib.sha256(part).hexdigest() for part in (data[:2_500_000], data[2_500_000:]))
    assert seen == [(2_500_000, 3_000_000), (3_000_000, 3_000_000)]


def test_an_empty_file_has_no_blocks(tmp_path):
    (tmp_path / "empty").touch()
    made = make_checksums(tmp_path / "empty")
    assert (made.block_sha256, made.file_sha256) == ((), hashlib.sha256(b"").hexdigest())
    assert parse_checksums(format_checksums(made), "x") == made


def test_written_and_read_again(file, tmp_path):
    made, path = make_checksums(file, 1000), tmp_path / "data.bin.checksums.json"
    write_checksums(made, path)
    assert read_checksums(path) == made
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.bin", "data.bin.checksums.json"]


@pytest.mark.parametrize("size", [0, 1, 10**9, 47 * 10**9])
def test_the_file_stays_small(size):
    block = choose_block_bytes(size)
    made = BlockChecksums(block, size, ("ab" * 32,) * -(-size // block), "cd" * 32, "name")
    assert len(format_checksums(made)) < 2_000_000


@pytest.mark.parametrize(
    ("size", "block"), [(10**9, 1), (47 * 10**9, 1), (137 * 10**9, 2), (10**12, 2), (2 * 10**12, 4)]
)
def test_the_block_suits_the_size(size, block):
    assert choose_block_bytes(size) == block << 20
    assert not find_block_problem(block << 20, size)


@pytest.mark.parametrize(
    ("size", "block", "said"),
    [(10**13, 4 << 20, "2384186 blocks"), (10**9, 1, "1000000000 blocks"), (10**6, 512 << 20, "many in memory")],
)
def test_what_would_take_too_much_memory_is_refused(size, block, said):
    assert said in find_block_problem(block, size)
    with pytest.raises(FormatError, match=f"{said}.*packtrain checksums"):
        parse_checksums(document(size=size, block_bytes=block), "x")


def test_digests_are_like_a_tuple_of_them():
    one, two = hashlib.sha256(b"1").hexdigest(), hashlib.sha256(b"2").hexdigest()
    made = HexDigests.from_hex([one, two])
    assert (list(made), made[-1], made[:1], len(made)) == ([one, two], two, (one,), 2)
    assert made == (one, two) == made and made != (two, one) and made != (one,)
    with pytest.raises(IndexError):
        made[2]


def test_digests_of_a_large_file_take_little_memory():
    text = document(size=(1 << 20) * 400_000, block_bytes=1 << 20, block_sha256=base64.b64encode(bytes(32 * 400_000)).decode())
    tracemalloc.start()
    try:
        made = parse_checksums(text, "x")
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(made.block_sha256) == 400_000
    assert held < 14_000_000 and peak < 60_000_000


def test_a_short_file_lacks_its_last_blocks(file):
    made = make_checksums(file, 1000)
    file.write_bytes(DATA[:4500])
    assert find_bad_blocks(file, made) == [4, 5, 6, 7, 8, 9]
    file.write_bytes(b"")
    assert find_bad_blocks(file, made) == list(range(10))


def test_a_good_document():
    assert parse_checksums(document(), "x") == BlockChecksums(4, 3, (hashlib.sha256(b"abc").hexdigest(),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a checksums file"),
        ("[]", "version"),
        ("[" * 100_000, "not a checksums file"),
        (document(version=1), "its version: 1"),
        (document(version=True), "its version: True"),
        (document(extra=1), "unknown key 'extra'"),
        (document(block_sha256=None), "incomplete"),
        (document(size="3"), "x.size should be int"),
        (document(size=-1), "out of range"),
        (document(block_bytes=0), "out of range"),
        (document(size=5), "2 blocks"),
        (document(block_sha256="@@"), "not base64"),
        (document(block_sha256="é"), "not base64"),
        (document(block_sha256=""), "has 0 bytes"),
        (document(sha256="ABC"), "x.sha256"),
        (document(sha256="a" * 63 + "\n"), "x.sha256"),
    ],
)
def test_anything_else_is_refused_with_a_reason(text, said):
    with pytest.raises(FormatError, match=said):
        parse_checksums(text, "x")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="binary is not a checksums file"):
        read_checksums(tmp_path / "binary")
