"""What every Sink promises, whatever is behind it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from packtrain.errors import FailedError, TransferError


def content(backend, ref) -> bytes:
    stream = backend.store.open(ref)
    try:
        return b"".join(iter(lambda: stream.read(1 << 16), b""))
    finally:
        stream.close()


def test_what_was_put_can_be_read(backend, tmp_path: Path):
    data = bytes(range(256)) * 4000
    ref = backend.put("a/b c+d/ü.bin", data, tmp_path)
    assert content(backend, ref) == data


def test_putting_again_replaces_or_is_refused(backend, tmp_path: Path):
    ref = backend.put("twice.bin", b"the first, longer one", tmp_path)
    if backend.immutable:
        with pytest.raises(TransferError, match="never changed"):
            backend.put("twice.bin", b"the second", tmp_path)
        return
    backend.put("twice.bin", b"the second", tmp_path)
    assert content(backend, ref) == b"the second"


def test_putting_the_same_again_is_no_error(backend, tmp_path: Path):
    for _ in range(2):
        ref = backend.put("same.bin", b"the same", tmp_path)
    assert content(backend, ref) == b"the same"


def test_bytes_are_counted_as_they_leave(backend, tmp_path: Path):
    counted: list[int] = []
    (tmp_path / "to-put").write_bytes(b"x" * 400_000)
    backend.store.put(backend.make_location("counted.bin"), tmp_path / "to-put", counted.append)
    assert sum(counted) == 400_000


def test_the_file_that_was_put_stays(backend, tmp_path: Path):
    backend.put("kept.bin", b"kept", tmp_path)
    assert (tmp_path / "to-put").read_bytes() == b"kept"


def test_a_reader_sees_the_old_or_the_new_never_a_mixture(backend, tmp_path: Path):
    versions = [bytes([number]) * 300_000 for number in (1, 2)]
    ref = backend.put("shared.bin", versions[0], tmp_path)
    if backend.immutable:
        with pytest.raises(FailedError):
            backend.put("shared.bin", versions[1], tmp_path)
        assert content(backend, ref) == versions[0]
        return
    done = threading.Event()

    def writer() -> None:
        for turn in range(20):
            backend.put("shared.bin", versions[turn % 2], tmp_path)
        done.set()

    thread = threading.Thread(target=writer)
    thread.start()
    while not done.is_set():
        assert content(backend, ref) in versions
    thread.join()


def test_delete_makes_it_gone_and_may_be_repeated(backend, tmp_path: Path):
    ref = backend.put("short-lived.bin", b"x", tmp_path)
    backend.store.delete(ref)
    with pytest.raises(TransferError) as caught:
        backend.store.stat(ref)
    assert caught.value.kind == "object_missing"
    backend.store.delete(ref)


def test_listing_shows_only_what_is_complete(backend, tmp_path: Path):
    if backend.can_list:
        backend.put("folder/one", b"1", tmp_path)
        backend.put("folder/two", b"22", tmp_path)
        assert sorted(entry.name for entry in backend.store.list(backend.make_location("folder"))) == ["one", "two"]
