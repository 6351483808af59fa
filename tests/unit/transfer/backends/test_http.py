"""HTTP as source and sink, against real servers with correct and faulty responses."""

from __future__ import annotations

import base64
import gzip
import hashlib
import socket
import time
from pathlib import Path

import pytest

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Digest, HttpHeader, Location, Secret
from packtrain.transfer.api import ByteRange
from packtrain.transfer.backends.http import HttpBackend
from packtrain.transfer.http import socket_stream
from packtrain.transfer.http.connection import Http11Connection
from packtrain.transfer.registry import get_source
from packtrain.transfer.tasks.cancellation import cancellation_scope
from testbed.http_server import HttpServer, ResponseFault

DATA = bytes(range(256)) * 400
TOKEN = "tok-4711-secret"


def resolve(value):
    return TOKEN if isinstance(value, Secret) else value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.bin").write_bytes(DATA)
    return tmp_path


def read(backend, location, byte_range=None) -> bytes:
    stream = backend.open(location, byte_range) if byte_range else backend.open(location)
    try:
        return b"".join(iter(lambda: stream.read(1 << 16), b""))
    finally:
        stream.close()


def failure(call) -> tuple[str, str]:
    with pytest.raises(TransferError) as caught:
        call()
    assert TOKEN not in str(caught.value)
    return caught.value.kind, caught.value.detail


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, "access_denied"),
        (403, "access_denied"),
        (404, "object_missing"),
        (410, "object_missing"),
        (429, "service_unavailable"),
        (500, "service_unavailable"),
        (503, "service_unavailable"),
    ],
)
def test_failure_kind_of_status(folder, status, expected):
    with HttpServer(folder, faults=[ResponseFault(status=status)]) as origin:
        kind, detail = failure(lambda: HttpBackend(resolve).open(Location(f"{origin.url}/data.bin")))
    assert kind == expected
    assert f"{status}" in detail and "/data.bin" in detail


def test_denial_mentions_the_token(folder):
    with HttpServer(folder, token="another") as origin:
        url = f"{origin.url}/data.bin"
        no_token = failure(lambda: HttpBackend(resolve).stat(Location(url)))
        wrong_token = failure(lambda: HttpBackend(resolve).stat(Location(url, token=Secret("t"))))
    assert no_token[0] == wrong_token[0] == "access_denied"
    assert "no token was sent" in no_token[1]
    assert "a token was sent" in wrong_token[1]


def test_token_is_resolved_per_connection(folder):
    tokens = iter(["old", "new\n"])
    with HttpServer(folder, token="new") as origin:
        backend, location = (
            HttpBackend(lambda value: next(tokens)),
            Location(f"{origin.url}/data.bin", token=Secret("t")),
        )
        assert failure(lambda: backend.open(location))[0] == "access_denied"
        assert read(backend, location) == DATA


def test_credentials_in_url_are_redacted(folder):
    with HttpServer(folder) as origin:
        url = origin.url.replace("://", "://me:hunter2%21@") + "/missing"
        _, detail = failure(lambda: HttpBackend(resolve).open(Location(url)))
    assert base64.b64decode(origin.requests[0].headers["authorization"].split()[1]) == b"me:hunter2!"
    assert "hunter2" not in detail


@pytest.mark.parametrize("refused", [403, 405, 501])
def test_stat_falls_back_to_get(folder, refused):
    with HttpServer(folder, faults=[ResponseFault(status=refused)]) as origin:
        info = HttpBackend(resolve).stat(Location(f"{origin.url}/data.bin"))
    assert (info.size, info.accepts_ranges) == (len(DATA), True)
    assert [request.headers.get("range") for request in origin.requests] == [None, "bytes=0-0"]


def test_stat_by_get_without_ranges(folder):
    with HttpServer(folder, rejected_methods=["HEAD"], faults=[None, ResponseFault(ignore_range=True)]) as origin:
        info = HttpBackend(resolve).stat(Location(f"{origin.url}/data.bin"))
    assert (info.size, info.accepts_ranges) == (len(DATA), False)


