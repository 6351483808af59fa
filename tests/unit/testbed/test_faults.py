"""Each fault of the proxy as a raw socket sees it, in front of a folder and in front of a server."""

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
from testbed.http_server import HttpServer
from testbed.http_server import ResponseFault as OriginFault

pytestmark = pytest.mark.slow

SIZE = 300_000
DATA = bytes(range(250)) * (SIZE // 250)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "object").write_bytes(DATA)
    return tmp_path


@pytest.fixture(params=["folder", "server"])
def proxied(request, folder):
    """Makes proxies with faults, once in front of files and once in front of another server."""
    made = []
    with HttpServer(folder) as origin:

        def make(*faults, **more):
            made.append(FaultProxy(folder if request.param == "folder" else origin.url, faults, **more).__enter__())
            return made[-1]

        yield make
        for proxy in made:
            proxy.__exit__()


class Client:
    """What comes over a socket, nothing interpreted but the head."""

    def __init__(self, proxy, timeout_s=5.0):
        host, port = re.search(r"//(.*):(\d+)", proxy.url).groups()
        self.socket = socket.create_connection((host, int(port)), timeout_s)

    def ask(self, span="", method="GET", target="/object"):
        field = f"Range: bytes={span}\r\n" if span else ""
        self.socket.sendall(f"{method} {target} HTTP/1.1\r\nHost: x\r\n{field}\r\n".encode())
        seen = b""
        while b"\r\n\r\n" not in seen:
            more = self.socket.recv(1)
            assert more, f"the connection ended in the head: {seen!r}"
            seen += more
        first, *lines = seen.decode().strip().split("\r\n")
        fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        return int(first.split()[1]), fields

    def read(self, count):
        """So many bytes, or fewer if the connection ends."""
        got = b""
        while len(got) < count:
            more = self.socket.recv(count - len(got))
            if not more:
                break
            got += more
        return got


def test_without_faults_answers_pass_unchanged_on_one_connection(proxied):
    proxy = proxied()
    client = Client(proxy)
    status, fields = client.ask()
    assert (status, fields["content-length"]) == (200, str(SIZE))
    assert client.read(SIZE) == DATA
    status, fields = client.ask("1000-1999")
    assert (status, fields["content-range"]) == (206, f"bytes 1000-1999/{SIZE}")
    assert client.read(1000) == DATA[1000:2000]
    assert client.ask(method="HEAD")[1]["content-length"] == str(SIZE)
    assert client.ask("299990-")[0] == 206
    assert client.read(10) == DATA[-10:]
    assert client.ask(f"{SIZE}-")[0] == 416
    assert client.ask(target="/other")[0] == 404


def test_bytes_are_counted_for_each_connection_and_in_total(proxied):
    proxy = proxied()
    for count in (1000, 2000):
        client = Client(proxy)
        client.ask(f"0-{count - 1}")
        client.read(count)
        client.ask(f"0-{count - 1}")
        client.read(count)
        client.socket.close()
    assert proxy.wait_until_left()
    assert [connection.sent for connection in proxy.connections] == [2000, 4000]
    assert proxy.sent == 6000
    assert proxy.connections[0].requests == ["GET /object bytes=0-999"] * 2


def test_a_stall_leaves_the_connection_open_until_it_is_released(proxied):
    proxy = proxied(Fault("stall", response_offset=1000))
    client = Client(proxy)
    client.ask()
    assert client.read(1000) == DATA[:1000]
    client.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)
    proxy.release()
    client.socket.settimeout(60)
    assert client.read(SIZE - 1000) == DATA[1000:]


def test_a_stall_can_end_by_itself(proxied):
    client = Client(proxied(Fault("stall", response_offset=1000, duration_s=0.2)))
    begun = time.monotonic()
    client.ask()
    assert client.read(SIZE) == DATA
    assert time.monotonic() - begun > 0.15


def test_a_proxy_notices_that_a_stalled_client_left(proxied):
    proxy = proxied(Fault("stall", response_offset=1000))
    client = Client(proxy)
    client.ask()
    assert proxy.wait_for_strikes()
    client.socket.close()
    assert proxy.wait_until_left()
    assert not proxy.open_connections


