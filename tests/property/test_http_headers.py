"""Headers and bodies are read the same, however the network cuts them into pieces."""

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
def test_a_header_is_parsed(status, fields, version):
    lines = [f"HTTP/1.{version} {status} Some words", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    head = parse_response_head("\r\n".join(lines).encode())
    assert (head.status, head.reason, head.keep_alive) == (status, "Some words", version == "1")
    for name, value in fields.items():
        assert head.headers.get(name) == value or name.lower() in {n.lower() for n in fields if n != name}


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_anything_else_is_refused_cleanly(data):
    try:
        head = parse_response_head(data)
    except RemoteProtocolError:
        return
    assert 0 <= head.status <= 999


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """As to a server nearby."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return socket.create_connection(server.getsockname()), server.accept()[0]


def answer(body: bytes, form: str, cuts: list) -> bytes:
    if form == "sized":
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    if form == "to the end":
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
    form=st.sampled_from(["sized", "chunked", "to the end"]),
    cuts=st.lists(st.integers(0, 4000), max_size=6),
    room=st.integers(1, 2000),
    short=st.booleans(),
    pair=st.sampled_from([socket.socketpair, tcp_pair]),
)
def test_a_body_is_read_to_its_end_or_told_to_be_short(body, form, cuts, room, short, pair):
    data = answer(body, form, cuts)
    short = short and form != "to the end" and bool(body)
    ours, theirs = pair()
    threading.Thread(target=send, args=(theirs, data[:-1] if short else data, cuts), daemon=True).start()
    wire = Http11Connection(ours)
    try:
        head = wire.read_response_head()
        read = make_response_body(wire, head, "GET", head.headers)
        if short:
            with pytest.raises(TruncatedBodyError):
                everything(read, room)
        else:
            assert everything(read, room) == body
            assert read.can_reuse_connection() == (form != "to the end")
            assert head.headers.get("X-Transfer-Status") == ("200: OK" if form == "chunked" else None)
    finally:
        wire.close()


def send(sock: socket.socket, data: bytes, cuts: list) -> None:
    with sock:
        edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
        for first, stop in pairwise(edges):
            sock.sendall(data[first:stop])


def everything(body, room: int) -> bytes:
    got, view = b"", memoryview(bytearray(room))
    while True:
        count = body.readinto(view)
        if not count:
            return got
        got += bytes(view[:count])
