"""The contract of every Sink."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Location
from packtrain.transfer.backends.pelican.backend import PelicanBackend


def read_object(backend, location) -> bytes:
    stream = backend.store.open(location)
    try:
        return b"".join(iter(lambda: stream.read(1 << 16), b""))
    finally:
        stream.close()


def test_put_and_read(backend, tmp_path: Path):
    data = bytes(range(256)) * 4000
    location = backend.put("a/b c+d/ü.bin", data, tmp_path)
    assert read_object(backend, location) == data


def test_put_replaces_or_is_rejected(backend, tmp_path: Path):
    location = backend.put("twice.bin", b"the first, longer one", tmp_path)
    if backend.immutable:
        with pytest.raises(TransferError, match="immutable"):
            backend.put("twice.bin", b"the second", tmp_path)
        return
    backend.put("twice.bin", b"the second", tmp_path)
    assert read_object(backend, location) == b"the second"


def test_put_same_content_again(backend, tmp_path: Path):
    for _ in range(2):
        location = backend.put("same.bin", b"the same", tmp_path)
    assert read_object(backend, location) == b"the same"


def test_sent_bytes_are_reported(backend, tmp_path: Path):
    counted: list[int] = []
    (tmp_path / "to-put").write_bytes(b"x" * 400_000)
    backend.store.put(backend.make_location("counted.bin"), tmp_path / "to-put", counted.append)
    assert sum(counted) == 400_000


def test_put_keeps_the_local_file(backend, tmp_path: Path):
    backend.put("kept.bin", b"kept", tmp_path)
    assert (tmp_path / "to-put").read_bytes() == b"kept"


def test_put_is_atomic(backend, tmp_path: Path):
    versions = [bytes([number]) * 300_000 for number in (1, 2)]
    location = backend.put("shared.bin", versions[0], tmp_path)
    if backend.immutable:
        with pytest.raises(FailedError):
            backend.put("shared.bin", versions[1], tmp_path)
        assert read_object(backend, location) == versions[0]
        return
    done = threading.Event()

    def writer() -> None:
        for turn in range(20):
            backend.put("shared.bin", versions[turn % 2], tmp_path)
        done.set()

    thread = threading.Thread(target=writer)
    thread.start()
    while not done.is_set():
        assert read_object(backend, location) in versions
    thread.join()


def test_delete_is_idempotent(backend, tmp_path: Path):
    location = backend.put("short-lived.bin", b"x", tmp_path)
    backend.store.delete(location)
    with pytest.raises(TransferError) as caught:
        backend.store.stat(location)
    assert caught.value.kind == "object_missing"
    backend.store.delete(location)


def test_list_after_put(backend, tmp_path: Path):
    backend.put("folder/one", b"1", tmp_path)
    backend.put("folder/two", b"22", tmp_path)
    entries = backend.list("folder")
    assert entries is None or sorted(entry.name for entry in entries) == ["one", "two"]


def copy_object(backend, source, target, may_move) -> bool:
    """Copy an object and return whether the backend can."""
    try:
        backend.store.copy(source, target, may_move=may_move)
    except TransferError as error:
        assert error.kind == "unsupported"
        assert backend.name in ("http", "pelican")
        return False
    return True


@pytest.mark.slow
@pytest.mark.xdist_group("pelican_case")
def test_move_in_a_federation(real_federation, monkeypatch, tmp_path: Path):
    """The origin renames the object, unless the name is taken or has characters that XRootD would not decode."""
    monkeypatch.setenv("SSL_CERT_FILE", str(real_federation.ca))
    backend = PelicanBackend(str)
    locations = [Location(real_federation.url(f"moved/{name}")) for name in ("a", "sub/b", "taken", "c%20d")]
    for location in (locations[0], locations[2]):
        (tmp_path / "data").write_bytes(location.url.encode())
        backend.put(location, tmp_path / "data")
    for target in locations[2:]:
        with pytest.raises(TransferError) as caught:
            backend.copy(locations[0], target, may_move=True)
        assert caught.value.kind == "unsupported"
    assert backend.copy(locations[0], locations[1], may_move=True)
    assert backend.stat(locations[1]).size == len(locations[0].url)
    with pytest.raises(TransferError):
        backend.stat(Location(f"{locations[0].url}?directread"))


@pytest.mark.parametrize("may_move", [False, True])
def test_copy_replaces_target(backend, may_move, tmp_path: Path):
    data, target = bytes(range(256)) * 4000, backend.make_location("copies/b c+d/ü.bin")
    source = backend.put("copies/source é.bin", data, tmp_path)
    if not copy_object(backend, source, target, may_move):
        return
    assert read_object(backend, target) == data
    if backend.immutable:
        return
    source = backend.put("copies/source é.bin", b"newer", tmp_path)
    for _ in range(1 if may_move else 2):
        backend.store.copy(source, target, may_move=may_move)
    assert read_object(backend, target) == b"newer"
    if not may_move:
        backend.put("copies/source é.bin", b"newest", tmp_path)
        assert read_object(backend, target) == b"newer", "the copy does not change with its source"


def test_copy_of_missing_object(backend):
    with pytest.raises(TransferError) as caught:
        backend.store.copy(backend.make_location("nothing"), backend.make_location("target"))
    assert caught.value.kind in ("object_missing", "unsupported")
    with pytest.raises(TransferError):
        backend.store.stat(backend.make_location("target"))
