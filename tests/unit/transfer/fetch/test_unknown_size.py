"""A body whose length nobody says (chunked, gzip-encoded, until the connection ends) is verified like any other."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Location, RemoteFile
from packtrain.transfer.block_checksums import BlockChecksums, make_checksums
from packtrain.transfer.fetch import FetchResult, fetch
from packtrain.transfer.ordered_download import OrderedDownload
from testbed.http_server import HttpServer, ResponseFault
from tests.support.fetches import DATA, FILENAME, make_remote_file

BLOCK = 1 << 16
UNSIZED = [{"ignore_range": True, "chunked": True}, {"ignore_range": True, "omit_length": True}]


@pytest.fixture
def checksums(folder: Path) -> BlockChecksums:
    return make_checksums(folder / FILENAME, BLOCK)


def wrong_at(position: int | None) -> list[ResponseFault]:
    """Each time."""
    return [ResponseFault(ignore_range=True, chunked=True, corrupt_offset=position)] * 99


def run(url: str, target: Path, checksums: BlockChecksums, patience_s: float = 5.0) -> FetchResult:
    return fetch(
        make_remote_file(url),
        target,
        str,
        retry_timeout_s=patience_s,
        check_cancelled=lambda: None,
        on_progress=lambda done, total: None,
        checksums=checksums,
    )


def read(url: str, checksums: BlockChecksums) -> bytes:
    def nothing(*_: object) -> None: ...

    with OrderedDownload(
        make_remote_file(url),
        str,
        retry_timeout_s=0.0,
        check_cancelled=nothing,
        on_progress=nothing,
        checksums=checksums,
    ) as stream:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))


@pytest.mark.parametrize("form", UNSIZED)
def test_a_good_one_arrives(folder, target, checksums, form):
    with HttpServer(folder, faults=[ResponseFault(**form)]) as origin:
        done = run(f"{origin.url}/{FILENAME}", target, checksums)
    assert target.read_bytes() == DATA
    assert (done.verified_by, done.retries) == ("checksums", 0)


@pytest.mark.parametrize("at", [0, 3 * BLOCK + 5, len(DATA) - 1])
@pytest.mark.parametrize("form", UNSIZED)
def test_a_wrong_byte_is_found_by_the_checksums(folder, target, checksums, form, at):
    with HttpServer(folder, faults=[ResponseFault(**form, corrupt_offset=at)]) as origin:
        done = run(f"{origin.url}/{FILENAME}", target, checksums)
    assert target.read_bytes() == DATA
    assert (done.verified_by, done.retries) == ("checksums", 1)


def test_what_is_wrong_each_time_is_no_file(folder, target, checksums):
    with HttpServer(folder, faults=wrong_at(5)) as origin, pytest.raises(FailedError) as error:
        run(f"{origin.url}/{FILENAME}", target, checksums, patience_s=0.0)
    assert error.value.kind == "digest_mismatch"
    assert not target.exists()


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1, 10 * BLOCK, len(DATA) + BLOCK])
def test_another_size_than_the_checksums_have(folder, target, checksums, size):
    (folder / FILENAME).write_bytes((DATA + DATA)[:size])
    with HttpServer(folder, faults=wrong_at(None)) as origin, pytest.raises(FailedError) as error:
        run(f"{origin.url}/{FILENAME}", target, checksums, patience_s=0.0)
    assert error.value.kind == "unexpected_content"
    assert str(checksums.size) in error.value.detail


@pytest.mark.parametrize("form", UNSIZED)
def test_in_order_too(folder, checksums, form):
    with HttpServer(folder, faults=[ResponseFault(**form)]) as origin:
        assert read(f"{origin.url}/{FILENAME}", checksums) == DATA


@pytest.mark.parametrize("at", [0, len(DATA) - 1])
def test_in_order_a_wrong_byte_is_never_given(folder, checksums, at):
    """What was given before it cannot be taken back, so that the whole is read once more."""
    with HttpServer(folder, faults=wrong_at(at)) as origin, pytest.raises(FailedError):
        read(f"{origin.url}/{FILENAME}", checksums)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_body_that_the_server_compressed(folder, target, checksums, wrong):
    body = bytearray(DATA)
    body[100_000] ^= wrong
    packed = ResponseFault(status=200, html_body=gzip.compress(bytes(body), 1), headers={"Content-Encoding": "gzip"})
    with HttpServer(folder, faults=[packed]) as origin:
        done = run(f"{origin.url}/{FILENAME}", target, checksums)
    assert target.read_bytes() == DATA
    assert done.retries == int(wrong)


@pytest.mark.parametrize(("name", "unpacked"), [("data.csv", True), ("data.tar.gz", False)])
def test_a_compressed_body_is_the_file_where_its_name_says_so(folder, target, name, unpacked):
    """Many servers call every .gz that they have gzip-encoded."""
    packed = gzip.compress(DATA, 1)
    (folder / name).write_bytes(packed)
    with HttpServer(
        folder, headers={"Content-Encoding": "gzip"}, faults=[ResponseFault(ignore_range=True)] * 9
    ) as origin:
        thing = RemoteFile(name, (Location(f"{origin.url}/{name}"),))
        fetch(
            thing, target, str, retry_timeout_s=5.0, check_cancelled=lambda: None, on_progress=lambda done, total: None
        )
    assert target.read_bytes() == (DATA if unpacked else packed)
