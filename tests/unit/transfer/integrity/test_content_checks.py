"""Content checks, digests and retry decisions."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Digest
from packtrain.transfer.integrity.content_checks import detect_error_page, detect_wrong_format
from packtrain.transfer.integrity.digests import Digests, sha256_file

HTML = b"<!doctype html><html><head><title>Sign in</title></head>"


def find_problem(name: str, head: bytes, content_type: str | None = None, has_digest: bool = False) -> str | None:
    return detect_error_page(name, head, content_type) or detect_wrong_format(name, head, has_digest)


@pytest.mark.parametrize(
    ("name", "head", "content_type", "message"),
    [
        ("x.tar.gz", HTML, "text/html", "Sign in"),
        ("x.tar.gz", HTML, "application/gzip", "Sign in"),
        ("X.ZIP", b"\n <html><body><h1>502 Bad Gateway</h1></body></html>", None, "502 Bad Gateway"),
        ("x.tgz", b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>", None, "NoSuchKey"),
        ("x.tar", b'{"status":"error","msg":"No namespace found"}', None, "No namespace found"),
        ("model.pt", HTML, "text/html; charset=utf-8", "Sign in"),
        ("data.csv", HTML, "text/html", "Sign in"),
        ("x.zip", b"", None, "empty"),
        ("x.tar.gz", b"404 page not found\n", "text/plain", "404 page not found"),
        ("x.tar", b"[section]\n", None, "[section]"),
        ("x.npy", "Zugriff verweigert: Überlast".encode()[:21], None, "Zugriff verweigert"),
        ("x.tar.gz", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a", None, "git-lfs"),
        ("x.tar.gz", bytes(1024), None, "not an archive"),
        ("x.tar", b"\x9c" + bytes(1023), None, "not an archive"),
        ("x.tar", bytes(511), None, "not an archive"),
        ("x.7z", b"\0\1\2", None, "state its sha256"),
        ("x.zip", b"<html>" + b"word " * 99, None, "word word"),
    ],
)
def test_wrong_content_is_detected(name, head, content_type, message):
    problem = find_problem(name, head, content_type)
    assert problem is not None
    assert message in problem
    assert name in problem
    assert len(problem) < 200


@pytest.mark.parametrize(
    ("name", "head", "content_type"),
    [
        ("x.tar.gz", b"\x1f\x8b\x08\x00", "text/html"),
        ("x.tar.gz", b"PK\x03\x04", "text/html"),
        ("x.tar.gz", bytes(range(256)) * 4, None),
        ("page.html", HTML, "text/html"),
        ("feed.xml", b"<?xml version='1.0'?>", "text/xml"),
        ("labels.json", b'{"a": 1}', "application/json"),
        ("data.csv", b"a,b\n1,2\n", "text/html"),
        ("data.csv", HTML, "text/csv"),
        ("notes", b"", None),
        ("model.pt", b"(dp0\nS'weight'\n", None),
        ("notes.bin", b"as you like", None),
        ("labels", b"404 page not found\n", None),
    ],
)
def test_plausible_content_is_accepted(name, head, content_type):
    assert find_problem(name, head, content_type, has_digest=True) is None


def make_archive(archive_format: str, members: dict[str, bytes]) -> bytes:
    """An archive made by the standard library."""
    buffer = io.BytesIO()
    if archive_format == "zip":
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, data in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}.get(archive_format, bytes)(buffer.getvalue())


def remove_magic(tar: bytes) -> bytes:
    """The tar as V7 tar would write it: without magic, but with a checksum."""
    block = bytearray(tar[:512])
    block[257:265] = bytes(8)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + tar[512:]


@pytest.mark.parametrize("members", [{}, {"a": b"text"}])
@pytest.mark.parametrize("archive_format", ["tar", "zip", "gz", "bz2", "xz"])
@pytest.mark.parametrize("name", ["x.tar", "x.tgz", "x.zip"])
def test_archive_with_other_suffix_is_accepted(name, archive_format, members):
    if (archive_format, members) == ("tar", {}) and name != "x.tar":
        return  # only zeros, like a sparse file
    assert find_problem(name, make_archive(archive_format, members)[:1024]) is None


def test_v7_tar_is_accepted():
    assert find_problem("x.tar", remove_magic(make_archive("tar", {"a": b"text"}))[:1024]) is None


def test_digests(tmp_path):
    digests = Digests(*(Digest(name, "") for name in ("md5", "adler32", "crc32", "crc32c")), None)
    for chunk in (b"ab", b"", b"c"):
        digests.update(chunk)
    assert digests.hexdigest("sha256") == hashlib.sha256(b"abc").hexdigest()
    assert digests.hexdigest("md5") == hashlib.md5(b"abc").hexdigest()
    assert digests.hexdigest("adler32") == "024d0127"
    assert digests.hexdigest("crc32") == "352441c2"
    assert digests.hexdigest("crc32c") == "364b3fb7"
    (tmp_path / "f").write_bytes(b"abc")
    assert sha256_file(tmp_path / "f") == digests.hexdigest("sha256")
    with pytest.raises(FailedError, match="'sha1' is not one of"):
        Digests(Digest("sha1", "00"))