def test_ignored_range_starts_at_0(folder):
    with HttpServer(folder, faults=[ResponseFault(ignore_range=True)]) as origin:
        stream = HttpBackend(resolve).open(Location(f"{origin.url}/data.bin"), ByteRange(500))
        assert stream.start == 0
        stream.close()


@pytest.mark.parametrize("fault", [ResponseFault(chunked=True), ResponseFault(omit_length=True), ResponseFault()])
def test_body_framing(folder, fault):
    with HttpServer(folder, faults=[fault]) as origin:
        assert read(HttpBackend(resolve), Location(f"{origin.url}/data.bin")) == DATA


@pytest.mark.parametrize(
    "fault", [ResponseFault(close_after_bytes=1000), ResponseFault(close_after_bytes=1000, chunked=True)]
)
def test_short_body_is_truncated(folder, fault):
    with HttpServer(folder, faults=[fault]) as origin:
        kind, detail = failure(lambda: read(HttpBackend(resolve), Location(f"{origin.url}/data.bin")))
    assert kind == "truncated"
    assert "shorter than declared" in detail


def test_stated_digests(folder):
    raw = hashlib.sha256(DATA).digest()
    md5 = base64.b64encode(hashlib.md5(DATA).digest()).decode()
    sha256 = Digest("sha256", raw.hex())
    for headers, expected in (
        ({"Repr-Digest": f"sha-256=:{base64.b64encode(raw).decode()}:"}, sha256),
        ({"Digest": f"adler32=03da0195, SHA-256={base64.b64encode(raw).decode()}"}, sha256),
        ({"Digest": f"md5={hashlib.md5(DATA).hexdigest()}"}, Digest("md5", hashlib.md5(DATA).hexdigest())),
        ({"Content-MD5": md5}, Digest("md5", hashlib.md5(DATA).hexdigest())),
        ({"Digest": f"adler32=03da0195, md5={md5}"}, Digest("md5", hashlib.md5(DATA).hexdigest())),
        ({"Digest": "adler32=03da0195"}, Digest("adler32", "03da0195")),
        ({"Repr-Digest": "adler=:A9oBlQ==:"}, Digest("adler32", "03da0195")),
        ({"Digest": "adler32=3da0195"}, None),
        ({"Content-MD5": "not base64!"}, None),
        ({}, None),
    ):
        with HttpServer(folder, headers=headers) as origin:
            assert HttpBackend(resolve).stat(Location(f"{origin.url}/data.bin")).digest == expected


def test_content_md5_of_partial_response_is_ignored(folder):
    with HttpServer(folder, headers={"Content-MD5": base64.b64encode(bytes(16)).decode()}) as origin:
        stream = HttpBackend(resolve).open(Location(f"{origin.url}/data.bin"), ByteRange(5, 9))
        stream.close()
    assert stream.info.digest is None


def test_unrequested_gzip_is_decoded(folder):
    (folder / "page.csv").write_bytes(gzip.compress(DATA))
    with HttpServer(folder, headers={"Content-Encoding": "gzip"}) as origin:
        location = Location(f"{origin.url}/page.csv")
        assert read(HttpBackend(resolve), location) == DATA
        info = HttpBackend(resolve).stat(location)
    assert (info.size, info.accepts_ranges) == (None, False)
    assert all(request.headers["accept-encoding"] == "identity" for request in origin.requests)


def test_short_gzip_body_is_truncated(folder):
    (folder / "page.csv").write_bytes(gzip.compress(DATA)[:-20])
    with HttpServer(folder, headers={"Content-Encoding": "gzip"}) as origin:
        assert failure(lambda: read(HttpBackend(resolve), Location(f"{origin.url}/page.csv")))[0] == "truncated"


def test_unknown_content_encoding(folder):
    with HttpServer(folder, headers={"Content-Encoding": "br"}) as origin:
        kind, detail = failure(lambda: HttpBackend(resolve).open(Location(f"{origin.url}/data.bin")))
    assert kind == "unexpected_content"
    assert "'br'" in detail


def test_gz_file_is_not_decoded(folder):
    compressed = gzip.compress(DATA)
    (folder / "data.tar.gz").write_bytes(compressed)
    with HttpServer(folder, headers={"Content-Encoding": "x-gzip"}) as origin:
        assert read(HttpBackend(resolve), Location(f"{origin.url}/data.tar.gz")) == compressed


