"""The contract of every Source."""

from __future__ import annotations

from pathlib import Path

import pytest

from packtrain.errors import TransferError
from packtrain.transfer.api import FULL_RANGE, ByteRange, ObjectStream

DATA = bytes(range(256)) * 1200  # more than one block of any backend


def read_all(stream: ObjectStream, step: int = 100_000) -> bytes:
    try:
        return b"".join(iter(lambda: stream.read(step), b""))
    finally:
        stream.close()


@pytest.fixture
def location(backend, tmp_path: Path):
    return backend.put("some folder/ü %41+data.bin", DATA, tmp_path)


def test_stat(backend, location):
    info = backend.store.stat(location)
    assert info.size == len(DATA)
    assert info.etag or backend.immutable
    assert info == backend.store.stat(location)


def test_open_from_offset(backend, location):
    assert backend.store.stat(location).accepts_ranges
    stream = backend.store.open(location, ByteRange(1000))
    assert stream.start == 1000
    assert read_all(stream) == DATA[1000:]


def test_open_agrees_with_stat(backend, location):
    stream = backend.store.open(location, FULL_RANGE)
    info = backend.store.stat(location)
    assert (stream.start, stream.info.size, stream.info.etag) == (0, info.size, info.etag)
    assert read_all(stream) == DATA


@pytest.mark.parametrize(
    "byte_range", [ByteRange(0, 1), ByteRange(5, 70_000), ByteRange(len(DATA) - 1, len(DATA)), ByteRange(len(DATA) - 3)]
)
def test_byte_range(backend, location, byte_range):
    stream = backend.store.open(location, byte_range)
    assert stream.info.size == len(DATA)
    assert read_all(stream) == DATA[byte_range.start : byte_range.stop]


def test_byte_range_at_the_end_is_empty(backend, location):
    stream = backend.store.open(location, ByteRange(len(DATA)))
    assert stream.info.size == len(DATA)
    assert read_all(stream) == b""


def test_read_past_the_end(backend, location):
    stream = backend.store.open(location)
    while stream.read(1 << 20):
        pass
    assert stream.read(1) == b""
    stream.close()


def test_empty_object(backend, tmp_path):
    location = backend.put("empty", b"", tmp_path)
    assert backend.store.stat(location).size == 0
    assert read_all(backend.store.open(location)) == b""


def test_new_content_changes_the_etag(backend, location, tmp_path):
    before = backend.store.stat(location)
    if backend.immutable:  # the name identifies the content, so the ETag is optional
        with pytest.raises(TransferError, match="immutable"):
            backend.put("some folder/ü %41+data.bin", DATA[::-1], tmp_path)
        assert backend.store.stat(location) == before
        assert read_all(backend.store.open(location)) == DATA
        return
    backend.put("some folder/ü %41+data.bin", DATA[::-1], tmp_path)
    assert backend.store.stat(location).etag != before.etag


@pytest.mark.parametrize("method", ["stat", "open"])
def test_missing_object(backend, method):
    with pytest.raises(TransferError) as caught:
        getattr(backend.store, method)(backend.make_location("nothing/here.bin"))
    assert caught.value.kind == "object_missing"
    assert "here.bin" in caught.value.detail


def test_list_is_recursive(backend, tmp_path):
    names = {"top.txt": 3, "a/b c.txt": 5, "a/deep/er/ü.txt": 7}
    for name, size in names.items():
        backend.put(f"tree/{name}", b"x" * size, tmp_path)
    backend.put("treehouse/not-below.txt", b"x", tmp_path)
    entries = backend.list("tree")
    if entries is None:
        return
    assert {entry.name: entry.size for entry in entries} == names
    for entry in entries:
        assert read_all(backend.store.open(entry.location)) == b"x" * names[entry.name]


def test_list_of_empty_prefix(backend):
    assert backend.list("no/such/prefix") in (None, [])
