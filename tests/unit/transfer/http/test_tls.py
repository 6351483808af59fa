"""TLS is verified: an own CA is accepted where it is named, and nowhere else."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from packtrain.errors import TransferError
from packtrain.plan import Location
from packtrain.transfer.api import ByteRange
from packtrain.transfer.backends.http import HttpBackend
from packtrain.transfer.http.tls_process import MIN_SIZE_BYTES, TLS_PROCESS
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


def test_a_server_is_believed_when_its_ca_is_named(folder, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with HttpServer(folder, host="localhost", tls=(authority.certificate, authority.key)) as origin:
        assert HttpBackend(str).stat(Location(f"{origin.url}/data.bin")).size == 11


def test_an_unknown_ca_is_refused(folder, authority, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    pair = (authority.certificate, authority.key)
    with HttpServer(folder, host="localhost", tls=pair) as origin, pytest.raises(TransferError) as caught:
        HttpBackend(str).stat(Location(f"{origin.url}/data.bin"))
    assert caught.value.kind == "certificate_invalid"
    assert "not trusted" in caught.value.detail


def test_a_certificate_for_another_host_is_refused(folder, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    pair = (authority.certificate, authority.key)
    with HttpServer(folder, host="127.0.0.2", tls=pair) as origin, pytest.raises(TransferError) as caught:
        HttpBackend(str).stat(Location(f"{origin.url}/data.bin"))
    assert caught.value.kind == "certificate_invalid"


def test_a_redirect_from_https_to_http_carries_no_token(folder, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    pair = (authority.certificate, authority.key)
    with HttpServer(folder) as open_one, HttpServer(folder, host="127.0.0.1", tls=pair) as closed:
        closed.faults.append(ResponseFault(status=302, headers={"Location": f"{open_one.url}/data.bin"}))
        assert HttpBackend(str).stat(Location(f"{closed.url}/x", token="t0ken")).size == 11
    assert closed.requests[0].headers["authorization"] == "Bearer t0ken"
    assert "authorization" not in open_one.requests[0].headers


class Tunnels:
    """A proxy that does nothing but CONNECT."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 Connection established") -> None:
        self._answer, self.asked = answer, []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.place = "{}:{}".format(*self._server.getsockname())
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._tunnel, args=(self._server.accept()[0],), daemon=True).start()

    def _tunnel(self, near: socket.socket) -> None:
        asked = b""
        while b"\r\n\r\n" not in asked:
            asked += near.recv(1 << 16)
        self.asked.append(asked.decode())
        near.sendall(self._answer + b"\r\n\r\n")
        host, _, port = asked.split()[1].decode().rpartition(":")
        with near, socket.create_connection((host, int(port))) as far:
            threading.Thread(target=self._pass_on, args=(far, near), daemon=True).start()
            self._pass_on(near, far)

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
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


