"""Servers that are broken on purpose: every response ends, within limits of time and memory, and is not misread."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import logging
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPException, IncompleteRead

import pytest

from packtrain.errors import TransferError
from packtrain.plan import Location
from packtrain.transfer.api import ByteRange
from packtrain.transfer.backends.http import HttpBackend
from packtrain.transfer.http.client import Request, send_request
from packtrain.transfer.http.connection import Http11Connection
from packtrain.transfer.http.headers import MAX_RETRY_AFTER_S
from packtrain.transfer.http.pool import connection_pool
from packtrain.transfer.http.socket_stream import MAX_HEAD_BYTES, RemoteProtocolError
from packtrain.transfer.tasks.cancellation import cancellation_scope
from tests.support.hostile_server import CHUNKED, DRIP_INTERVAL_S, OK, HostileServer, dripped


def read(url: str) -> bytes:
    with contextlib.closing(HttpBackend(str).open(Location(url))) as stream:
        return b"".join(iter(lambda: stream.read(1 << 16), b""))


def read_error(*pieces: bytes) -> TransferError:
    with HostileServer(lambda: pieces) as server, pytest.raises(TransferError) as caught:
        read(server.url)
    assert caught.value.detail.isprintable()
    return caught.value


def rejection(*pieces: bytes) -> str:
    error = read_error(*pieces)
    assert error.kind == "service_unavailable"
    return error.detail


# Heads


@pytest.mark.parametrize("status", [b"100 Continue", b"102 Processing", b"103 Early Hints"])
def test_interim_responses_are_skipped(status):
    interim = b"HTTP/1.1 " + status + b"\r\nLink: </x>\r\n\r\n"
    with HostileServer(lambda: [interim * 3, OK + b"Content-Length: 4\r\n\r\nbody"]) as server:
        assert read(server.url) == b"body"


@pytest.mark.parametrize("status", [b"100 Continue", b"103 Early Hints"])
def test_endless_interim_responses(status):
    interim = b"HTTP/1.1 " + status + b"\r\n\r\n"
    with HostileServer(lambda: itertools.repeat(interim)) as server, pytest.raises(TransferError) as caught:
        read(server.url)
    assert f"its head is longer than {MAX_HEAD_BYTES} bytes" in caught.value.detail


@pytest.mark.parametrize(
    "head",
    [
        OK + b"X: " + b"x" * MAX_HEAD_BYTES,
        b"HTTP/1.1 200 " + b"x" * MAX_HEAD_BYTES,
        OK + b"X: y\r\n" * 99_999,
        OK + b" folded\r\n" * 99_999,
    ],
)
def test_huge_head(head):
    assert "is not" in rejection(head)


@pytest.mark.parametrize(
    "drip",
    [
        lambda: dripped(itertools.chain(OK, b"X: ", itertools.repeat(ord("x")))),
        lambda: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n"),
        lambda: itertools.chain([OK], itertools.repeat(b"X: y\r\n")),
        lambda: dripped(itertools.chain(b"HTTP/1.1 200 ", itertools.repeat(ord(" ")))),
    ],
)
def test_dripped_head(drip):
    """A head that never ends is rejected although the server is never silent."""
    with (
        HostileServer(drip, DRIP_INTERVAL_S) as server,
        connection_to(server, head_timeout_s=0.2) as connection,
        pytest.raises(RemoteProtocolError, match=r"its head takes longer than 0\.2 s"),
    ):
        connection.getresponse()


def test_dripped_head_can_be_cancelled():
    class CancelledError(Exception):
        pass

    def check_cancelled() -> None:
        raise CancelledError

    with (
        HostileServer(lambda: dripped(itertools.cycle(OK)), DRIP_INTERVAL_S) as server,
        cancellation_scope(check_cancelled),
        pytest.raises(CancelledError),
    ):
        read(server.url)


def test_slow_head_is_accepted():
    """The limit begins with the first byte: a server may take its time to begin."""
    with HostileServer(lambda: dripped(OK + b"Content-Length: 2\r\n\r\nab"), DRIP_INTERVAL_S) as server:
        assert read(server.url) == b"ab"


def test_next_head_has_a_limit_of_its_own():
    pieces = itertools.chain([OK + b"Content-Length: 0\r\n\r\n"], [b""] * 30, [OK + b"\r\n"])
    with (
        HostileServer(lambda: pieces, DRIP_INTERVAL_S) as server,
        connection_to(server, head_timeout_s=0.2) as connection,
    ):
        response = connection.getresponse()
        assert response.readinto(memoryview(bytearray(9))) == 0
        connection.request("GET", "/x")
        assert connection.getresponse().status == 200


@contextlib.contextmanager
def connection_to(server: HostileServer, **options: float) -> Iterator[Http11Connection]:
    host, _, port = server.url.split("/")[2].partition(":")
    connection = Http11Connection(socket.create_connection((host, int(port))), **options)
    connection.request("GET", "/x")
    with contextlib.closing(connection):
        yield connection


@pytest.mark.parametrize(
    "length",
    [
        b"-5",
        b"+5",
        b"0x5",
        b"1_0",
        b"5, 6",
        b"5, 5",
        b"five",
        b"5.0",
        b"9" * 5000,
        b"9" * 20,
        b"5\r\nContent-Length: 6",
    ],
)
def test_invalid_content_length(length):
    assert "its length is invalid" in rejection(OK + b"Content-Length: " + length + b"\r\n\r\n12345")


def test_repeated_content_length():
    with HostileServer(lambda: [OK + b"Content-Length: 5\r\ncontent-length: 5\r\n\r\n12345"]) as server:
        assert read(server.url) == b"12345"


@pytest.mark.parametrize(
    "encoding", [b"gzip, chunked", b"gzip", b"xchunked", b"chunked\r\nTransfer-Encoding: chunked", b"chunked, identity"]
)
def test_unknown_transfer_encoding(encoding):
    head = OK + b"Transfer-Encoding: " + encoding + b"\r\n\r\n"
    assert "its transfer encoding is not supported" in rejection(head + b"4\r\nbody\r\n0\r\n\r\n")


def test_length_of_chunked_body_is_ignored():
    """The chunks count; the false length is not taken for the size of the object. The connection is not reused."""
    head = OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    with HostileServer(lambda: [head + b"4\r\nbody\r\n0\r\n\r\n"]) as server:
        stream = HttpBackend(str).open(Location(server.url))
        assert stream.info.size is None
        stream.close()
        assert read(server.url) == b"body"
        with connection_to(server) as connection:
            assert not connection.getresponse().keep_alive


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b": value",
        b"Content-Length : 5",
        b"X\x01Y: z",
        b"X: y\r\nFrom somebody",
        b"X: a\rContent-Length: 5",
        b"X: a\0b",
    ],
)
def test_malformed_header(line):
    """http.client would drop the headers after such a line, and with them the length of the body."""
    detail = rejection(OK + line + b"\r\nContent-Length: 9\r\n\r\n12345")
    assert "a header is malformed" in detail or "control characters" in detail


def test_multipart_content_type_is_no_malformed_header():
    head = OK + b"Content-Type: multipart/byteranges; boundary=x\r\nContent-Length: 4\r\n\r\n"
    with HostileServer(lambda: [head + b"body"]) as server:
        assert read(server.url) == b"body"


@pytest.mark.parametrize(
    "head", [OK, OK + b"Content-Le", OK + b"X: y\r\n", b"HTTP/1.1 200 OK", b"HTTP/1.1 100 C\r\n\r\n"]
)
def test_connection_ends_within_the_head(head):
    """It is not a response without headers, whose body would be empty."""
    assert "its head is truncated" in rejection(head)


@pytest.mark.parametrize(
    "start",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2x0 ?\r\n\r\n",
        b"HTTP/1.1 099 x\r\n\r\n",
        b"HTTP/1.1 \r\n\r\n",
        b"\r\n\r\n",
        b"\n",
    ],
)
def test_response_is_not_http(start):
    assert rejection(start).endswith("is not HTTP")


def test_no_response():
    assert rejection(b"").endswith("dropped the connection")


def test_control_characters_in_the_reason():
    detail = rejection(b"HTTP/1.1 503 \x1b[2J\x07 \x9b31m busy " + b"!" * 9999 + b"\r\nContent-Length: 0\r\n\r\n")
    assert "returned 503" in detail and "busy !!!" in detail
    assert len(detail) < 500


def test_control_characters_in_the_location():
    head = b"HTTP/1.1 302 Found\r\nLocation: http://[\x1b[2J\r\nContent-Length: 0\r\n\r\n"
    assert "redirects to an invalid URL" in rejection(head)


def test_folded_header():
    with HostileServer(lambda: [OK + b'ETag: "a\r\n  b"\r\nContent-Length: 0\r\n\r\n']) as server:
        etag = HttpBackend(str).stat(Location(server.url)).etag
    assert etag is not None and etag.split() == ['"a', 'b"']


def test_huge_numbers_in_headers():
    digits = b"9" * 5000
    head = b"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: bytes 0-4/" + digits + b"\r\n\r\n"
    with (
        HostileServer(lambda: [head + b"12345"]) as server,
        pytest.raises(TransferError, match="returned another byte range"),
    ):
        HttpBackend(str).open(Location(server.url), ByteRange(0, 5))
    busy = read_error(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: " + digits + b"\r\n\r\n")
    assert busy.retry_after_s == MAX_RETRY_AFTER_S


# Bodies


@pytest.mark.parametrize("size", [b"x", b"", b"4;" + b"e" * MAX_HEAD_BYTES])
def test_invalid_chunk(size):
    error = read_error(CHUNKED + size + b"\r\nbody\r\n0\r\n\r\n")
    assert error.kind in ("service_unavailable", "truncated")


def test_negative_chunk():
    assert "the length of a chunk is negative" in rejection(CHUNKED + b"-5\r\nbody\r\n0\r\n\r\n")


def test_slow_chunks_are_accepted():
    """The time limit applies to each chunk size, not to the body."""
    pieces = [CHUNKED, *[b"4\r\nbody\r\n"] * 40, b"0\r\n\r\n"]
    with (
        HostileServer(lambda: pieces, DRIP_INTERVAL_S) as server,
        connection_to(server, head_timeout_s=0.2) as connection,
    ):
        response, buffer, n_bytes = connection.getresponse(), memoryview(bytearray(99)), 0
        while count := response.readinto(buffer):
            n_bytes += count
    assert n_bytes == 160


def test_connection_with_a_misread_body_is_not_used_again():
    broken = itertools.chain([CHUNKED + b"x\r\n"], itertools.repeat(b""))
    answers = iter([broken, [OK + b"Content-Length: 4\r\n\r\nbody"]])
    with HostileServer(lambda: next(answers), DRIP_INTERVAL_S) as server, connection_pool():
        with pytest.raises(TransferError):
            read(server.url)
        assert read(server.url) == b"body"


@pytest.mark.parametrize("end", [b"", b"0", b"0\r\n", b"0\r\nX: y\r\n", b"0\r\nX: y\r\n\r"])
def test_chunked_body_without_end(end):
    assert read_error(CHUNKED + b"4\r\nbody\r\n" + end).kind == "truncated"


@pytest.mark.parametrize("trailer", [b"X: y\r\n", b"X: " + b"y" * 9999 + b"\r\n", b"x" * 9999])
def test_endless_trailers(trailer):
    with (
        HostileServer(lambda: itertools.chain([CHUNKED + b"0\r\n"], itertools.repeat(trailer))) as server,
        pytest.raises(TransferError) as caught,
    ):
        read(server.url)
    assert caught.value.kind == "service_unavailable"


def test_dripped_trailers():
    pieces = itertools.chain([CHUNKED + b"0\r\n"], itertools.repeat(b"X"))
    with (
        HostileServer(lambda: pieces, DRIP_INTERVAL_S) as server,
        connection_to(server, head_timeout_s=0.2) as connection,
    ):
        response = connection.getresponse()
        with pytest.raises(HTTPException, match="its head takes longer"):
            response.readinto(memoryview(bytearray(100)))


def test_endless_chunked_body():
    """Each read returns, so that the caller can stop."""
    pieces = itertools.chain([CHUNKED], itertools.repeat(b"5\r\nbytes\r\n"))
    with HostileServer(lambda: pieces) as server:
        stream = HttpBackend(str).open(Location(server.url))
        received = b"".join(stream.read(7) for _ in range(1000))
        stream.close()
    assert received == (b"bytes" * len(received))[: len(received)] and len(received) >= 1000


def test_more_bytes_than_the_length():
    """The connection is not used again: the surplus would be taken for the next response."""
    forged = OK + b"Content-Length: 6\r\n\r\nforged"
    with HostileServer(lambda: [OK + b"Content-Length: 4\r\n\r\nbody" + forged]) as server, connection_pool():
        assert [read(server.url) for _ in range(3)] == [b"body"] * 3
    assert server.n_connections == 3


def test_surplus_that_arrives_late():
    may_send = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield OK + b"Content-Length: 4\r\n\r\nbody"
        may_send.wait(30)
        yield OK + b"Content-Length: 6\r\n\r\nforged"

    with HostileServer(pieces) as server, connection_to(server) as connection:
        response = connection.getresponse()
        assert response.readinto(memoryview(bytearray(9))) == 4
        assert connection.is_idle()
        may_send.set()
        while connection.is_idle():
            pass  # ends by the test's timeout


def test_false_length():
    with HostileServer(lambda: [OK + b"Content-Length: 9\r\n\r\nbody"]) as server, connection_to(server) as connection:
        response, buffer = connection.getresponse(), memoryview(bytearray(99))
        with pytest.raises(IncompleteRead):
            while response.readinto(buffer):
                pass


def test_decompression_bomb():
    """The body is decompressed in pieces of the requested size; the rest is not even received."""
    bomb = gzip.compress(bytes(1 << 26))
    head = OK + b"Content-Encoding: gzip\r\n\r\n"
    with HostileServer(lambda: itertools.chain([head], itertools.repeat(bomb))) as server:
        stream = HttpBackend(str).open(Location(server.url))
        assert [len(stream.read(1000)) for _ in range(100)] == [1000] * 100
        buffer = memoryview(bytearray(5000))
        assert 0 < stream.readinto(buffer) <= 5000
        stream.close()


def test_documents_are_limited():
    with HostileServer(lambda: itertools.chain([CHUNKED], itertools.repeat(b"5\r\nbytes\r\n"))) as server:
        response = send_request(Request(server.url))
        assert len(response.read_text(max_bytes=999)) == 999
        response.close()


# Logging


def test_debug_messages_have_no_secrets(caplog):
    caplog.set_level(logging.DEBUG, "packtrain.transfer.http")
    redirect = b"HTTP/1.1 302 Found\r\nLocation: /other?signature=s3cret\r\nContent-Length: 0\r\n\r\n"
    answers = iter([redirect, OK + b"Content-Length: 0\r\n\r\n"])
    with HostileServer(lambda: [next(answers)]) as server:
        url = server.url.replace("//", "//user:passw0rd@") + "?token=t0ken"
        HttpBackend(str).stat(Location(url, token="t0ken"))
    for text in (
        "connect to http://127.0.0.1",
        "HEAD http://127.0.0.1",
        "returned 302 Found",
        "redirects to",
        "200 OK",
    ):
        assert text in caplog.text
    for secret in ("s3cret", "passw0rd", "t0ken"):
        assert secret not in caplog.text
