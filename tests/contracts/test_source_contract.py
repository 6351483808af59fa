"""What every Source promises, whatever is behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from packtrain.errors import TransferError
from packtrain.transfer.api import FULL_RANGE, ByteRange, ObjectStream

DATA = bytes(range(256)) * 1200  # more than one block of any backend


def everything(stream: ObjectStream, step: int = 100_000) -> bytes:
    try:
        return b"".join(iter(lambda: stream.read(step), b""))
    finally:
        stream.close()


@pytest.fixture
def ref(backend, tmp_path: Path):
    return backend.put("some folder/ü %41+data.bin", DATA, tmp_path)


def test_stat_tells_the_size_and_a_stable_etag(backend, ref):
    info = backend.store.stat(ref)
    assert info.size == len(DATA)
    assert info.etag or backend.immutable
    assert info == backend.store.stat(ref)


def test_stat_promises_ranges_and_open_keeps_the_promise(backend, ref):
    assert backend.store.stat(ref).ranges
    stream = backend.store.open(ref, ByteRange(1000))
    assert stream.start == 1000
    assert everything(stream) == DATA[1000:]


def test_open_gives_all_bytes_and_says_what_stat_says(backend, ref):
    stream = backend.store.open(ref, FULL_RANGE)
    told = backend.store.stat(ref)
    assert (stream.start, stream.info.size, stream.info.etag) == (0, told.size, told.etag)
    assert everything(stream) == DATA


@pytest.mark.parametrize(
    "span", [ByteRange(0, 1), ByteRange(5, 70_000), ByteRange(len(DATA) - 1, len(DATA)), ByteRange(len(DATA) - 3)]
)
def test_a_span_gives_its_bytes_and_the_size_of_the_whole(backend, ref, span):
    stream = backend.store.open(ref, span)
    assert stream.info.size == len(DATA)
    assert everything(stream) == DATA[span.start : span.stop]


def test_a_span_at_the_end_is_empty(backend, ref):
    stream = backend.store.open(ref, ByteRange(len(DATA)))
    assert stream.info.size == len(DATA)
    assert everything(stream) == b""


def test_reading_past_the_end_gives_nothing_again_and_again(backend, ref):
    stream = backend.store.open(ref)
    while stream.read(1 << 20):
        pass
    assert stream.read(1) == b""
    stream.close()


def test_an_empty_object_is_an_object(backend, tmp_path):
    ref = backend.put("empty", b"", tmp_path)
    assert backend.store.stat(ref).size == 0
    assert everything(backend.store.open(ref)) == b""


def test_another_content_has_another_etag(backend, ref, tmp_path):
    before = backend.store.stat(ref).etag
    if backend.immutable:  # the name alone tells the content, and an ETag need not be there
        assert backend.store.stat(ref).etag == before
        return
    backend.put("some folder/ü %41+data.bin", DATA[::-1], tmp_path)
    assert backend.store.stat(ref).etag != before


@pytest.mark.parametrize("method", ["stat", "open"])
def test_what_is_not_there_is_missing(backend, method):
    with pytest.raises(TransferError) as caught:
        getattr(backend.store, method)(backend.make_location("nothing/here.bin"))
    assert caught.value.kind == "object_missing"
    assert "here.bin" in caught.value.detail


def test_list_finds_all_below_by_relative_names(backend, tmp_path):
    names = {"top.txt": 3, "a/b c.txt": 5, "a/deep/er/ü.txt": 7}
    for name, size in names.items():
        backend.put(f"tree/{name}", b"x" * size, tmp_path)
    backend.put("treehouse/not-below.txt", b"x", tmp_path)
    if not backend.can_list:
        with pytest.raises(TransferError, match="list") as caught:
            list(backend.store.list(backend.make_location("tree")))
        assert caught.value.kind == "unsupported"
        return
    entries = list(backend.store.list(backend.make_location("tree")))
    assert {entry.name: entry.size for entry in entries} == names
    for entry in entries:
        assert everything(backend.store.open(entry.ref)) == b"x" * names[entry.name]


def test_an_empty_prefix_lists_nothing(backend):
    if backend.can_list:
        assert list(backend.store.list(backend.make_location("nobody/was/here"))) == []