def test_a_closed_connection_ends_in_good_order(proxied):
    client = Client(proxied(Fault("close", response_offset=1000)))
    client.ask()
    assert client.read(SIZE) == DATA[:1000]


def test_a_reset_is_a_reset(proxied):
    client = Client(proxied(Fault("reset", response_offset=1000)))
    client.ask()
    with pytest.raises(ConnectionResetError):
        client.read(SIZE)


def test_a_drip_has_its_rate_for_its_time(proxied):
    client = Client(proxied(Fault("drip", response_offset=1000, bytes_per_s=5000, duration_s=0.5)))
    client.ask()
    client.read(1000)
    begun = time.monotonic()
    client.read(2000)
    assert time.monotonic() - begun > 0.2
    assert client.read(SIZE - 3000) == DATA[3000:]


def test_corruption_changes_one_byte(proxied):
    client = Client(proxied(Fault("corrupt", response_offset=1000)))
    client.ask()
    seen = client.read(SIZE)
    assert [place for place in range(SIZE) if seen[place] != DATA[place]] == [1000]


def test_an_offset_of_the_object_strikes_whichever_answer_carries_it(proxied):
    client = Client(proxied(Fault("corrupt", object_offset=150_000, max_times=None)))
    for start, stop, bad in ((0, 1000, None), (149_999, 151_000, 150_000), (150_001, 151_000, None)):
        client.ask(f"{start}-{stop - 1}")
        seen = client.read(stop - start)
        assert [p for p in range(start, stop) if seen[p - start] != DATA[p]] == ([] if bad is None else [bad])


def test_a_truncated_answer_looks_whole(proxied):
    client = Client(proxied(Fault("truncate", response_offset=1000)))
    assert client.ask()[1]["content-length"] == "1000"
    assert client.read(1000) == DATA[:1000]
    assert client.ask("0-0")[0] == 206  # the connection is good for more


def test_a_wrong_length_promises_more_than_comes(proxied):
    client = Client(proxied(Fault("wrong_length", extra_bytes=500)))
    assert client.ask()[1]["content-length"] == str(SIZE + 500)
    assert client.read(SIZE + 500) == DATA


def test_a_status_for_a_while_and_with_fields(proxied):
    client = Client(proxied(Fault("status", status=503, active_for_s=0.3, headers={"Retry-After": "1"})))
    status, fields = client.ask()
    assert (status, fields["retry-after"]) == (503, "1")
    client.read(int(fields["content-length"]))
    deadline = time.monotonic() + 5
    while status == 503 and time.monotonic() < deadline:
        status, fields = client.ask("0-0")
        client.read(int(fields["content-length"]))
    assert status == 206


def test_a_late_answer_is_whole(proxied):
    client = Client(proxied(Fault("late", duration_s=0.3)))
    begun = time.monotonic()
    client.ask()
    assert time.monotonic() - begun >= 0.3
    assert client.read(SIZE) == DATA


def test_a_redirect_loop_points_to_itself(proxied):
    client = Client(proxied(Fault("redirect_loop", max_times=None)))
    for _ in range(3):
        status, fields = client.ask()
        assert (status, fields["location"]) == (302, "/object")


def test_faults_strike_so_often_as_they_are_told(proxied):
    proxy = proxied(Fault("status", status=500, max_times=2))
    client, seen = Client(proxy), []
    for _ in range(4):
        status, fields = client.ask("0-0")
        client.read(int(fields["content-length"]))
        seen.append(status)
    assert seen == [500, 500, 206, 206]
    assert [(strike.kind, strike.request) for strike in proxy.strikes] == [("status", 1), ("status", 2)]


def test_faults_strike_chosen_requests_and_paths(proxied, folder):
    (folder / "second").write_bytes(DATA)
    client = Client(
        proxied(Fault("status", status=500, request_numbers=(2,)), Fault("status", status=404, path_contains="second"))
    )
    seen = []
    for target in ("/object", "/object", "/object", "/second"):
        status, fields = client.ask("0-0", target=target)
        client.read(int(fields["content-length"]))
        seen.append(status)
    assert seen == [206, 500, 206, 404]


