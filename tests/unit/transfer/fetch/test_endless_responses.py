"""Servers whose response never ends, though they are never silent: every operation ends by its retry timeout."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Location, Output, S3Access
from packtrain.transfer.backends.s3.backend import S3Backend
from packtrain.transfer.fetch import fetch
from packtrain.transfer.ordered_download import OrderedDownload
from packtrain.transfer.retry import retry
from packtrain.transfer.upload import upload_folder
from tests.support.fetches import fetch_error, make_remote_file
from tests.support.hostile_server import CHUNKED, DRIP_INTERVAL_S, OK, HostileServer, dripped

RETRY_TIMEOUT_S = 1.0
UNFINISHED = "did not complete its response within the retry timeout"
BODY = b"400\r\n" + b"y" * 1024 + b"\r\n"

ENDLESS_HEADS = {
    "dripped": lambda: dripped(itertools.chain(OK, b"X: ", itertools.repeat(ord("x")))),
    "100 Continue": lambda: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n"),
}
ENDLESS_BODIES = {
    "chunks": lambda: itertools.chain([CHUNKED], itertools.repeat(b"1\r\nx\r\n")),
    "no length": lambda: itertools.chain([OK + b"\r\n"], itertools.repeat(b"x")),
    "trailers": lambda: itertools.chain([CHUNKED + BODY + b"0\r\n"], itertools.repeat(b"X: y\r\n")),
    "empty gzip members": lambda: itertools.chain(
        [OK + b"Content-Encoding: gzip\r\n\r\n"], itertools.repeat(gzip.compress(b""))
    ),
}
heads = pytest.mark.parametrize("name", ENDLESS_HEADS)
all_responses = pytest.mark.parametrize("name", [*ENDLESS_HEADS, *ENDLESS_BODIES])


def serve(name: str) -> HostileServer:
    return HostileServer((ENDLESS_HEADS | ENDLESS_BODIES)[name], DRIP_INTERVAL_S)


@all_responses
def test_fetch(name: str, target: Path):
    with serve(name) as server:
        error = fetch_error(make_remote_file(server.url), target, RETRY_TIMEOUT_S)
    assert error.kind == "service_unavailable"
    assert "sent no data for 1" in error.detail or "sent less than 16.4 kB in 1 s" in error.detail
    assert not list(target.parent.glob("*.part"))


@all_responses
def test_fetch_in_order(name: str):
    with serve(name) as server, pytest.raises(TransferError, match=r"sent no data for 1|sent less than 16\.4 kB in 1"):
        read_in_order(server.url)


def read_in_order(url: str, retry_timeout_s: float = RETRY_TIMEOUT_S) -> None:
    with OrderedDownload(
        make_remote_file(url),
        str,
        retry_timeout_s=retry_timeout_s,
        check_cancelled=lambda: None,
        on_progress=lambda done, total: None,
    ) as stream:
        while stream.read(1 << 16):
            pass


@all_responses
def test_list_in_s3(name: str):
    with serve(name) as server, pytest.raises(TransferError, match=UNFINISHED) as caught:
        location = Location("s3://bucket/folder", s3=S3Access("us-east-1", server.url.rpartition("/")[0]))
        retry(lambda: list(S3Backend(str).list(location)), RETRY_TIMEOUT_S, lambda: None)
    assert caught.value.kind == "service_unavailable"


@heads
def test_upload(name: str, tmp_path: Path):
    with serve(name) as server:
        error = upload_error(tmp_path, server.url)
    assert error.kind == "upload_failed" and UNFINISHED in error.detail


def upload_error(folder: Path, url: str) -> FailedError:
    with pytest.raises(FailedError) as caught:
        upload(folder, url)
    return caught.value


def upload(folder: Path, url: str) -> str:
    (folder / "result.json").write_text("{}")
    result = upload_folder(
        folder,
        Output(Location(url)),
        str,
        check_cancelled=lambda: None,
        on_progress=lambda done, total: None,
        retry_timeout_s=RETRY_TIMEOUT_S,
    )
    return result.answer


@pytest.mark.parametrize("name", ["chunks", "no length"])
def test_upload_with_an_endless_answer(name: str, tmp_path: Path):
    """The status says that the file is stored; the rest of the answer does not matter."""
    with serve(name) as server:
        assert upload(tmp_path, server.url) == ""


def test_status_of_a_response_with_an_endless_body(target: Path):
    head = b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = lambda: itertools.chain([head], itertools.repeat(b"1\r\nx\r\n"))  # noqa: E731
    with HostileServer(pieces, DRIP_INTERVAL_S) as server:
        assert fetch_error(make_remote_file(server.url), target, RETRY_TIMEOUT_S).kind == "object_missing"
        location = Location("s3://bucket/x", s3=S3Access("us-east-1", server.url.rpartition("/")[0]))
        with pytest.raises(TransferError, match="returned 404"):
            S3Backend(str).open(location)


def endless(head: bytes, piece: bytes) -> Iterable[bytes]:
    return itertools.chain([head], itertools.repeat(piece))


BOMB = gzip.compress(bytes(1 << 24))


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (OK + b"\r\n", bytes(1 << 16)),
        (CHUNKED, b"10000\r\n" + bytes(1 << 16) + b"\r\n"),
        (OK + b"Content-Encoding: gzip\r\n\r\n", BOMB),
    ],
    ids=["no length", "chunked", "gzip bomb"],
)
def test_disk_limit(head: bytes, piece: bytes, target: Path):
    with HostileServer(lambda: endless(head, piece)) as server, pytest.raises(FailedError) as caught:
        fetch(
            make_remote_file(server.url),
            target,
            str,
            retry_timeout_s=RETRY_TIMEOUT_S,
            check_cancelled=lambda: None,
            on_progress=lambda done, total: None,
            max_unsized_bytes=1 << 22,
        )
    assert caught.value.kind == "archive_too_large"
    assert "its server did not announce a length" in caught.value.detail
    assert "larger than the disk limit of 4194304 bytes" in caught.value.detail
    assert not list(target.parent.iterdir())


def test_longer_than_planned(target: Path):
    """The size is known from the plan, so that the body need not be received until the disk is full."""
    with HostileServer(lambda: endless(CHUNKED, b"10000\r\n" + bytes(1 << 16) + b"\r\n")) as server:
        error = fetch_error(make_remote_file(server.url, size=1 << 20), target)
    assert error.kind == "unexpected_content"
    assert "sent more than the 1048576 bytes" in error.detail


def test_absurd_size_is_not_allocated():
    head = b"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: bytes 0-4/9999999999999999999\r\n\r\n"
    with HostileServer(lambda: [head + b"12345"]) as server, pytest.raises(TransferError, match="which is too much"):
        read_in_order(server.url, retry_timeout_s=0.0)