def redirect(target: str, status: int = 302) -> ResponseFault:
    return ResponseFault(status=status, headers={"Location": target})


CREDENTIALS = (
    HttpHeader("X-Api-Key", "tok-literal-key"),
    HttpHeader("Cookie", "c=1"),
    HttpHeader("X-Plain", Secret("s")),
)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_to_another_host_drops_credentials(folder, status):
    with HttpServer(folder, host="127.0.0.2") as other, HttpServer(folder) as first:
        first.faults.append(redirect(f"{other.url}/data.bin", status))
        headers = (*CREDENTIALS, HttpHeader("Accept", "application/x-data"))
        location = Location(f"{first.url}/start", headers=headers, token=Secret("t"))
        assert read(HttpBackend(resolve), location, ByteRange(10)) == DATA[10:]
    names = {"authorization", "x-api-key", "cookie", "x-plain"}
    assert names <= set(first.requests[0].headers)
    assert not names & set(other.requests[0].headers)
    assert other.requests[0].headers["accept"] == "application/x-data"
    assert other.requests[0].headers["range"] == "bytes=10-"
    assert TOKEN not in str(other.requests)


def test_redirect_to_another_port_drops_the_token(folder):
    with HttpServer(folder, token=TOKEN) as other, HttpServer(folder) as first:
        first.faults.append(redirect(f"{other.url}/data.bin"))
        location = Location(f"{first.url}/start", token=Secret("t"))
        kind, detail = failure(lambda: HttpBackend(resolve).open(location))
    assert kind == "access_denied"
    assert "not sent, because a redirect led to another host" in detail


def test_redirect_within_a_host_keeps_the_token(folder):
    with HttpServer(folder, token=TOKEN, faults=[redirect("/data.bin")]) as origin:
        assert read(HttpBackend(resolve), Location(f"{origin.url}/x/start", token=Secret("t"))) == DATA


def test_redirect_back_sends_the_token_again(folder):
    with HttpServer(folder, host="127.0.0.2") as other, HttpServer(folder, token=TOKEN) as first:
        first.faults.append(redirect(f"{other.url}/hop"))
        other.faults.append(redirect(f"{first.url}/data.bin"))
        assert read(HttpBackend(resolve), Location(f"{first.url}/start", token=Secret("t"))) == DATA
    assert "authorization" not in other.requests[0].headers


def test_redirect_loop(folder):
    with HttpServer(folder, faults=[redirect("/loop")] * 20) as origin:
        kind, detail = failure(lambda: HttpBackend(resolve).open(Location(f"{origin.url}/loop")))
    assert kind == "service_unavailable"
    assert "10 times" in detail
    assert len(origin.requests) == 11


def test_redirect_to_another_scheme(folder):
    with HttpServer(folder, faults=[redirect("file:///etc/passwd")]) as origin:
        assert failure(lambda: HttpBackend(resolve).open(Location(f"{origin.url}/x")))[0] == "unsupported"


INVALID_URLS = ["http://h:99999/x", "http://h:-1/x", "http://[bad/x", "//[bad", "http://é..x/x"]


@pytest.mark.parametrize("target", INVALID_URLS)
def test_redirect_to_invalid_url(folder, target):
    with HttpServer(folder, faults=[redirect(target.encode().decode("latin-1"))]) as origin:
        kind, detail = failure(lambda: HttpBackend(resolve).open(Location(f"{origin.url}/x")))
    assert kind == "service_unavailable"
    assert f"{origin.url}/x redirects to an invalid URL" in detail


@pytest.mark.parametrize("url", [url for url in INVALID_URLS if url.startswith("http")])
def test_invalid_url(url):
    kind, detail = failure(lambda: get_source(Location(url), resolve).open(Location(url)))
    assert kind == "unsupported"
    assert f"{url} is not a valid address" in detail


def test_unknown_host():
    kind, detail = failure(lambda: HttpBackend(resolve).stat(Location("http://nohost.invalid/data.tar.gz?sig=abc")))
    assert kind == "host_unknown"
    assert "nohost.invalid" in detail
    assert "sig=abc" not in detail


