"""Pelican: responses of a director, token discovery, folder listings, byte ranges and trailers."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading

import pytest

from packtrain.errors import TransferError
from packtrain.plan import Location
from packtrain.transfer.api import FULL_RANGE, ByteRange
from packtrain.transfer.backends.pelican import director
from packtrain.transfer.backends.pelican.server import PelicanServerBackend, clamp_to_size
from packtrain.transfer.credentials import explain_withheld_token, find_token
from packtrain.transfer.http import webdav

LINK = (
    '<https://far:8443/a,b;c>; rel="duplicate"; pri=2; depth=3, '
    '<https://near:8443/a>; rel="duplicate"; pri=1; depth=3, '
    '<https://doc/>; rel="describedby", <https://last/a>; rel=duplicate'
)


def test_caches_are_sorted_by_priority():
    assert director.parse_duplicate_links(LINK) == ["https://near:8443/a", "https://far:8443/a,b;c", "https://last/a"]


def test_location_without_links():
    response = director.parse_director_response("https://one/x", None, None)
    assert (response.server_urls, response.needs_token, response.collections_url) == (("https://one/x",), False, None)


def test_namespace_header():
    header = "namespace=/ospool/ap40, require-token=true, collections-url=https://origin:8443"
    response = director.parse_director_response("https://one/x", '<https://two/x>; rel="duplicate"; pri=1', header)
    assert (response.server_urls, response.needs_token, response.collections_url) == (
        ("https://two/x",),
        True,
        "https://origin:8443",
    )


# Tokens


@pytest.fixture
def token_sources(tmp_path, monkeypatch):
    """Every source of tokens, with a token in each, in the order in which they are searched."""
    monkeypatch.chdir(tmp_path)
    if os.path.exists(f"/tmp/bt_u{os.getuid()}"):
        pytest.skip("the user who runs the tests has a token in /tmp")
    (tmp_path / ".condor_creds").mkdir()
    (tmp_path / "creds").mkdir()
    files = {
        "BEARER_TOKEN_FILE": tmp_path / "file",
        "XDG_RUNTIME_DIR": tmp_path / f"bt_u{os.getuid()}",
        "TOKEN": tmp_path / "other",
        "scitokens": tmp_path / "creds" / "scitokens.use",
        "first.use": tmp_path / "creds" / "a.use",
    }
    for name, path in files.items():
        path.write_text(f"{name}\n")
    (tmp_path / ".condor_creds" / "scitokens.use").write_text('{"access_token": "job folder", "expires_in": 1}')
    environ = {"BEARER_TOKEN": "BEARER_TOKEN", "_CONDOR_CREDS": str(tmp_path / "creds")}
    environ.update({name: str(files[name]) for name in ("BEARER_TOKEN_FILE", "TOKEN")}, XDG_RUNTIME_DIR=str(tmp_path))
    return environ, files


def test_token_search_order(token_sources):
    environ, files = token_sources
    assert find_token("osg-htc.org", environ) == "BEARER_TOKEN"
    del environ["BEARER_TOKEN"]
    for name, path in files.items():
        assert find_token("osg-htc.org", environ) == name
        path.unlink()
    assert find_token("osg-htc.org", environ) is None
    del environ["_CONDOR_CREDS"]
    assert find_token("osg-htc.org", environ) == "job folder"


def test_empty_token_is_skipped(token_sources):
    environ, files = token_sources
    environ["BEARER_TOKEN"] = " "
    files["BEARER_TOKEN_FILE"].write_text("\n")
    files["XDG_RUNTIME_DIR"].write_text('{"no token": 1}')
    assert find_token("osg-htc.org", environ) == "TOKEN"


def test_renewed_token_is_read(token_sources):
    environ, files = token_sources
    del environ["BEARER_TOKEN"]
    assert find_token("osg-htc.org", environ) == "BEARER_TOKEN_FILE"
    files["BEARER_TOKEN_FILE"].write_text("renewed")
    assert find_token("osg-htc.org", environ) == "renewed"


def jwt(claims: object) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.signature"


@pytest.mark.parametrize(
    ("token", "is_sent"),
    [
        (jwt({"iss": "https://fed.example.org/issuer"}), True),
        (jwt({"iss": "https://fed.example.org:8443"}), True),
        (jwt({"iss": "https://else.org", "aud": "https://fed.example.org"}), True),
        (jwt({"iss": "https://else.org", "aud": ["ANY", "fed.example.org:443"]}), True),
        (jwt({"iss": "https://else.org", "aud": "ANY"}), False),
        (jwt({"iss": "https://fed.example.org.evil.org"}), False),
        (jwt({"iss": "https://fed.example.org@evil.org"}), False),
        (jwt({"iss": 5, "aud": {"fed.example.org": 1}}), False),
        (jwt({}), False),
        (jwt([]), False),
        ("e30.e30.", False),
        ("a.%.b", False),
        ("macaroon", False),
    ],
)
def test_token_is_sent_to_its_federation_only(token, is_sent):
    environ = {"BEARER_TOKEN": token, "XDG_RUNTIME_DIR": "/nowhere", "_CONDOR_CREDS": "/nowhere"}
    assert find_token("Fed.Example.org:8444", environ) == (token if is_sent else None)
    assert bool(explain_withheld_token("fed.example.org", environ)) is not is_sent
    assert find_token("osg-htc.org", environ) == token
    assert find_token("", environ) is None


# Listings


def multistatus(*hrefs: str) -> str:
    rows = (
        f"<D:response><D:href>{href}</D:href><D:propstat><D:prop>"
        + ("<D:resourcetype><D:collection/></D:resourcetype>" if href.endswith("/") else "")
        + "<D:getcontentlength>7</D:getcontentlength></D:prop></D:propstat></D:response>"
        for href in hrefs
    )
    return f'<D:multistatus xmlns:D="DAV:">{"".join(rows)}</D:multistatus>'


def names(*hrefs: str) -> list:
    entries = webdav.parse_multistatus(multistatus(*hrefs), "https://h:1/data/some%20folder")
    return [(entry.name, entry.is_folder) for entry in entries]


def test_listed_names_are_unescaped():
    raw = names("/data/some folder/", "/data/some folder/ü %41.bin", "/data/some folder/deep er/")
    assert raw == [("deep er", True), ("ü %41.bin", False)]
    assert names("https://h:1/data/some%20folder/%C3%BC%20%2541.bin") == [("ü %41.bin", False)]


def test_listing_outside_the_folder_is_rejected():
    with pytest.raises(TransferError) as caught:
        names("/data/some folder/../../etc/passwd")
    assert caught.value.kind == "archive_unsafe"


def test_listing_is_not_xml():
    with pytest.raises(TransferError, match="not XML") as caught:
        webdav.parse_multistatus("<html><br></html>", "https://h/data")
    assert caught.value.kind == "unexpected_content"


# Ranges and trailers


@pytest.mark.parametrize(
    ("byte_range", "size", "expected"),
    [
        (ByteRange(5), 10, ByteRange(5, 10)),
        (ByteRange(0, 100), 10, ByteRange(0, 10)),
        (ByteRange(20, 30), 10, ByteRange(10, 10)),
        (ByteRange(2, 3), 10, ByteRange(2, 3)),
        (ByteRange(5), None, ByteRange(5)),
    ],
)
def test_ranges_are_clamped_to_the_size(byte_range, size, expected):
    assert clamp_to_size(byte_range, size) == expected


@pytest.fixture
def start_server():
    """Start a server that sends the next of these responses on each connection; returns its URL."""
    server = socket.create_server(("127.0.0.1", 0))
    received, threads = [], []

    def serve(responses: tuple[bytes, ...]) -> None:
        for response in responses:
            try:
                connection, _ = server.accept()
            except OSError:
                return  # the test is over
            with connection:
                received.append(connection.recv(1 << 16))
                connection.sendall(response)

    def start(*responses: bytes) -> str:
        threads.append(threading.Thread(target=serve, args=(responses,)))
        threads[-1].start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/x"

    start.received = received
    yield start
    server.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
    for thread in threads:
        thread.join()
    server.close()


def chunked(head: str, trailer: str) -> bytes:
    text = f"HTTP/1.1 {head}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    return f"{text}4\r\nbody\r\n0\r\n{trailer}\r\n".encode()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n"


def read_all(url: str, byte_range: ByteRange) -> bytes:
    stream = PelicanServerBackend(str, needs_token=False).open(Location(url), byte_range)
    try:
        return b"".join(iter(lambda: stream.read(100), b""))
    finally:
        stream.close()


def test_transfer_status_is_requested(start_server):
    assert read_all(start_server(chunked("200 OK", "X-Transfer-Status: 200: OK\r\n")), FULL_RANGE) == b"body"
    assert b"X-Transfer-Status: true" in start_server.received[0]
    assert b"TE: trailers" in start_server.received[0]


def test_size_by_get_if_head_is_rejected(start_server):
    denied = b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    partial = b"HTTP/1.1 206 Part\r\nContent-Length: %d\r\nContent-Range: bytes 0-%d/4\r\nConnection: close\r\n\r\n"
    url = start_server(denied, partial % (1, 0) + b"b", partial % (4, 3) + b"body")
    assert read_all(url, ByteRange(0, 100)) == b"body"
    assert [request.split(b" ")[0] for request in start_server.received] == [b"HEAD", b"GET", b"GET"]


def test_denial_is_not_repeated(start_server):
    denied = b"HTTP/1.1 403 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with pytest.raises(TransferError) as caught:
        read_all(start_server(*[denied] * 5), ByteRange(0, 100))
    assert caught.value.kind == "access_denied"
    assert len(start_server.received) == 2


def test_missing_trailer(start_server):
    assert read_all(start_server(chunked("200 OK", "")), FULL_RANGE) == b"body"


@pytest.mark.parametrize("byte_range", [FULL_RANGE, ByteRange(0, 4)])
def test_failure_in_trailer(start_server, byte_range):
    head = "206 Partial Content\r\nContent-Range: bytes 0-3/4" if byte_range != FULL_RANGE else "200 OK"
    response = chunked(head, "X-Transfer-Status: 500: cannot read from the origin\r\n")
    url = start_server(response) if byte_range == FULL_RANGE else start_server(HEAD, response)
    with pytest.raises(TransferError, match="500 cannot read from the origin") as caught:
        read_all(url, byte_range)
    assert caught.value.kind == "truncated"


def test_failure_in_trailer_without_reading_to_the_end(start_server):
    head = "206 Partial Content\r\nContent-Range: bytes 0-3/4"
    url = start_server(HEAD, chunked(head, "X-Transfer-Status: 502: gone\r\n"))
    stream = PelicanServerBackend(str, needs_token=False).open(Location(url), ByteRange(0, 4))
    with pytest.raises(TransferError, match="502 gone"):
        stream.readinto(memoryview(bytearray(4)))
    stream.close()
