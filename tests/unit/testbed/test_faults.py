"""Each fault of the proxy, seen by a raw socket, in front of a folder and of a server."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import time

import pytest

from testbed.faults import FAULT_KINDS, Fault, FaultProxy, RateLimiter, parse_fault
from testbed.federation import CertificateAuthority
from testbed.http_server import HttpServer, ResponseFault

pytestmark = pytest.mark.slow

SIZE = 300_000
DATA = bytes(range(250)) * (SIZE // 250)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "object").write_bytes(DATA)
    return tmp_path


@pytest.fixture(params=["folder", "server"])
def make_proxy(request, folder):
    """Return a function that starts proxies, once in front of files and once in front of another server."""
    proxies = []
    with HttpServer(folder) as server:

        def make(*faults, **kwargs):
            upstream = folder if request.param == "folder" else server.url
            proxies.append(FaultProxy(upstream, faults, **kwargs).__enter__())
            return proxies[-1]

        yield make
        for proxy in proxies:
            proxy.__exit__()


class Client:
    """An HTTP client that interprets only the head of a response."""

    def __init__(self, proxy, timeout_s=60.0):
        host, port = re.search(r"//(.*):(\d+)", proxy.url).groups()
        self.socket = socket.create_connection((host, int(port)), timeout_s)

    def request(self, byte_range="", method="GET", target="/object"):
        header = f"Range: bytes={byte_range}\r\n" if byte_range else ""
        self.socket.sendall(f"{method} {target} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            byte = self.socket.recv(1)
            assert byte, f"the connection ended in the head: {head!r}"
            head += byte
        first, *lines = head.decode().strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        return int(first.split()[1]), headers

    def read(self, count):
        """Read `count` bytes, or fewer if the connection ends."""
        data = b""
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                break
            data += chunk
        return data


def test_no_faults(make_proxy):
    proxy = make_proxy()
    client = Client(proxy)
    status, headers = client.request()
    assert (status, headers["content-length"]) == (200, str(SIZE))
    assert client.read(SIZE) == DATA
    status, headers = client.request("1000-1999")
    assert (status, headers["content-range"]) == (206, f"bytes 1000-1999/{SIZE}")
    assert client.read(1000) == DATA[1000:2000]
    assert client.request(method="HEAD")[1]["content-length"] == str(SIZE)
    assert client.request("299990-")[0] == 206
    assert client.read(10) == DATA[-10:]
    assert client.request(f"{SIZE}-")[0] == 416
    assert client.request(target="/other")[0] == 404


def test_byte_counts(make_proxy):
    proxy = make_proxy()
    for count in (1000, 2000):
        client = Client(proxy)
        client.request(f"0-{count - 1}")
        client.read(count)
        client.request(f"0-{count - 1}")
        client.read(count)
        client.socket.close()
    assert proxy.wait_until_disconnected()
    assert [connection.sent_bytes for connection in proxy.connections] == [2000, 4000]
    assert proxy.sent_bytes == 6000
    assert proxy.connections[0].requests == ["GET /object bytes=0-999"] * 2


def test_stall_until_release(make_proxy):
    proxy = make_proxy(Fault("stall", response_offset=1000))
    client = Client(proxy)
    client.request()
    assert client.read(1000) == DATA[:1000]
    client.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)
    proxy.release()
    client.socket.settimeout(60)
    assert client.read(SIZE - 1000) == DATA[1000:]


def test_stall_with_duration(make_proxy):
    client = Client(make_proxy(Fault("stall", response_offset=1000, duration_s=0.2)))
    started_at = time.monotonic()
    client.request()
    assert client.read(SIZE) == DATA
    assert time.monotonic() - started_at > 0.15


def test_stalled_client_disconnects(make_proxy):
    proxy = make_proxy(Fault("stall", response_offset=1000))
    client = Client(proxy)
    client.request()
    assert proxy.wait_for_faults()
    client.socket.close()
    assert proxy.wait_until_disconnected()
    assert not proxy.n_open_connections


def test_close(make_proxy):
    client = Client(make_proxy(Fault("close", response_offset=1000)))
    client.request()
    assert client.read(SIZE) == DATA[:1000]


def test_reset(make_proxy):
    client = Client(make_proxy(Fault("reset", response_offset=1000)))
    client.request()
    with pytest.raises(ConnectionResetError):
        client.read(SIZE)


def test_drip(make_proxy):
    client = Client(make_proxy(Fault("drip", response_offset=1000, bytes_per_s=5000, duration_s=0.5)))
    client.request()
    client.read(1000)
    started_at = time.monotonic()
    client.read(2000)
    assert time.monotonic() - started_at > 0.2
    assert client.read(SIZE - 3000) == DATA[3000:]


def test_corrupt(make_proxy):
    client = Client(make_proxy(Fault("corrupt", response_offset=1000)))
    client.request()
    data = client.read(SIZE)
    assert [offset for offset in range(SIZE) if data[offset] != DATA[offset]] == [1000]


def test_object_offset(make_proxy):
    client = Client(make_proxy(Fault("corrupt", object_offset=150_000, max_times=None)))
    for start, stop, bad in ((0, 1000, None), (149_999, 151_000, 150_000), (150_001, 151_000, None)):
        client.request(f"{start}-{stop - 1}")
        data = client.read(stop - start)
        assert [p for p in range(start, stop) if data[p - start] != DATA[p]] == ([] if bad is None else [bad])


def test_truncate(make_proxy):
    client = Client(make_proxy(Fault("truncate", response_offset=1000)))
    assert client.request()[1]["content-length"] == "1000"
    assert client.read(1000) == DATA[:1000]
    assert client.request("0-0")[0] == 206  # the connection can be reused


def test_wrong_length(make_proxy):
    client = Client(make_proxy(Fault("wrong_length", extra_bytes=500)))
    assert client.request()[1]["content-length"] == str(SIZE + 500)
    assert client.read(SIZE + 500) == DATA


def test_status_for_some_time(make_proxy):
    client = Client(make_proxy(Fault("status", status=503, active_for_s=0.3, headers={"Retry-After": "1"})))
    status, headers = client.request()
    assert (status, headers["retry-after"]) == (503, "1")
    client.read(int(headers["content-length"]))
    while status == 503:
        status, headers = client.request("0-0")
        client.read(int(headers["content-length"]))
    assert status == 206


def test_delay(make_proxy):
    client = Client(make_proxy(Fault("delay", duration_s=0.3)))
    started_at = time.monotonic()
    client.request()
    assert time.monotonic() - started_at >= 0.3
    assert client.read(SIZE) == DATA


def test_redirect_loop(make_proxy):
    client = Client(make_proxy(Fault("redirect_loop", max_times=None)))
    for _ in range(3):
        status, headers = client.request()
        assert (status, headers["location"]) == (302, "/object")


def test_max_times(make_proxy):
    proxy = make_proxy(Fault("status", status=500, max_times=2))
    client, statuses = Client(proxy), []
    for _ in range(4):
        status, headers = client.request("0-0")
        client.read(int(headers["content-length"]))
        statuses.append(status)
    assert statuses == [500, 500, 206, 206]
    assert [(fault.kind, fault.request_number) for fault in proxy.injected_faults] == [("status", 1), ("status", 2)]


def test_request_numbers_and_path(make_proxy, folder):
    (folder / "second").write_bytes(DATA)
    client = Client(
        make_proxy(
            Fault("status", status=500, request_numbers=(2,)), Fault("status", status=404, path_contains="second")
        )
    )
    statuses = []
    for target in ("/object", "/object", "/object", "/second"):
        status, headers = client.request("0-0", target=target)
        client.read(int(headers["content-length"]))
        statuses.append(status)
    assert statuses == [206, 500, 206, 404]


def test_short_response_does_not_use_fault(make_proxy):
    proxy = make_proxy(Fault("close", response_offset=1000))
    client = Client(proxy)
    client.request("0-999")
    assert client.read(1000) == DATA[:1000]
    assert not proxy.injected_faults
    client.request("0-1000")
    assert client.read(1001) == DATA[:1000]


def test_set_faults_resets_counts(make_proxy):
    proxy = make_proxy(Fault("status", max_times=None))
    client = Client(proxy)
    _, headers = client.request()
    client.read(int(headers["content-length"]))
    client.socket.close()
    assert proxy.wait_until_disconnected()
    proxy.set_faults()
    client = Client(proxy)
    assert client.request("0-9")[0] == 206
    assert client.read(10) == DATA[:10]
    client.socket.close()
    assert proxy.wait_until_disconnected()
    assert (proxy.sent_bytes, len(proxy.connections), proxy.injected_faults) == (10, 1, [])


def test_rate_limit_is_shared(make_proxy):
    proxy = make_proxy(rate_limiter=RateLimiter(1_000_000))
    clients = [Client(proxy), Client(proxy)]
    started_at = time.monotonic()
    for client in clients:
        client.request()
    for client in clients:
        assert client.read(SIZE) == DATA
    assert time.monotonic() - started_at > 0.45


def test_chunked_response(folder):
    with HttpServer(folder, faults=[ResponseFault(chunked=True)]) as server, FaultProxy(server.url) as proxy:
        client = Client(proxy)
        assert client.request()[1]["transfer-encoding"] == "chunked"
        assert client.read(1 << 30).endswith(b"\r\n0\r\n\r\n")


def test_request_body(folder):
    with HttpServer(folder, writable=True) as server, FaultProxy(server.url) as proxy:
        client = Client(proxy)
        head = f"PUT /new HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {SIZE}\r\n\r\n"
        client.socket.sendall(head.encode())
        assert client.read(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.socket.sendall(DATA)
        assert client.read(12) == b"HTTP/1.1 201"
    assert (folder / "new").read_bytes() == DATA


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


def test_tls(folder, authority):
    pair = (authority.certificate, authority.key)
    context = ssl.create_default_context(cafile=str(authority.ca))
    server = HttpServer(folder, host="localhost", tls=pair)
    with server, FaultProxy(server.url, [Fault("tls")], tls=pair, upstream_ca_file=authority.ca) as proxy:
        with pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
            context.wrap_socket(Client(proxy).socket, server_hostname="localhost")
        client = Client(proxy)
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        assert client.request()[0] == 200
        assert client.read(SIZE) == DATA


def test_unreachable_server(folder):
    with HttpServer(folder) as server:
        url = server.url
    with FaultProxy(url) as proxy:
        assert Client(proxy).request()[0] == 502


@pytest.mark.parametrize("text, fault", [
    ("stall,response_offset=5000000,max_times=always", Fault("stall", response_offset=5_000_000, max_times=None)),
    ("status,status=404,active_for_s=8", Fault("status", status=404, active_for_s=8.0)),
    ("close,request_numbers=1+2,path_contains=big", Fault("close", request_numbers=(1, 2), path_contains="big")),
])  # fmt: skip
def test_parse_fault(text, fault):
    assert parse_fault(text) == fault


def test_unknown_fault():
    with pytest.raises(ValueError, match="available are stall"):
        Fault("stal")
    assert set(FAULT_KINDS) >= {
        "stall",
        "close",
        "drip",
        "corrupt",
        "truncate",
        "status",
        "delay",
        "wrong_length",
        "reset",
    }


def test_program(folder):
    command = [sys.executable, "-m", "testbed.faults", str(folder), "--fault", "close,response_offset=1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        proxy = type("Program", (), {"url": process.stdout.readline().strip()})
        client = Client(proxy)
        client.request()
        assert client.read(SIZE) == DATA[:1000]
        process.send_signal(signal.SIGTERM)
        counts = json.loads(process.stdout.readline())
    assert counts["sent_bytes"] == 1000
    assert [fault["kind"] for fault in counts["injected_faults"]] == ["close"]
