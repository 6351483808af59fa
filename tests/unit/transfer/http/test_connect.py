"""Connections to hosts with several addresses, and the detection of local servers."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from packtrain.errors import TransferError
from packtrain.plan import Location, RemoteFile
from packtrain.transfer.backends.http import HttpBackend
from packtrain.transfer.fetch import fetch
from packtrain.transfer.http import connect
from packtrain.transfer.http.client import Request, send_request
from packtrain.transfer.http.routes import is_local_server
from packtrain.transfer.tasks.cancellation import time_limit
from testbed.http_server import HttpServer

DATA = bytes(range(256)) * 400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.bin").write_bytes(DATA)
    return tmp_path


def read(location: Location) -> bytes:
    with contextlib.closing(HttpBackend(str).open(location)) as stream:
        return b"".join(iter(lambda: stream.read(1 << 16), b""))


@contextlib.contextmanager
def dead_address(host: str, port: int):
    """Listen on an address that drops connections, as a firewall does: its backlog is full and nothing accepts."""
    with socket.socket() as server, contextlib.ExitStack() as clients:
        server.bind((host, port))
        server.listen(0)
        for _ in range(4):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex((host, port))
        yield


@pytest.fixture
def addresses(monkeypatch) -> list[str]:
    """The addresses that every host name resolves to."""
    resolved: list[str] = []
    monkeypatch.setattr(connect, "_UNREACHABLE_ADDRESSES", set())
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, port, **_: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in resolved],
    )
    return resolved


def test_silent_name_server(monkeypatch):
    """The lookup itself cannot be cancelled, so that it is left behind."""
    answered = threading.Event()

    def look_up(host, port, flags=0, **_):
        if not flags & socket.AI_NUMERICHOST:
            answered.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with time_limit(lambda: 0.0), pytest.raises(TransferError, match="within the retry timeout"):
        send_request(Request("http://data.example/x"))
    answered.set()


def test_unreachable_address_is_skipped(folder, addresses):
    addresses += ["127.0.0.2", "127.0.0.1"]
    with HttpServer(folder) as origin, dead_address("127.0.0.2", urlsplit(origin.url).port):
        location = Location(f"http://two.example:{urlsplit(origin.url).port}/data.bin")
        remote_file = RemoteFile("data.bin", (location,))
        fetch(
            remote_file,
            folder / "download",
            str,
            retry_timeout_s=0,
            check_cancelled=lambda: None,
            on_progress=lambda done, total: None,
        )
        assert {address for address, _ in connect._UNREACHABLE_ADDRESSES} == {"127.0.0.2"}
        assert read(location) == DATA
    assert (folder / "download").read_bytes() == DATA


def test_only_address_is_retried(folder, addresses):
    addresses.append("127.0.0.1")
    with HttpServer(folder) as origin:
        port = urlsplit(origin.url).port
        connect._UNREACHABLE_ADDRESSES.add(("127.0.0.1", port))
        assert read(Location(f"http://two.example:{port}/data.bin")) == DATA
    assert not connect._UNREACHABLE_ADDRESSES


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000/x", True),
        ("http://localhost/x", True),
        ("https://[::1]:8443/x", True),
        ("http://127.200.3.4/x", True),
        ("http://192.0.2.1/x", False),
        ("http://[2001:db8::1]/x", False),
        ("http://example.org/x", False),
        ("osdf:///ospool/x", False),
        ("s3://bucket/x", False),
        ("file:///x", False),
        ("http://[::1/x", False),
        ("http://127.0.0.1:port/x", True),
    ],
)
def test_is_local_server(url, expected, monkeypatch):
    """Names are not resolved."""
    monkeypatch.setattr(socket, "getaddrinfo", None)
    assert is_local_server(url) == expected


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:3128", "socks5://127.0.0.1:1080"])
def test_no_server_is_local_behind_a_proxy(monkeypatch, proxy):
    monkeypatch.setenv("http_proxy", proxy)
    assert not is_local_server("http://127.0.0.1/x")
