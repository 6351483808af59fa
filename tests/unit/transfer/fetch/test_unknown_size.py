"""A body whose length nobody says (chunked, gzip-encoded, until the connection ends) is verified like any other."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Item, Ref
from packtrain.transfer.block_checksums import Checksums, make_checksums
from packtrain.transfer.fetch import Fetched, fetch
from packtrain.transfer.ordered_download import Ordered
from testbed.http_server import Fault, Origin
from tests.support.fetches import DATA, NAME, item

BLOCK = 1 << 16
UNSIZED = [{"no_range": True, "chunked": True}, {"no_range": True, "no_length": True}]


@pytest.fixture
def checksums(folder: Path) -> Checksums:
    return make_checksums(folder / NAME, BLOCK)


def wrong_at(position: int | None) -> list[Fault]:
    """Each time."""
    return [Fault(no_range=True, chunked=True, corrupt_at=position)] * 99


def run(url: str, target: Path, checksums: Checksums, patience_s: float = 5.0) -> Fetched:
    return fetch(
        item(url),
        target,
        str,
        patience_s=patience_s,
        stop=lambda: None,
        progress=lambda done, total: None,
        checksums=checksums,
    )


def read(url: str, checksums: Checksums) -> bytes:
    def nothing(*_: object) -> None: ...

    with Ordered(item(url), str, patience_s=0.0, stop=nothing, progress=nothing, checksums=checksums) as stream:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))


@pytest.mark.parametrize("form", UNSIZED)
def test_a_good_one_arrives(folder, target, checksums, form):
    with Origin(folder, faults=[Fault(**form)]) as origin:
        done = run(f"{origin.url}/{NAME}", target, checksums)
    assert target.read_bytes() == DATA
    assert (done.verified_by, done.retries) == ("checksums", 0)


@pytest.mark.parametrize("at", [0, 3 * BLOCK + 5, len(DATA) - 1])
@pytest.mark.parametrize("form", UNSIZED)
def test_a_wrong_byte_is_found_by_the_checksums(folder, target, checksums, form, at):
    with Origin(folder, faults=[Fault(**form, corrupt_at=at)]) as origin:
        done = run(f"{origin.url}/{NAME}", target, checksums)
    assert target.read_bytes() == DATA
    assert (done.verified_by, done.retries) == ("checksums", 1)


def test_what_is_wrong_each_time_is_no_file(folder, target, checksums):
    with Origin(folder, faults=wrong_at(5)) as origin, pytest.raises(FailedError) as error:
        run(f"{origin.url}/{NAME}", target, checksums, patience_s=0.0)
    assert error.value.kind == "digest_mismatch"
    assert not target.exists()


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1, 10 * BLOCK, len(DATA) + BLOCK])
def test_another_size_than_the_checksums_have(folder, target, checksums, size):
    (folder / NAME).write_bytes((DATA + DATA)[:size])
    with Origin(folder, faults=wrong_at(None)) as origin, pytest.raises(FailedError) as error:
        run(f"{origin.url}/{NAME}", target, checksums, patience_s=0.0)
    assert error.value.kind == "not_the_data"
    assert str(checksums.size) in error.value.detail


@pytest.mark.parametrize("form", UNSIZED)
def test_in_order_too(folder, checksums, form):
    with Origin(folder, faults=[Fault(**form)]) as origin:
        assert read(f"{origin.url}/{NAME}", checksums) == DATA


@pytest.mark.parametrize("at", [0, len(DATA) - 1])
def test_in_order_a_wrong_byte_is_never_given(folder, checksums, at):
    """What was given before it cannot be taken back, so that the whole is read once more."""
    with Origin(folder, faults=wrong_at(at)) as origin, pytest.raises(FailedError):
        read(f"{origin.url}/{NAME}", checksums)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_body_that_the_server_compressed(folder, target, checksums, wrong):
    body = bytearray(DATA)
    body[100_000] ^= wrong
    packed = Fault(status=200, page=gzip.compress(bytes(body), 1), headers={"Content-Encoding": "gzip"})
    with Origin(folder, faults=[packed]) as origin:
        done = run(f"{origin.url}/{NAME}", target, checksums)
    assert target.read_bytes() == DATA
    assert done.retries == int(wrong)


@pytest.mark.parametrize(("name", "unpacked"), [("data.csv", True), ("data.tar.gz", False)])
def test_a_compressed_body_is_the_file_where_its_name_says_so(folder, target, name, unpacked):
    """Many servers call every .gz that they have gzip-encoded."""
    packed = gzip.compress(DATA, 1)
    (folder / name).write_bytes(packed)
    with Origin(folder, headers={"Content-Encoding": "gzip"}, faults=[Fault(no_range=True)] * 9) as origin:
        thing = Item(name, (Ref(f"{origin.url}/{name}"),))
        fetch(thing, target, str, patience_s=5.0, stop=lambda: None, progress=lambda done, total: None)
    assert target.read_bytes() == (DATA if unpacked else packed)
