"""Servers nearby: they may send a lot ahead, and whoever waits for them is woken for a lot, or for all that comes."""

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

MUCH = connection._MAX_LOW_WATER_BYTES
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
SIZES = [1, 1000, MUCH - 1, MUCH, MUCH + 1, 3 * MUCH + 7, 20 * MUCH]


@pytest.fixture(autouse=True)
def nearby(monkeypatch) -> None:
    """However busy this machine is; and whoever waits for more than will come waits until the test has failed."""
    monkeypatch.setattr(connection, "_MAX_NEARBY_RTT_S", 60.0)
    monkeypatch.setattr(connection, "POLL_INTERVAL_S", 20.0)


@contextlib.contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours, theirs = socket.create_connection(server.getsockname()), server.accept()[0]
    with ours, theirs:
        yield ours, theirs


class Polled:
    """Counts how often somebody waited, and whether that ended because bytes came."""

    def __init__(self, sock: socket.socket) -> None:
        self._poll, self.ends = select.poll(), list[bool]()
        self._poll.register(sock, select.POLLIN)

    def poll(self, milliseconds: float) -> None:
        self.ends.append(bool(self._poll.poll(milliseconds)))


def sent(theirs: socket.socket, size: int, piece: int) -> threading.Thread:
    def send() -> None:
        theirs.sendall(HEAD % size)
        for begin in range(0, size, piece):
            theirs.sendall(b"x" * min(piece, size - begin))

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def read_whole(line: Http11Connection, room: int) -> int:
    return read_body(line, line.read_response_head(), room)


def read_body(line: Http11Connection, head: ResponseHead, room: int) -> int:
    body, view, total = make_response_body(line, head, "GET", head.headers), memoryview(bytearray(room)), 0
    while count := body.readinto(view):
        total += count
    return total


@pytest.mark.parametrize("piece", [1000, 1 << 20])
@pytest.mark.parametrize("room", [7000, 1 << 18, 1 << 20])
@pytest.mark.parametrize("size", SIZES)
def test_nobody_waits_for_more_than_comes(size, room, piece):
    """The connection stays open behind the body; the next header is far shorter than what was waited for."""
    with connected() as (ours, theirs):
        line = Http11Connection(ours)
        line._poller = polled = Polled(ours)
        for _ in range(2):
            sending = sent(theirs, size, piece)
            assert read_whole(line, room) == size
            sending.join()
    assert all(polled.ends)


def test_a_header_is_taken_as_soon_as_it_is_here_however_much_was_waited_for_before():
    with connected() as (ours, theirs):
        line = Http11Connection(ours)
        for _ in range(2):
            sending = sent(theirs, 3 * MUCH, 1000)
            head = line.read_response_head()
            assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
            assert read_body(line, head, 1 << 18) == 3 * MUCH
            sending.join()


def test_whoever_waits_is_woken_for_a_lot():
    """The sender's pieces are small: one at a time would be five thousand waits."""
    size = 20 * MUCH
    with connected() as (ours, theirs):
        line = Http11Connection(ours)
        line._poller = polled = Polled(ours)
        sending = sent(theirs, size, 2000)
        assert read_whole(line, 1 << 18) == size
        sending.join()
    assert len(polled.ends) <= 2 * size // MUCH


def test_what_is_here_is_given_when_a_step_is_over(monkeypatch):
    monkeypatch.setattr(connection, "POLL_INTERVAL_S", 0.1)
    with connected() as (ours, theirs):
        line, room = Http11Connection(ours), memoryview(bytearray(1 << 20))
        theirs.sendall(HEAD % 9_999_999)
        assert line.read_response_head().status == 200
        theirs.sendall(b"crumb")
        assert line.readinto(room, 9_999_999) == 5


def test_a_server_that_closes_is_noticed_at_once():
    with connected() as (ours, theirs):
        line, room = Http11Connection(ours), memoryview(bytearray(1 << 20))
        theirs.sendall(HEAD % 9_999_999 + b"crumb")
        line.read_response_head()
        theirs.close()
        assert line.readinto(room, 9_999_999) == 5
        assert line.readinto(room, 9_999_994) == 0


class Refusing(socket.socket):
    def setsockopt(self, level, name, value) -> None:
        if name == socket.SO_RCVLOWAT:
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")
        super().setsockopt(level, name, value)


def test_a_kernel_that_cannot_wait_for_a_lot_is_read_as_it_can():
    with connected() as (ours, theirs), Refusing(fileno=ours.detach()) as refusing:
        sending = sent(theirs, 3 * MUCH, 1000)
        assert read_whole(Http11Connection(refusing), 1 << 18) == 3 * MUCH
        sending.join()


def connections_for(origin: HttpServer, spans: int, length: int) -> int:
    """How many were made for so many answers, one behind the other."""
    store = HttpBackend(str)
    origin.requests.clear()
    with connection_pool():
        for number in range(spans):
            stream = store.open(Location(f"{origin.url}/data.bin"), ByteRange(number * length, (number + 1) * length))
            while stream.read(1 << 20):
                pass
            stream.close()
    return len({seen.client_address for seen in origin.requests})


def test_a_connection_that_has_carried_much_is_replaced(tmp_path: Path, monkeypatch):
    (tmp_path / "data.bin").write_bytes(bytes(1 << 20))
    monkeypatch.setattr(connection, "_MAX_CONNECTION_BYTES", 300_000)
    with HttpServer(tmp_path) as origin:
        assert connections_for(origin, 5, 1000) == 1
        assert connections_for(origin, 4, 1 << 18) == 2


def test_a_connection_to_a_server_far_away_is_kept(tmp_path: Path, monkeypatch):
    (tmp_path / "data.bin").write_bytes(bytes(1 << 20))
    monkeypatch.setattr(connection, "_MAX_CONNECTION_BYTES", 300_000)
    monkeypatch.setattr(connection, "_MAX_NEARBY_RTT_S", 0.0)
    with HttpServer(tmp_path) as origin:
        assert connections_for(origin, 4, 1 << 18) == 1
