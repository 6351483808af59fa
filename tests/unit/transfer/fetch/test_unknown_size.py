"""Bodies of unknown length (chunked, gzip-encoded, or ended by the connection) are verified like any other."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Location, RemoteFile
from packtrain.transfer.fetch import FetchResult, fetch
from packtrain.transfer.integrity.block_checksums import BlockChecksums, make_checksums
from packtrain.transfer.ordered_download import OrderedDownload
from testbed.http_server import HttpServer, ResponseFault
from tests.support.fetches import DATA, FILENAME, make_remote_file

BLOCK = 1 << 16
UNSIZED = [{"ignore_range": True, "chunked": True}, {"ignore_range": True, "omit_length": True}]


@pytest.fixture
def checksums(folder: Path) -> BlockChecksums:
    return make_checksums(folder / FILENAME, BLOCK)


def corrupt_responses(position: int | None) -> list[ResponseFault]:
    """Responses of unknown length that are all corrupt at a position; None: not corrupt."""
    return [ResponseFault(ignore_range=True, chunked=True, corrupt_offset=position)] * 99


def download(url: str, target: Path, checksums: BlockChecksums, retry_timeout_s: float = 5.0) -> FetchResult:
    return fetch(
        make_remote_file(url),
        target,
        str,
        retry_timeout_s=retry_timeout_s,
        check_cancelled=lambda: None,
        on_progress=lambda done, total: None,
        checksums=checksums,
    )


def read_in_order(url: str, checksums: BlockChecksums) -> bytes:
    def ignore(*_: object) -> None: ...

    with OrderedDownload(
        make_remote_file(url),
        str,
        retry_timeout_s=0.0,
        check_cancelled=ignore,
        on_progress=ignore,
        checksums=checksums,
    ) as stream:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))


@pytest.mark.parametrize("fault_options", UNSIZED)
def test_download_of_unknown_size(folder, target, checksums, fault_options):
    with HttpServer(folder, faults=[ResponseFault(**fault_options)]) as server:
        result = download(f"{server.url}/{FILENAME}", target, checksums)
    assert target.read_bytes() == DATA
    assert (result.verified_by, result.retries) == ("checksums", 0)


@pytest.mark.parametrize("offset", [0, 3 * BLOCK + 5, len(DATA) - 1])
@pytest.mark.parametrize("fault_options", UNSIZED)
def test_checksums_detect_wrong_byte(folder, target, checksums, fault_options, offset):
    with HttpServer(folder, faults=[ResponseFault(**fault_options, corrupt_offset=offset)]) as server:
        result = download(f"{server.url}/{FILENAME}", target, checksums)
    assert target.read_bytes() == DATA
    assert (result.verified_by, result.retries) == ("checksums", 1)


def test_always_corrupt(folder, target, checksums):
    with HttpServer(folder, faults=corrupt_responses(5)) as server, pytest.raises(FailedError) as error:
        download(f"{server.url}/{FILENAME}", target, checksums, retry_timeout_s=0.0)
    assert error.value.kind == "digest_mismatch"
    assert not target.exists()


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1, 10 * BLOCK, len(DATA) + BLOCK])
def test_size_differs_from_checksums(folder, target, checksums, size):
    (folder / FILENAME).write_bytes((DATA + DATA)[:size])
    with HttpServer(folder, faults=corrupt_responses(None)) as server, pytest.raises(FailedError) as error:
        download(f"{server.url}/{FILENAME}", target, checksums, retry_timeout_s=0.0)
    assert error.value.kind == "unexpected_content"
    assert str(checksums.size) in error.value.detail


@pytest.mark.parametrize("fault_options", UNSIZED)
def test_ordered_download(folder, checksums, fault_options):
    with HttpServer(folder, faults=[ResponseFault(**fault_options)]) as server:
        assert read_in_order(f"{server.url}/{FILENAME}", checksums) == DATA


@pytest.mark.parametrize("offset", [0, len(DATA) - 1])
def test_ordered_download_never_delivers_wrong_byte(folder, checksums, offset):
    """Bytes that were delivered cannot be taken back, so the download must fail."""
    with HttpServer(folder, faults=corrupt_responses(offset)) as server, pytest.raises(FailedError):
        read_in_order(f"{server.url}/{FILENAME}", checksums)


@pytest.mark.parametrize("is_corrupt", [False, True])
def test_gzip_encoded_body(folder, target, checksums, is_corrupt):
    body = bytearray(DATA)
    body[100_000] ^= is_corrupt
    compressed = ResponseFault(
        status=200, html_body=gzip.compress(bytes(body), 1), headers={"Content-Encoding": "gzip"}
    )
    with HttpServer(folder, faults=[compressed]) as server:
        result = download(f"{server.url}/{FILENAME}", target, checksums)
    assert target.read_bytes() == DATA
    assert result.retries == int(is_corrupt)


@pytest.mark.parametrize(("name", "is_decoded"), [("data.csv", True), ("data.tar.gz", False)])
def test_gzip_file_is_not_decoded(folder, target, name, is_decoded):
    """Many servers label every .gz file as gzip-encoded."""
    compressed = gzip.compress(DATA, 1)
    (folder / name).write_bytes(compressed)
    with HttpServer(
        folder, headers={"Content-Encoding": "gzip"}, faults=[ResponseFault(ignore_range=True)] * 9
    ) as server:
        remote_file = RemoteFile(name, (Location(f"{server.url}/{name}"),))
        fetch(
            remote_file,
            target,
            str,
            retry_timeout_s=5.0,
            check_cancelled=lambda: None,
            on_progress=lambda done, total: None,
        )
    assert target.read_bytes() == (DATA if is_decoded else compressed)
