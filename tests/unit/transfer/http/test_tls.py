"""TLS verification and proxies."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from pathlib import Path

import pytest

from packtrain.errors import TransferError
from packtrain.plan import Location
from packtrain.transfer.api import ByteRange
from packtrain.transfer.backends.http import HttpBackend
from packtrain.transfer.http.pool import connection_pool
from testbed.federation import CertificateAuthority
from testbed.http_server import HttpServer, ResponseFault

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.bin").write_bytes(b"secret data")
    return tmp_path


def test_configured_ca_is_trusted(folder, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with HttpServer(folder, host="localhost", tls=authority.cert_and_key) as origin:
        assert HttpBackend(str).stat(Location(f"{origin.url}/data.bin")).size == 11


def test_unknown_ca_is_rejected(folder, authority, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with (
        HttpServer(folder, host="localhost", tls=authority.cert_and_key) as origin,
        pytest.raises(TransferError) as caught,
    ):
        HttpBackend(str).stat(Location(f"{origin.url}/data.bin"))
    assert caught.value.kind == "certificate_invalid"
    assert "not trusted" in caught.value.detail


def test_certificate_of_another_host_is_rejected(folder, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with (
        HttpServer(folder, host="127.0.0.2", tls=authority.cert_and_key) as origin,
        pytest.raises(TransferError) as caught,
    ):
        HttpBackend(str).stat(Location(f"{origin.url}/data.bin"))
    assert caught.value.kind == "certificate_invalid"


def test_redirect_to_http_drops_the_token(folder, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with (
        HttpServer(folder) as http_server,
        HttpServer(folder, host="127.0.0.1", tls=authority.cert_and_key) as https_server,
    ):
        https_server.faults.append(ResponseFault(status=302, headers={"Location": f"{http_server.url}/data.bin"}))
        assert HttpBackend(str).stat(Location(f"{https_server.url}/x", token="t0ken")).size == 11
    assert https_server.requests[0].headers["authorization"] == "Bearer t0ken"
    assert "authorization" not in http_server.requests[0].headers


class ConnectProxy:
    """A proxy that supports CONNECT only."""

    def __init__(self, response: bytes = b"HTTP/1.1 200 Connection established") -> None:
        self._response, self.requests = response, list[str]()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._server.getsockname())
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._tunnel, args=(self._server.accept()[0],), daemon=True).start()

    def _tunnel(self, near: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += near.recv(1 << 16)
        self.requests.append(request.decode())
        near.sendall(self._response + b"\r\n\r\n")
        host, _, port = request.split()[1].decode().rpartition(":")
        with near, socket.create_connection((host, int(port))) as far:
            threading.Thread(target=self._forward, args=(far, near), daemon=True).start()
            self._forward(near, far)

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._server.close()


def read_through(proxy: str, url: str, monkeypatch) -> bytes:
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    with contextlib.closing(HttpBackend(str).open(Location(url, token="t0ken"))) as stream:
        return stream.read(99)


def test_tls_through_proxy(folder, authority, monkeypatch):
    """The proxy learns the host and port, but neither the path nor the token."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with (
        HttpServer(folder, host="localhost", tls=authority.cert_and_key) as origin,
        contextlib.closing(ConnectProxy()) as proxy,
    ):
        data = read_through(f"http://me:pass@{proxy.address}", f"{origin.url}/data.bin", monkeypatch)
    assert data == b"secret data"
    [connect_request] = proxy.requests
    assert connect_request.startswith(f"CONNECT {origin.url.partition('//')[2]} HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6cGFzcw==" in connect_request
    assert "data.bin" not in connect_request and "t0ken" not in connect_request
    assert origin.requests[0].headers["authorization"] == "Bearer t0ken"
    assert "proxy-authorization" not in origin.requests[0].headers


def test_proxy_refuses(folder, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with (
        HttpServer(folder, host="localhost", tls=authority.cert_and_key) as origin,
        contextlib.closing(ConnectProxy(b"HTTP/1.1 403 Forbidden")) as proxy,
        pytest.raises(TransferError) as caught,
    ):
        read_through(proxy.address, f"{origin.url}/data.bin", monkeypatch)
    assert caught.value.kind == "network_unreachable"
    assert "through the proxy 127.0.0.1" in caught.value.detail and "403 Forbidden" in caught.value.detail


def test_tls_of_untrusted_server_through_proxy(folder, authority, monkeypatch):
    """The message names the server, not the proxy."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with (
        HttpServer(folder, host="localhost", tls=authority.cert_and_key) as origin,
        contextlib.closing(ConnectProxy()) as proxy,
        pytest.raises(TransferError, match="the certificate of localhost is not trusted") as caught,
    ):
        read_through(proxy.address, f"{origin.url}/data.bin", monkeypatch)
    assert caught.value.kind == "certificate_invalid"


def test_tls_range(folder, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    data = os.urandom(3_000_000)
    (folder / "large.bin").write_bytes(data)
    with HttpServer(folder, host="localhost", tls=authority.cert_and_key) as origin:
        stream = HttpBackend(str).open(Location(f"{origin.url}/large.bin"), ByteRange(10, 2_000_000))
        buffer = memoryview(bytearray(len(data)))
        n_bytes = 0
        while count := stream.readinto(buffer[n_bytes:]):
            n_bytes += count
        stream.close()
    assert bytes(buffer[:n_bytes]) == data[10:2_000_000]


def test_surplus_of_a_tls_connection(authority, monkeypatch):
    """Decrypted bytes after the body are not taken for the next response."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    body, forged = bytes(100_000), b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.cert_and_key)
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as clients:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client = clients.enter_context(context.wrap_socket(server.accept()[0], server_side=True))
                    client.recv(1 << 16)
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                    client.sendall(body + forged)

        threading.Thread(target=serve, daemon=True).start()
        location = Location(f"https://localhost:{server.getsockname()[1]}/x")
        with connection_pool():
            for _ in range(3):
                stream, buffer, n_bytes = HttpBackend(str).open(location), memoryview(bytearray(1 << 18)), 0
                while count := stream.readinto(buffer[n_bytes:]):
                    n_bytes += count
                stream.close()
                assert buffer[:n_bytes] == body