@pytest.mark.parametrize("within", ["this process", "another one"])
def test_tls_goes_through_a_proxy(folder, authority, monkeypatch, request, within):
    """Which sees where to, and neither the address nor the token."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    if within != "this process":
        request.getfixturevalue("relayed")
    pair = (authority.certificate, authority.key)
    with HttpServer(folder, host="localhost", tls=pair) as origin, contextlib.closing(Tunnels()) as proxy:
        came = read_through(f"http://me:pass@{proxy.place}", f"{origin.url}/data.bin", monkeypatch)
    assert came == b"secret data"
    [asked] = proxy.asked
    assert asked.startswith(f"CONNECT {origin.url.partition('//')[2]} HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6cGFzcw==" in asked
    assert "data.bin" not in asked and "t0ken" not in asked
    assert origin.requests[0].headers["authorization"] == "Bearer t0ken"
    assert "proxy-authorization" not in origin.requests[0].headers


def test_a_proxy_that_refuses_is_told(folder, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    pair = (authority.certificate, authority.key)
    with (
        HttpServer(folder, host="localhost", tls=pair) as origin,
        contextlib.closing(Tunnels(b"HTTP/1.1 403 Forbidden")) as proxy,
        pytest.raises(TransferError) as caught,
    ):
        read_through(proxy.place, f"{origin.url}/data.bin", monkeypatch)
    assert caught.value.kind == "network_unreachable"
    assert "through the proxy 127.0.0.1" in caught.value.detail and "403 Forbidden" in caught.value.detail


@pytest.fixture
def relayed():
    """TLS in a process of its own, as for large downloads."""
    TLS_PROCESS.enable_for(relayed, MIN_SIZE_BYTES)
    assert TLS_PROCESS.is_enabled, "this machine has one processor only"
    yield TLS_PROCESS
    TLS_PROCESS.release(relayed)


def test_a_process_of_its_own_does_the_same(folder, authority, monkeypatch, relayed):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    data = os.urandom(3_000_000)
    (folder / "large.bin").write_bytes(data)
    with HttpServer(folder, host="localhost", tls=(authority.certificate, authority.key)) as origin:
        stream = HttpBackend(str).open(Location(f"{origin.url}/large.bin"), ByteRange(10, 2_000_000))
        room = memoryview(bytearray(len(data)))
        got = 0
        while more := stream.readinto(room[got:]):
            got += more
        stream.close()
    assert bytes(room[:got]) == data[10:2_000_000]
    assert relayed.cpu_s() > 0


def test_a_process_of_its_own_refuses_the_same(folder, authority, monkeypatch, relayed):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    pair = (authority.certificate, authority.key)
    with HttpServer(folder, host="localhost", tls=pair) as origin, pytest.raises(TransferError) as caught:
        HttpBackend(str).stat(Location(f"{origin.url}/data.bin"))
    assert caught.value.kind == "certificate_invalid"
    assert "not trusted" in caught.value.detail


def test_when_the_process_dies_the_next_connection_starts_another(folder, authority, monkeypatch, relayed):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with HttpServer(folder, host="localhost", tls=(authority.certificate, authority.key)) as origin:
        store, ref = HttpBackend(str), Location(f"{origin.url}/data.bin")
        assert store.stat(ref).size == 11
        relayed._child.kill()
        relayed._child.wait()
        assert store.stat(ref).size == 11


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false"])
def test_when_the_process_cannot_start_tls_happens_here(folder, authority, monkeypatch, relayed, python):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    monkeypatch.setattr(sys, "executable", python)
    with HttpServer(folder, host="localhost", tls=(authority.certificate, authority.key)) as origin:
        assert HttpBackend(str).stat(Location(f"{origin.url}/data.bin")).size == 11
    assert not relayed.is_enabled and relayed._child is None
    monkeypatch.delenv("SSL_CERT_FILE")
    pair = (authority.certificate, authority.key)
    with HttpServer(folder, host="localhost", tls=pair) as origin, pytest.raises(TransferError, match="not trusted"):
        HttpBackend(str).stat(Location(f"{origin.url}/data.bin"))


def test_another_download_tries_to_start_the_process_again(folder, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with HttpServer(folder, host="localhost", tls=(authority.certificate, authority.key)) as origin:
        for python, started in (("/bin/false", False), (sys.executable, True)):
            monkeypatch.setattr(sys, "executable", python)
            TLS_PROCESS.enable_for(folder, MIN_SIZE_BYTES)
            assert HttpBackend(str).stat(Location(f"{origin.url}/data.bin")).size == 11
            assert TLS_PROCESS.is_enabled is started
            TLS_PROCESS.release(folder)


def test_the_process_ends_when_nobody_wants_it(folder, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    TLS_PROCESS.enable_for(folder, MIN_SIZE_BYTES)
    with HttpServer(folder, host="localhost", tls=(authority.certificate, authority.key)) as origin:
        HttpBackend(str).stat(Location(f"{origin.url}/data.bin"))
        child = TLS_PROCESS._child
        TLS_PROCESS.release(folder)
    assert child.returncode is not None
    assert not TLS_PROCESS.is_enabled


def test_small_downloads_have_no_such_process():
    TLS_PROCESS.enable_for(test_small_downloads_have_no_such_process, MIN_SIZE_BYTES - 1)
    assert not TLS_PROCESS.is_enabled