def test_an_answer_too_short_does_not_use_a_fault_up(proxied):
    proxy = proxied(Fault("close", response_offset=1000))
    client = Client(proxy)
    client.ask("0-999")
    assert client.read(1000) == DATA[:1000]
    assert not proxy.strikes
    client.ask("0-1000")
    assert client.read(1001) == DATA[:1000]


def test_arming_anew_counts_from_zero(proxied):
    proxy = proxied(Fault("status", max_times=None))
    client = Client(proxy)
    _, fields = client.ask()
    client.read(int(fields["content-length"]))
    client.socket.close()
    assert proxy.wait_until_left()
    proxy.arm()
    client = Client(proxy)
    assert client.ask("0-9")[0] == 206
    assert client.read(10) == DATA[:10]
    client.socket.close()
    assert proxy.wait_until_left()
    assert (proxy.sent, len(proxy.connections), proxy.strikes) == (10, 1, [])


def test_the_throttle_holds_for_all_connections_together(proxied):
    proxy = proxied(line=RateLimiter(1_000_000))
    clients = [Client(proxy), Client(proxy)]
    begun = time.monotonic()
    for client in clients:
        client.ask()
    for client in clients:
        assert client.read(SIZE) == DATA
    assert 0.45 < time.monotonic() - begun < 3


def test_chunked_answers_of_a_server_pass_through(folder):
    with HttpServer(folder, faults=[OriginFault(chunked=True)]) as origin, FaultProxy(origin.url) as proxy:
        client = Client(proxy)
        assert client.ask()[1]["transfer-encoding"] == "chunked"
        assert client.read(1 << 30).endswith(b"\r\n0\r\n\r\n")


def test_bodies_of_requests_reach_the_server(folder):
    with HttpServer(folder, writable=True) as origin, FaultProxy(origin.url) as proxy:
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


def test_tls_on_both_sides_and_a_handshake_that_fails_once(folder, authority):
    pair = (authority.certificate, authority.key)
    context = ssl.create_default_context(cafile=str(authority.ca))
    origin = HttpServer(folder, host="localhost", tls=pair)
    with origin, FaultProxy(origin.url, [Fault("tls")], tls=pair, upstream_ca_file=authority.ca) as proxy:
        with pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
            context.wrap_socket(Client(proxy).socket, server_hostname="localhost")
        client = Client(proxy)
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        assert client.ask()[0] == 200
        assert client.read(SIZE) == DATA


def test_an_unreachable_server_is_a_bad_gateway(folder):
    with HttpServer(folder) as origin:
        url = origin.url
    with FaultProxy(url) as proxy:
        assert Client(proxy).ask()[0] == 502


@pytest.mark.parametrize("text, fault", [
    ("stall,at=5000000,times=always", Fault("stall", response_offset=5_000_000, max_times=None)),
    ("status,status=404,for_s=8", Fault("status", status=404, active_for_s=8.0)),
    ("close,requests=1+2,path=big", Fault("close", request_numbers=(1, 2), path_contains="big")),
])  # fmt: skip
def test_faults_in_words(text, fault):
    assert parse_fault(text) == fault


def test_a_fault_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="there are stall"):
        Fault("stal")
    assert set(FAULT_KINDS) >= {
        "stall",
        "close",
        "drip",
        "corrupt",
        "truncate",
        "status",
        "late",
        "wrong_length",
        "reset",
    }


def test_the_program_prints_its_url_and_at_the_end_its_counts(folder):
    command = [sys.executable, "-m", "testbed.faults", str(folder), "--fault", "close,at=1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        proxy = type("Program", (), {"url": process.stdout.readline().strip()})
        client = Client(proxy)
        client.ask()
        assert client.read(SIZE) == DATA[:1000]
        process.send_signal(signal.SIGTERM)
        counts = json.loads(process.stdout.readline())
    assert counts["sent"] == 1000
    assert [strike["kind"] for strike in counts["strikes"]] == ["close"]
