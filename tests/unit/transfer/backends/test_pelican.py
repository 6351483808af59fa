"""What a director says, where tokens are looked for, what a folder lists, and what a server takes back in a trailer."""

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
from packtrain.transfer.bearer_tokens import explain_withheld_token, find_token
from packtrain.transfer.http import webdav

LINK = (
    '<https://far:8443/a,b;c>; rel="duplicate"; pri=2; depth=3, '
    '<https://near:8443/a>; rel="duplicate"; pri=1; depth=3, '
    '<https://doc/>; rel="describedby", <https://last/a>; rel=duplicate'
)


def test_caches_by_their_rank():
    assert director.parse_duplicate_links(LINK) == ["https://near:8443/a", "https://far:8443/a,b;c", "https://last/a"]


def test_without_links_the_location_is_all_there_is():
    given = director.parse_director_response("https://one/x", None, None)
    assert (given.server_urls, given.needs_token, given.collections_url) == (("https://one/x",), False, None)


def test_what_a_namespace_says():
    header = "namespace=/ospool/ap40, require-token=true, collections-url=https://origin:8443"
    given = director.parse_director_response("https://one/x", '<https://two/x>; rel="duplicate"; pri=1', header)
    assert (given.server_urls, given.needs_token, given.collections_url) == (
        ("https://two/x",),
        True,
        "https://origin:8443",
    )