def test_closed_port():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}/x"
        kind, detail = failure(lambda: HttpBackend(resolve).stat(Location(url)))
    assert kind == "network_unreachable"
    assert "refused the connection" in detail


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_ipv6(folder):
    try:
        origin = HttpServer(folder, host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with origin:
        assert read(HttpBackend(resolve), Location(f"{origin.url}/data.bin")) == DATA
    assert origin.requests[0].headers["host"].startswith("[::1]:")


def test_proxy_gets_the_absolute_url(folder, monkeypatch):
    (folder / "far.bin").write_bytes(b"from the proxy")
    with HttpServer(folder) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("://", "://user:pass@"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert read(HttpBackend(resolve), Location("http://far.invalid/far.bin")) == b"from the proxy"
        assert proxy.requests[0].path == "http://far.invalid/far.bin"
        assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")
        with HttpServer(folder) as local:
            assert read(HttpBackend(resolve), Location(f"{local.url}/data.bin")) == DATA
        assert len(proxy.requests) == 1


def test_put_is_denied(folder, tmp_path):
    big = tmp_path / "big"
    big.write_bytes(bytes(8 << 20))  # exceeds the socket buffers: the response arrives during the upload
    with HttpServer(folder, token="other", writable=True) as origin:
        kind, detail = failure(lambda: HttpBackend(resolve).put(Location(f"{origin.url}/new"), big))
    assert kind == "access_denied"
    assert "401" in detail


def test_read_timeout(folder, monkeypatch):
    monkeypatch.setattr(socket_stream, "READ_TIMEOUT_S", 0.2)
    with HttpServer(folder, faults=[ResponseFault(stall_after_bytes=1000)]) as origin:
        kind, detail = failure(lambda: read(HttpBackend(resolve), Location(f"{origin.url}/data.bin")))
    assert kind == "service_unavailable"
    assert "sent nothing" in detail


def test_few_bytes_are_returned_after_the_poll_interval():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        server_side, _ = server.accept()
        with server_side:
            server_side.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n")
            connection, buffer = Http11Connection(client), memoryview(bytearray(1 << 20))
            connection.request("GET", "/x")
            response = connection.getresponse()
            assert connection.measure_round_trip_s() > 0
            server_side.sendall(b"bytes")
            assert response.readinto(buffer) == 5
            server_side.sendall(bytes(1 << 20))
            assert response.readinto(buffer) > 5


def test_slow_transfer_is_no_timeout(folder, monkeypatch):
    """The transfer takes longer than the read timeout, but no pause in it does."""
    monkeypatch.setattr(socket_stream, "READ_TIMEOUT_S", 3.0)
    with HttpServer(folder, bytes_per_s=25_000) as origin:
        started_at = time.monotonic()
        assert read(HttpBackend(resolve), Location(f"{origin.url}/data.bin")) == DATA
    assert time.monotonic() - started_at > 3.0


def test_cancellation_scope_handles_the_read_timeout(folder, monkeypatch):
    monkeypatch.setattr(socket_stream, "READ_TIMEOUT_S", 0.1)
    checks = iter(range(5))

    def check_cancelled() -> None:
        if next(checks, None) is None:
            origin.release_stalls()

    with (
        HttpServer(folder, faults=[ResponseFault(stall_after_bytes=0)]) as origin,
        cancellation_scope(check_cancelled, handles_read_timeout=True),
    ):
        assert read(HttpBackend(resolve), Location(f"{origin.url}/data.bin")) == DATA


def test_unreadable_ca_bundle(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    kind, detail = failure(lambda: HttpBackend(resolve).stat(Location("https://127.0.0.1:9/x")))
    assert kind == "certificate_invalid"
    assert "/nowhere/ca.pem" in detail


@pytest.mark.parametrize("value", ["line\nbreak", "ünïcødé ✓"])
def test_invalid_header_value_is_redacted(value):
    with pytest.raises(FailedError) as caught:
        HttpBackend(resolve).open(Location("http://127.0.0.1:9/x", headers=(HttpHeader("X-Key", value),)))
    assert "X-Key" in str(caught.value)
    assert value not in str(caught.value)
