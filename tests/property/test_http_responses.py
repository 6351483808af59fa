"""Heads and bodies of responses are read correctly, wherever the network splits them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPException, IncompleteRead
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.transfer.http.connection import Http11Connection
from packtrain.transfer.http.headers import Headers

names = st.text("ABCdef-", min_size=1, max_size=12).map(lambda name: "X-" + name)
values = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30)


@settings(deadline=None)
@given(status=st.integers(200, 599), fields=st.dictionaries(names, values, max_size=8), version=st.sampled_from("01"))
def test_response_head(status, fields, version):
    lines = [f"HTTP/1.{version} {status} Some reason", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    with receiving("\r\n".join(lines).encode(), []) as connection:
        response = connection.getresponse()
    assert (response.status, response.reason) == (status, "Some reason")
    headers = Headers(response.headers.items())
    for name, value in fields.items():
        assert headers.get(name) == value or name.lower() in {n.lower() for n in fields if n != name}


head_bytes = st.binary(max_size=60) | st.sampled_from(
    [b"HTTP/1.1 ", b"200 OK", b"\r\n", b"\n", b"Content-Length: ", b"Transfer-Encoding: ", b"chunked", b"7", b"-", b":"]
)


@settings(deadline=None)
@given(parts=st.lists(head_bytes, max_size=12), prefix=st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n"]))
def test_any_bytes_as_response(parts, prefix):
    """Every response is read, or rejected as one that is not HTTP, dropped or truncated."""
    with receiving(prefix + b"".join(parts), []) as connection:
        try:
            response = connection.getresponse()
            read_all(response, 100)
        except (HTTPException, ConnectionError):
            return
    assert 101 <= response.status <= 999


@contextlib.contextmanager
def receiving(data: bytes, cuts: list, pair=socket.socketpair) -> Iterator[Http11Connection]:
    """Yield a connection on which a request was sent, and which receives the data in pieces."""
    client, server_side = pair()
    thread = threading.Thread(target=send, args=(server_side, data, cuts), daemon=True)
    connection = Http11Connection(client)
    connection.request("GET", "/x")
    thread.start()
    try:
        yield connection
    finally:
        connection.close()
        thread.join()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Return a pair of connected sockets, as to a nearby server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return socket.create_connection(server.getsockname()), server.accept()[0]


def make_response(body: bytes, framing: str, cuts: list) -> bytes:
    if framing == "sized":
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    if framing == "until close":
        return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body
    edges = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    chunks = [body[a:b] for a, b in pairwise(edges) if a < b]
    framed = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\nX-Transfer-Status: 200: OK\r\n\r\n"
    )


@settings(max_examples=60, deadline=None)
@given(
    body=st.binary(max_size=3000),
    framing=st.sampled_from(["sized", "chunked", "until close"]),
    cuts=st.lists(st.integers(0, 4000), max_size=6),
    buffer_size=st.integers(1, 2000),
    short=st.booleans(),
    pair=st.sampled_from([socket.socketpair, tcp_pair]),
)
def test_body_is_complete_or_truncated(body, framing, cuts, buffer_size, short, pair):
    data = make_response(body, framing, cuts)
    short = short and framing != "until close" and bool(body)
    with receiving(data[:-1] if short else data, cuts, pair) as connection:
        response = connection.getresponse()
        if short:
            with pytest.raises(IncompleteRead):
                read_all(response, buffer_size)
        else:
            assert read_all(response, buffer_size) == body
            assert (response.keep_alive and response.is_complete()) == (framing != "until close")
            assert response.trailers.get("X-Transfer-Status") == ("200: OK" if framing == "chunked" else None)


def send(sock: socket.socket, data: bytes, cuts: list) -> None:
    with sock, contextlib.suppress(OSError):
        sock.recv(1 << 16)
        edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
        for first, stop in pairwise(edges):
            sock.sendall(data[first:stop])


def read_all(response, buffer_size: int) -> bytes:
    received, view = b"", memoryview(bytearray(buffer_size))
    while True:
        count = response.readinto(view)
        if not count:
            return received
        received += bytes(view[:count])