# Tokens


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Every place that can hold a token, with one; in the order in which they are asked."""
    monkeypatch.chdir(tmp_path)
    if os.path.exists(f"/tmp/bt_u{os.getuid()}"):
        pytest.skip("whoever runs the tests has a token in /tmp")
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


def test_tokens_are_found_in_the_documented_order(places):
    environ, files = places
    assert find_token("osg-htc.org", environ) == "BEARER_TOKEN"
    del environ["BEARER_TOKEN"]
    for name, path in files.items():
        assert find_token("osg-htc.org", environ) == name
        path.unlink()
    assert find_token("osg-htc.org", environ) is None
    del environ["_CONDOR_CREDS"]
    assert find_token("osg-htc.org", environ) == "job folder"


def test_an_empty_token_is_none(places):
    environ, files = places
    environ["BEARER_TOKEN"] = " "
    files["BEARER_TOKEN_FILE"].write_text("\n")
    files["XDG_RUNTIME_DIR"].write_text('{"no token": 1}')
    assert find_token("osg-htc.org", environ) == "TOKEN"


def test_a_renewed_token_is_read_again(places):
    environ, files = places
    del environ["BEARER_TOKEN"]
    assert find_token("osg-htc.org", environ) == "BEARER_TOKEN_FILE"
    files["BEARER_TOKEN_FILE"].write_text("renewed")
    assert find_token("osg-htc.org", environ) == "renewed"


def jwt(claims: object) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.signature"


@pytest.mark.parametrize(
    ("token", "goes"),
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
def test_elsewhere_goes_what_says_that_it_is_meant_for_there(token, goes):
    environ = {"BEARER_TOKEN": token, "XDG_RUNTIME_DIR": "/nowhere", "_CONDOR_CREDS": "/nowhere"}
    assert find_token("Fed.Example.org:8444", environ) == (token if goes else None)
    assert bool(explain_withheld_token("fed.example.org", environ)) is not goes
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
    found = webdav.parse_multistatus(multistatus(*hrefs), "https://h:1/data/some%20folder")
    return [(entry.name, entry.is_folder) for entry in found]


def test_names_as_they_are_and_escaped():
    raw = names("/data/some folder/", "/data/some folder/ü %41.bin", "/data/some folder/deep er/")
    assert raw == [("deep er", True), ("ü %41.bin", False)]
    assert names("https://h:1/data/some%20folder/%C3%BC%20%2541.bin") == [("ü %41.bin", False)]


def test_a_listing_that_leaves_the_folder_is_refused():
    with pytest.raises(TransferError) as caught:
        names("/data/some folder/../../etc/passwd")
    assert caught.value.kind == "archive_unsafe"


def test_a_page_is_no_listing():
    with pytest.raises(TransferError, match="no XML") as caught:
        webdav.parse_multistatus("<html><br></html>", "https://h/data")
    assert caught.value.kind == "unexpected_content"


# Ranges and trailers


@pytest.mark.parametrize(
    ("span", "size", "expected"),
    [
        (ByteRange(5), 10, ByteRange(5, 10)),
        (ByteRange(0, 100), 10, ByteRange(0, 10)),
        (ByteRange(20, 30), 10, ByteRange(10, 10)),
        (ByteRange(2, 3), 10, ByteRange(2, 3)),
        (ByteRange(5), None, ByteRange(5)),
    ],
)
def test_ranges_end_with_the_object(span, size, expected):
    assert clamp_to_size(span, size) == expected


@pytest.fixture
def says():
    """A server that answers each connection with the next of these bytes; its address."""
    server = socket.create_server(("127.0.0.1", 0))
    heard, serving = [], []

    def serve(answers: tuple[bytes, ...]) -> None:
        for answer in answers:
            try:
                connection, _ = server.accept()
            except OSError:
                return  # the test is over
            with connection:
                heard.append(connection.recv(1 << 16))
                connection.sendall(answer)

    def start(*answers: bytes) -> str:
        serving.append(threading.Thread(target=serve, args=(answers,)))
        serving[-1].start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/x"

    start.heard = heard
    yield start
    server.shutdown(socket.SHUT_RDWR)  # wakes whoever accepts
    for thread in serving:
        thread.join()
    server.close()


def chunked(head: str, trailer: str) -> bytes:
    text = f"HTTP/1.1 {head}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    return f"{text}4\r\nbody\r\n0\r\n{trailer}\r\n".encode()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n"


def read_all(url: str, span: ByteRange) -> bytes:
    stream = PelicanServerBackend(str, needs_token=False).open(Location(url), span)
    try:
        return b"".join(iter(lambda: stream.read(100), b""))
    finally:
        stream.close()


def test_a_server_is_asked_for_the_status_and_a_good_one_passes(says):
    assert read_all(says(chunked("200 OK", "X-Transfer-Status: 200: OK\r\n")), FULL_RANGE) == b"body"
    assert b"X-Transfer-Status: true" in says.heard[0]
    assert b"TE: trailers" in says.heard[0]


def test_a_server_that_answers_no_head_is_asked_for_one_byte(says):
    refused = b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    ranged = b"HTTP/1.1 206 Part\r\nContent-Length: %d\r\nContent-Range: bytes 0-%d/4\r\nConnection: close\r\n\r\n"
    url = says(refused, ranged % (1, 0) + b"b", ranged % (4, 3) + b"body")
    assert read_all(url, ByteRange(0, 100)) == b"body"
    assert [request.split(b" ")[0] for request in says.heard] == [b"HEAD", b"GET", b"GET"]


def test_a_refusal_is_told_and_not_asked_for_ever(says):
    refused = b"HTTP/1.1 403 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with pytest.raises(TransferError) as caught:
        read_all(says(*[refused] * 5), ByteRange(0, 100))
    assert caught.value.kind == "access_denied"
    assert len(says.heard) == 2


def test_no_trailer_is_no_failure(says):
    assert read_all(says(chunked("200 OK", "")), FULL_RANGE) == b"body"


@pytest.mark.parametrize("span", [FULL_RANGE, ByteRange(0, 4)])
def test_a_failure_behind_the_body_is_a_failed_transfer(says, span):
    head = "206 Partial Content\r\nContent-Range: bytes 0-3/4" if span != FULL_RANGE else "200 OK"
    answer = chunked(head, "X-Transfer-Status: 500: cannot read from the origin\r\n")
    url = says(answer) if span == FULL_RANGE else says(HEAD, answer)
    with pytest.raises(TransferError, match="500 cannot read from the origin") as caught:
        read_all(url, span)
    assert caught.value.kind == "truncated"


def test_whoever_reads_only_what_was_promised_hears_of_it_too(says):
    head = "206 Partial Content\r\nContent-Range: bytes 0-3/4"
    url = says(HEAD, chunked(head, "X-Transfer-Status: 502: gone\r\n"))
    stream = PelicanServerBackend(str, needs_token=False).open(Location(url), ByteRange(0, 4))
    with pytest.raises(TransferError, match="502 gone"):
        stream.readinto(memoryview(bytearray(4)))
    stream.close()
