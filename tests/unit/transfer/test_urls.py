"""URLs: redaction, joining, the backend of each scheme, and lazy imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Location, S3Access
from packtrain.transfer.backends.file import FileBackend
from packtrain.transfer.backends.http import HttpBackend
from packtrain.transfer.backends.pelican import backend as pelican
from packtrain.transfer.backends.pelican.backend import PelicanBackend
from packtrain.transfer.backends.s3 import client, multipart
from packtrain.transfer.backends.s3.backend import S3Backend
from packtrain.transfer.registry import get_sink, get_source
from packtrain.transfer.urls import append_to_url_path, check_listed_name, join_url, redact_url, url_origin


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://host/a/b.tar", "https://host/a/b.tar"),
        ("https://me:pa%40ss@host:8443/a?X-Amz-Signature=abc&x=1#f", "https://host:8443/a?…"),
        ("https://me:p@ss@host/a", "https://host/a"),
        ("https://host?token=abc", "https://host?…"),
        ("https://host/a@b", "https://host/a@b"),
        ("s3://bucket/key?with#odd@chars", "s3://bucket/key?with#odd@chars"),
        ("osdf:///nrp/x", "osdf:///nrp/x"),
        ("file:///a/b", "file:///a/b"),
    ],
)
def test_redact_url(url, expected):
    assert redact_url(url) == expected


@pytest.mark.parametrize(
    ("url", "name", "expected"),
    [
        ("file:///a/", "b c/ü", "file:///a/b%20c/%C3%BC"),
        ("s3://bucket", "b c%/ü", "s3://bucket/b c%/ü"),
        ("https://h/x", "", "https://h/x"),
    ],
)
def test_join_url(url, name, expected):
    assert join_url(url, name) == expected


def test_url_origin_default_ports():
    assert url_origin("https://Host/x") == url_origin("https://host:443/y")
    assert url_origin("https://host/") != url_origin("http://host/")


@pytest.mark.parametrize("name", ["", "/abs", "../x", "a/../b", "a//b", "./a", "a\0b"])
def test_unsafe_listed_names(name):
    with pytest.raises(TransferError) as caught:
        check_listed_name(name, "s3://b/p")
    assert caught.value.kind == "archive_unsafe"


@pytest.mark.parametrize(
    ("url", "backend"),
    [
        ("file:///x", FileBackend),
        ("http://h/x", HttpBackend),
        ("HTTPS://h/x", HttpBackend),
        ("s3://b/k", S3Backend),
        ("osdf:///x", PelicanBackend),
        ("pelican://h/x", PelicanBackend),
    ],
)
def test_backend_of_scheme(url, backend):
    assert type(get_source(Location(url), str)) is type(get_sink(Location(url), str)) is backend


@pytest.mark.parametrize("url", ["ftp://h/x", "x", ""])
def test_unknown_scheme(url):
    with pytest.raises(FailedError, match="not one of file, http") as caught:
        get_source(Location(url), str)
    assert caught.value.kind == "unsupported"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("osdf:///nrp/x/y", ("osg-htc.org", "/nrp/x/y")),
        ("osdf://nrp/x/y", ("osg-htc.org", "/nrp/x/y")),
        ("pelican://fed:8444/nrp/x?directread", ("fed:8444", "/nrp/x?directread")),
    ],
)
def test_parse_pelican_url(url, expected):
    assert pelican.parse_pelican_url(url) == expected


def test_s3_without_endpoint():
    with pytest.raises(TransferError, match="no S3 endpoint"):
        S3Backend(str).stat(Location("s3://b/k"))


@pytest.mark.parametrize(
    ("endpoint", "bucket", "expected"),
    [
        ("http://127.0.0.1:9000", "b", "http://127.0.0.1:9000/b/k%20%C3%BC?x=1"),
        ("https://gate.example/s3/", "b", "https://gate.example/s3/b/k%20%C3%BC?x=1"),
        ("https://s3.us-east-2.amazonaws.com", "b", "https://b.s3.us-east-2.amazonaws.com/k%20%C3%BC?x=1"),
        ("https://s3.us-east-2.amazonaws.com", "b.c", "https://s3.us-east-2.amazonaws.com/b.c/k%20%C3%BC?x=1"),
        ("https://b.s3.example.org:8443", "b", "https://b.s3.example.org:8443/k%20%C3%BC?x=1"),
    ],
)
def test_s3_object_url(endpoint, bucket, expected):
    assert client.object_url(Location(f"s3://{bucket}/k ü", s3=S3Access("r", endpoint)), {"x": "1"}) == expected


@pytest.mark.parametrize("size", [1, 16 << 20, (16 << 20) + 1, 5 << 40])
def test_multipart_slices(tmp_path, size):
    with open(tmp_path / "big", "wb") as file:
        file.truncate(size)
    slices = multipart.split_into_slices(tmp_path / "big")
    ends = [part.start + part.length for part in slices]
    assert [0, *ends[:-1]] == [part.start for part in slices]
    assert ends[-1] == size
    assert len(slices) <= 10_000
    assert all(5 << 20 <= part.length <= 5 << 30 for part in slices[:-1])


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://h/a", "https://h/a.x"),
        ("https://h/a?sig=1/2#f", "https://h/a.x?sig=1/2#f"),
        ("https://h/a#f?g", "https://h/a.x#f?g"),
    ],
)
def test_append_to_url_path(url, expected):
    assert append_to_url_path(url, ".x") == expected


def test_heavy_modules_are_imported_lazily():
    program = (
        "import sys\n"
        "from packtrain.transfer import fetch, registry, upload; from packtrain.transfer.archive import unpack\n"
        "heavy = {'ssl', 'http.client', 'tarfile', 'zipfile', 'hashlib', 'lzma', 'email', 'xml.etree', 'tempfile'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, env=_environment())
    assert (process.stdout.strip(), process.stderr) == ("", "")


def _environment() -> dict:
    from pathlib import Path

    import packtrain

    return {"PYTHONPATH": str(Path(packtrain.__file__).parents[1])}
