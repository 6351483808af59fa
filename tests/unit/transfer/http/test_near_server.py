"""Connections to nearby servers: few wakeups through SO_RCVLOWAT."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from packtrain.plan import Location
from packtrain.transfer.api import ByteRange
from packtrain.transfer.backends.http import HttpBackend
from packtrain.transfer.http import connection
from packtrain.transfer.http.connection import Http11Connection, ResponseHead
from packtrain.transfer.http.pool import connection_pool
from packtrain.transfer.http.response_body import make_response_body
from testbed.http_server import HttpServer

LOW_WATER = connection._MAX_LOW_WATER_BYTES
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
SIZES = [1, 1000, LOW_WATER - 1, LOW_WATER, LOW_WATER + 1, 3 * LOW_WATER + 7, 20 * LOW_WATER]


@pytest.fixture(autouse=True)
def nearby(monkeypatch) -> None:
    """Treat every server as nearby, even on a busy machine. A wait for too many bytes runs into the test's timeout."""
    monkeypatch.setattr(connection, "_MAX_NEARBY_RTT_S", 60.0)
    monkeypatch.setattr(connection, "POLL_INTERVAL_S", 20.0)


@contextlib.contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client, server_side = socket.create_connection(server.getsockname()), server.accept()[0]
    with client, server_side:
        yield client, server_side


class CountingPoller:
    """Records for each wait whether data arrived before the timeout."""

    def __init__(self, sock: socket.socket) -> None:
        self._poll, self.has_data = select.poll(), list[bool]()
        self._poll.register(sock, select.POLLIN)

    def poll(self, milliseconds: float) -> None:
        self.has_data.append(bool(self._poll.poll(milliseconds)))


def start_sender(server_side: socket.socket, size: int, write_size: int) -> threading.Thread:
    def send() -> None:
        server_side.sendall(HEAD % size)
        for begin in range(0, size, write_size):
            server_side.sendall(b"x" * min(write_size, size - begin))

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def read_response(conn: Http11Connection, buffer_size: int) -> int:
    return read_body(conn, conn.read_response_head(), buffer_size)


def read_body(conn: Http11Connection, head: ResponseHead, buffer_size: int) -> int:
    body, view, total = make_response_body(conn, head, "GET", head.headers), memoryview(bytearray(buffer_size)), 0
    while count := body.readinto(view):
        total += count
    return total


@pytest.mark.parametrize("write_size", [1000, 1 << 20])
@pytest.mark.parametrize("buffer_size", [7000, 1 << 18, 1 << 20])
@pytest.mark.parametrize("size", SIZES)
def test_waits_end_with_the_body(size, buffer_size, write_size):
    """The connection remains open after the body, and the next response head is far shorter than the low-water mark."""
    with connected() as (client, server_side):
        conn = Http11Connection(client)
        conn._poller = poller = CountingPoller(client)
        for _ in range(2):
            sender = start_sender(server_side, size, write_size)
            assert read_response(conn, buffer_size) == size
            sender.join()
    assert all(poller.has_data)


def test_low_water_is_reset_for_the_head():
    with connected() as (client, server_side):
        conn = Http11Connection(client)
        for _ in range(2):
            sender = start_sender(server_side, 3 * LOW_WATER, 1000)
            head = conn.read_response_head()
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
            assert read_body(conn, head, 1 << 18) == 3 * LOW_WATER
            sender.join()


def test_wakeups_are_few():
    """The server writes 2000 bytes at a time. One wakeup per write would be thousands."""
    size = 20 * LOW_WATER
    with connected() as (client, server_side):
        conn = Http11Connection(client)
        conn._poller = poller = CountingPoller(client)
        sender = start_sender(server_side, size, 2000)
        assert read_response(conn, 1 << 18) == size
        sender.join()
    assert len(poller.has_data) <= 2 * size // LOW_WATER


def test_few_bytes_are_returned_after_the_poll_interval(monkeypatch):
    monkeypatch.setattr(connection, "POLL_INTERVAL_S", 0.1)
    with connected() as (client, server_side):
        conn, buffer = Http11Connection(client), memoryview(bytearray(1 << 20))
        server_side.sendall(HEAD % 9_999_999)
        assert conn.read_response_head().status == 200
        server_side.sendall(b"bytes")
        assert conn.readinto(buffer, 9_999_999) == 5


def test_closed_connection_is_noticed():
    with connected() as (client, server_side):
        conn, buffer = Http11Connection(client), memoryview(bytearray(1 << 20))
        server_side.sendall(HEAD % 9_999_999 + b"bytes")
        conn.read_response_head()
        server_side.close()
        assert conn.readinto(buffer, 9_999_999) == 5
        assert conn.readinto(buffer, 9_999_994) == 0


class SocketWithoutLowWater(socket.socket):
    def setsockopt(self, level, name, value) -> None:
        if name == socket.SO_RCVLOWAT:
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")
        super().setsockopt(level, name, value)


def test_kernel_without_low_water():
    with connected() as (client, server_side), SocketWithoutLowWater(fileno=client.detach()) as sock:
        sender = start_sender(server_side, 3 * LOW_WATER, 1000)
        assert read_response(Http11Connection(sock), 1 << 18) == 3 * LOW_WATER
        sender.join()


def connections_for(origin: HttpServer, n_ranges: int, length: int) -> int:
    """Return how many connections were made for `n_ranges` requests, one after the other."""
    backend = HttpBackend(str)
    origin.requests.clear()
    with connection_pool():
        for number in range(n_ranges):
            stream = backend.open(Location(f"{origin.url}/data.bin"), ByteRange(number * length, (number + 1) * length))
            while stream.read(1 << 20):
                pass
            stream.close()
    return len({request.client_address for request in origin.requests})


def test_nearby_connection_is_replaced_after_many_bytes(tmp_path: Path, monkeypatch):
    (tmp_path / "data.bin").write_bytes(bytes(1 << 20))
    monkeypatch.setattr(connection, "_MAX_CONNECTION_BYTES", 300_000)
    with HttpServer(tmp_path) as origin:
        assert connections_for(origin, 5, 1000) == 1
        assert connections_for(origin, 4, 1 << 18) == 2


def test_distant_connection_is_reused(tmp_path: Path, monkeypatch):
    (tmp_path / "data.bin").write_bytes(bytes(1 << 20))
    monkeypatch.setattr(connection, "_MAX_CONNECTION_BYTES", 300_000)
    monkeypatch.setattr(connection, "_MAX_NEARBY_RTT_S", 0.0)
    with HttpServer(tmp_path) as origin:
        assert connections_for(origin, 4, 1 << 18) == 1
