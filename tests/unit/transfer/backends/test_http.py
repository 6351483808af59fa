"""http as source and sink, against real servers that answer well, badly, and elsewhere."""

from __future__ import annotations

import base64
import gzip
import hashlib
import socket
import threading
import time
from pathlib import Path

import pytest

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Digest, HttpHeader, Location, Secret
from packtrain.transfer.api import ByteRange
from packtrain.transfer.backends.http import HttpBackend
from packtrain.transfer.cancellation import cancellation_scope
from packtrain.transfer.http import connection as wire
from packtrain.transfer.registry import get_source
from testbed.http_server import HttpServer, ResponseFault

DATA = bytes(range(256)) * 400
TOKEN = "tok-4711-secret"


def plain(value):
    return TOKEN if isinstance(value, Secret) else value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.bin").write_bytes(DATA)
    return tmp_path


def read(store, ref, span=None) -> bytes:
    stream = store.open(ref, span) if span else store.open(ref)
    try:
        return b"".join(iter(lambda: stream.read(1 << 16), b""))
    finally:
        stream.close()


def kind_and_words(call) -> tuple[str, str]:
    with pytest.raises(TransferError) as caught:
        call()
    assert TOKEN not in str(caught.value)
    return caught.value.kind, caught.value.detail


@pytest.mark.parametrize(
    ("status", "kind"),
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
def test_each_status_has_its_kind(folder, status, kind):
    with HttpServer(folder, faults=[ResponseFault(status=status)]) as origin:
        seen, words = kind_and_words(lambda: HttpBackend(plain).open(Location(f"{origin.url}/data.bin")))
    assert seen == kind
    assert f"{status}" in words and "/data.bin" in words


def test_a_refusal_says_whether_a_token_was_sent(folder):
    with HttpServer(folder, token="another") as origin:
        url = f"{origin.url}/data.bin"
        without = kind_and_words(lambda: HttpBackend(plain).stat(Location(url)))
        wrong = kind_and_words(lambda: HttpBackend(plain).stat(Location(url, token=Secret("t"))))
    assert without[0] == wrong[0] == "access_denied"
    assert "no token was sent" in without[1]
    assert "a token was sent" in wrong[1]


def test_the_token_is_revealed_anew_for_each_connection(folder):
    tokens = iter(["old", "new\n"])
    with HttpServer(folder, token="new") as origin:
        store, ref = HttpBackend(lambda value: next(tokens)), Location(f"{origin.url}/data.bin", token=Secret("t"))
        assert kind_and_words(lambda: store.open(ref))[0] == "access_denied"
        assert read(store, ref) == DATA


def test_user_and_password_of_an_address_are_sent_and_never_shown(folder):
    with HttpServer(folder) as origin:
        url = origin.url.replace("://", "://me:hunter2%21@") + "/missing"
        _, words = kind_and_words(lambda: HttpBackend(plain).open(Location(url)))
    assert base64.b64decode(origin.requests[0].headers["authorization"].split()[1]) == b"me:hunter2!"
    assert "hunter2" not in words


@pytest.mark.parametrize("refused", [403, 405, 501])
def test_stat_asks_with_get_where_head_is_refused(folder, refused):
    with HttpServer(folder, faults=[ResponseFault(status=refused)]) as origin:
        info = HttpBackend(plain).stat(Location(f"{origin.url}/data.bin"))
    assert (info.size, info.accepts_ranges) == (len(DATA), True)
    assert [seen.headers.get("range") for seen in origin.requests] == [None, "bytes=0-0"]


def test_stat_by_get_of_a_server_without_ranges(folder):
    with HttpServer(folder, rejected_methods=["HEAD"], faults=[None, ResponseFault(ignore_range=True)]) as origin:
        info = HttpBackend(plain).stat(Location(f"{origin.url}/data.bin"))
    assert (info.size, info.accepts_ranges) == (len(DATA), False)


def test_a_server_without_ranges_says_so_by_its_start(folder):
    with HttpServer(folder, faults=[ResponseFault(ignore_range=True)]) as origin:
        stream = HttpBackend(plain).open(Location(f"{origin.url}/data.bin"), ByteRange(500))
        assert stream.start == 0
        stream.close()


@pytest.mark.parametrize("fault", [ResponseFault(chunked=True), ResponseFault(omit_length=True), ResponseFault()])
def test_bodies_of_all_forms(folder, fault):
    with HttpServer(folder, faults=[fault]) as origin:
        assert read(HttpBackend(plain), Location(f"{origin.url}/data.bin")) == DATA


@pytest.mark.parametrize(
    "fault", [ResponseFault(close_after_bytes=1000), ResponseFault(close_after_bytes=1000, chunked=True)]
)
def test_a_short_body_is_truncated(folder, fault):
    with HttpServer(folder, faults=[fault]) as origin:
        seen, words = kind_and_words(lambda: read(HttpBackend(plain), Location(f"{origin.url}/data.bin")))
    assert seen == "truncated"
    assert "promised end" in words


def test_digests_of_the_server_are_read(folder):
    raw = hashlib.sha256(DATA).digest()
    md5 = base64.b64encode(hashlib.md5(DATA).digest()).decode()
    wanted = Digest("sha256", raw.hex())
    for headers, digest in (
        ({"Repr-Digest": f"sha-256=:{base64.b64encode(raw).decode()}:"}, wanted),
        ({"Digest": f"adler32=03da0195, SHA-256={base64.b64encode(raw).decode()}"}, wanted),
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
            assert HttpBackend(plain).stat(Location(f"{origin.url}/data.bin")).digest == digest


def test_content_md5_of_a_part_is_not_taken_for_that_of_the_object(folder):
    with HttpServer(folder, headers={"Content-MD5": base64.b64encode(bytes(16)).decode()}) as origin:
        stream = HttpBackend(plain).open(Location(f"{origin.url}/data.bin"), ByteRange(5, 9))
        stream.close()
    assert stream.info.digest is None


def test_an_encoding_that_was_not_asked_for_is_undone(folder):
    (folder / "page.csv").write_bytes(gzip.compress(DATA))
    with HttpServer(folder, headers={"Content-Encoding": "gzip"}) as origin:
        ref = Location(f"{origin.url}/page.csv")
        assert read(HttpBackend(plain), ref) == DATA
        info = HttpBackend(plain).stat(ref)
    assert (info.size, info.accepts_ranges) == (None, False)
    assert all(seen.headers["accept-encoding"] == "identity" for seen in origin.requests)


def test_an_encoded_body_that_is_cut_is_truncated(folder):
    (folder / "page.csv").write_bytes(gzip.compress(DATA)[:-20])
    with HttpServer(folder, headers={"Content-Encoding": "gzip"}) as origin:
        assert kind_and_words(lambda: read(HttpBackend(plain), Location(f"{origin.url}/page.csv")))[0] == "truncated"


def test_an_unknown_encoding_is_refused_by_name(folder):
    with HttpServer(folder, headers={"Content-Encoding": "br"}) as origin:
        seen, words = kind_and_words(lambda: HttpBackend(plain).open(Location(f"{origin.url}/data.bin")))
    assert seen == "unexpected_content"
    assert "'br'" in words


def test_a_stored_gz_file_that_is_called_gzip_encoded_stays_as_it_is(folder):
    packed = gzip.compress(DATA)
    (folder / "data.tar.gz").write_bytes(packed)
    with HttpServer(folder, headers={"Content-Encoding": "x-gzip"}) as origin:
        assert read(HttpBackend(plain), Location(f"{origin.url}/data.tar.gz")) == packed


def redirect(target: str, status: int = 302) -> ResponseFault:
    return ResponseFault(status=status, headers={"Location": target})


CREDENTIALS = (
    HttpHeader("X-Api-Key", "tok-literal-key"),
    HttpHeader("Cookie", "c=1"),
    HttpHeader("X-Plain", Secret("s")),
)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_carries_no_credentials(folder, status):
    with HttpServer(folder, host="127.0.0.2") as other, HttpServer(folder) as first:
        first.faults.append(redirect(f"{other.url}/data.bin", status))
        headers = (*CREDENTIALS, HttpHeader("Accept", "application/x-data"))
        ref = Location(f"{first.url}/start", headers=headers, token=Secret("t"))
        assert read(HttpBackend(plain), ref, ByteRange(10)) == DATA[10:]
    names = {"authorization", "x-api-key", "cookie", "x-plain"}
    assert names <= set(first.requests[0].headers)
    assert not names & set(other.requests[0].headers)
    assert other.requests[0].headers["accept"] == "application/x-data"
    assert other.requests[0].headers["range"] == "bytes=10-"
    assert TOKEN not in str(other.requests)


def test_another_port_of_the_same_host_is_another_server(folder):
    with HttpServer(folder, token=TOKEN) as other, HttpServer(folder) as first:
        first.faults.append(redirect(f"{other.url}/data.bin"))
        ref = Location(f"{first.url}/start", token=Secret("t"))
        seen, words = kind_and_words(lambda: HttpBackend(plain).open(ref))
    assert seen == "access_denied"
    assert "not sent, because a redirect led to another host" in words


def test_a_redirect_within_the_host_keeps_the_token(folder):
    with HttpServer(folder, token=TOKEN, faults=[redirect("/data.bin")]) as origin:
        assert read(HttpBackend(plain), Location(f"{origin.url}/x/start", token=Secret("t"))) == DATA


def test_a_token_that_came_back_home_through_another_host_is_sent_again(folder):
    with HttpServer(folder, host="127.0.0.2") as other, HttpServer(folder, token=TOKEN) as first:
        first.faults.append(redirect(f"{other.url}/hop"))
        other.faults.append(redirect(f"{first.url}/data.bin"))
        assert read(HttpBackend(plain), Location(f"{first.url}/start", token=Secret("t"))) == DATA
    assert "authorization" not in other.requests[0].headers


def test_a_redirect_loop_ends(folder):
    with HttpServer(folder, faults=[redirect("/loop")] * 20) as origin:
        seen, words = kind_and_words(lambda: HttpBackend(plain).open(Location(f"{origin.url}/loop")))
    assert seen == "service_unavailable"
    assert "10 times" in words
    assert len(origin.requests) == 11


def test_a_redirect_to_something_else_than_http_is_refused(folder):
    with HttpServer(folder, faults=[redirect("file:///etc/passwd")]) as origin:
        assert kind_and_words(lambda: HttpBackend(plain).open(Location(f"{origin.url}/x")))[0] == "unsupported"


NO_ADDRESSES = ["http://h:99999/x", "http://h:-1/x", "http://[bad/x", "//[bad", "http://é..x/x"]


@pytest.mark.parametrize("location", NO_ADDRESSES)
def test_a_redirect_to_what_is_no_address(folder, location):
    with HttpServer(folder, faults=[redirect(location.encode().decode("latin-1"))]) as origin:
        seen, words = kind_and_words(lambda: HttpBackend(plain).open(Location(f"{origin.url}/x")))
    assert seen == "service_unavailable"
    assert f"{origin.url}/x redirects to what is no address" in words


@pytest.mark.parametrize("url", [url for url in NO_ADDRESSES if url.startswith("http")])
def test_what_is_no_address_is_told(url):
    seen, words = kind_and_words(lambda: get_source(Location(url), plain).open(Location(url)))
    assert seen == "unsupported"
    assert f"{url} is not a valid address" in words


def test_an_unknown_host():
    seen, words = kind_and_words(lambda: HttpBackend(plain).stat(Location("http://nohost.invalid/data.tar.gz?sig=abc")))
    assert seen == "host_unknown"
    assert "nohost.invalid" in words
    assert "sig=abc" not in words


def test_a_closed_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/x"
        seen, words = kind_and_words(lambda: HttpBackend(plain).stat(Location(url)))
    assert seen == "network_unreachable"
    assert "refused the connection" in words


def raw_server(answer: bytes) -> socket.socket:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return server


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 2x0 ?\r\n\r\n"])
def test_what_is_no_http_is_told(answer):
    with raw_server(answer) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        assert kind_and_words(lambda: HttpBackend(plain).open(Location(url)))[0] == "service_unavailable"


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_ipv6(folder):
    try:
        origin = HttpServer(folder, host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with origin:
        assert read(HttpBackend(plain), Location(f"{origin.url}/data.bin")) == DATA
    assert origin.requests[0].headers["host"].startswith("[::1]:")


def test_a_proxy_from_the_environment_gets_the_whole_address(folder, monkeypatch):
    (folder / "far.bin").write_bytes(b"from the proxy")
    with HttpServer(folder) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("://", "://user:pass@"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert read(HttpBackend(plain), Location("http://far.invalid/far.bin")) == b"from the proxy"
        assert proxy.requests[0].path == "http://far.invalid/far.bin"
        assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")
        with HttpServer(folder) as near:
            assert read(HttpBackend(plain), Location(f"{near.url}/data.bin")) == DATA
        assert len(proxy.requests) == 1


def test_put_is_refused_with_the_reason(folder, tmp_path):
    big = tmp_path / "big"
    big.write_bytes(bytes(8 << 20))  # more than the sockets hold: the refusal comes while we still send
    with HttpServer(folder, token="other", writable=True) as origin:
        seen, words = kind_and_words(lambda: HttpBackend(plain).put(Location(f"{origin.url}/new"), big))
    assert seen == "access_denied"
    assert "401" in words


def test_silence_is_not_waited_for_longer_than_the_limit(folder, monkeypatch):
    monkeypatch.setattr(wire, "READ_TIMEOUT_S", 0.2)
    with HttpServer(folder, faults=[ResponseFault(stall_after_bytes=1000)]) as origin:
        seen, words = kind_and_words(lambda: read(HttpBackend(plain), Location(f"{origin.url}/data.bin")))
    assert seen == "service_unavailable"
    assert "sent nothing" in words


def test_whoever_wants_much_gets_at_a_step_s_end_what_is_here_however_little():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        far, _ = server.accept()
        with far:
            far.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n")
            line, room = wire.Http11Connection(client), memoryview(bytearray(1 << 20))
            assert line.read_response_head().status == 200
            assert line.round_trip_s > 0
            far.sendall(b"crumb")
            assert line.readinto(room) == 5
            far.sendall(bytes(1 << 20))
            assert line.readinto(room) > 5


def test_a_slow_transfer_that_progresses_is_not_cut(folder, monkeypatch):
    """It takes longer than the limit, and the origin makes no pause that is nearly as long."""
    monkeypatch.setattr(wire, "READ_TIMEOUT_S", 3.0)
    with HttpServer(folder, bytes_per_s=25_000) as origin:
        began = time.monotonic()
        assert read(HttpBackend(plain), Location(f"{origin.url}/data.bin")) == DATA
    assert time.monotonic() - began > 3.0


def test_a_silence_that_somebody_limits_who_knows_better_may_be_longer(folder, monkeypatch):
    monkeypatch.setattr(wire, "READ_TIMEOUT_S", 0.1)
    ticks = iter(range(5))

    def tick() -> None:
        if next(ticks, None) is None:
            origin.release_stalls()

    with (
        HttpServer(folder, faults=[ResponseFault(stall_after_bytes=0)]) as origin,
        cancellation_scope(tick, handles_read_timeout=True),
    ):
        assert read(HttpBackend(plain), Location(f"{origin.url}/data.bin")) == DATA


def test_a_ca_bundle_that_cannot_be_read_is_named(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    seen, words = kind_and_words(lambda: HttpBackend(plain).stat(Location("https://127.0.0.1:9/x")))
    assert seen == "certificate_invalid"
    assert "/nowhere/ca.pem" in words


@pytest.mark.parametrize("value", ["line\nbreak", "ünïcødé ✓"])
def test_a_header_that_cannot_be_sent_is_told_without_its_value(value):
    with pytest.raises(FailedError) as caught:
        HttpBackend(plain).open(Location("http://127.0.0.1:9/x", headers=(HttpHeader("X-Key", value),)))
    assert "X-Key" in str(caught.value)
    assert value not in str(caught.value)
