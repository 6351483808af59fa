"""Heads and bodies of responses are read correctly, wherever the network splits them."""

from __future__ import annotations

import socket
import threading
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.transfer.http.connection import (
    Http11Connection,
    RemoteProtocolError,
    TruncatedBodyError,
    parse_response_head,
)
from packtrain.transfer.http.response_body import make_response_body

names = st.text("ABCdef-", min_size=1, max_size=12).map(lambda name: "X-" + name)
values = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30)


@settings(deadline=None)
@given(status=st.integers(200, 599), fields=st.dictionaries(names, values, max_size=8), version=st.sampled_from("01"))
def test_response_head(status, fields, version):
    lines = [f"HTTP/1.{version} {status} Some reason", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    head = parse_response_head("\r\n".join(lines).encode())
    assert (head.status, head.reason, head.keep_alive) == (status, "Some reason", version == "1")
    for name, value in fields.items():
        assert head.headers.get(name) == value or name.lower() in {n.lower() for n in fields if n != name}


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_as_response_head(data):
    try:
        head = parse_response_head(data)
    except RemoteProtocolError:
        return
    assert 0 <= head.status <= 999


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
    client, server_side = pair()
    threading.Thread(target=send, args=(server_side, data[:-1] if short else data, cuts), daemon=True).start()
    conn = Http11Connection(client)
    try:
        head = conn.read_response_head()
        response_body = make_response_body(conn, head, "GET", head.headers)
        if short:
            with pytest.raises(TruncatedBodyError):
                read_all(response_body, buffer_size)
        else:
            assert read_all(response_body, buffer_size) == body
            assert response_body.can_reuse_connection() == (framing != "until close")
            assert head.headers.get("X-Transfer-Status") == ("200: OK" if framing == "chunked" else None)
    finally:
        conn.close()


def send(sock: socket.socket, data: bytes, cuts: list) -> None:
    with sock:
        edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
        for first, stop in pairwise(edges):
            sock.sendall(data[first:stop])


def read_all(body, buffer_size: int) -> bytes:
    received, view = b"", memoryview(bytearray(buffer_size))
    while True:
        count = body.readinto(view)
        if not count:
            return received
        received += bytes(view[:count])
