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

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Digest
from packtrain.transfer.integrity.content_checks import detect_error_page, detect_wrong_format
from packtrain.transfer.integrity.digests import Digests, sha256_file
from packtrain.transfer.retry import RetryTracker

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


def make_error(kind: str, detail: str = "") -> TransferError:
    return TransferError(kind, detail or kind, "src")


def test_backoff_grows_until_retry_timeout():
    retry_tracker, now, waits = RetryTracker(100.0, 1, 0.0), 0.0, []
    retry_tracker.record_failure(0, make_error("service_unavailable"))
    while True:
        wait = retry_tracker.next_wait_s(now)
        if wait is None:
            break
        waits.append(wait)
        now += wait
    assert now == 100.0
    assert waits[:3] == [0.25, 0.5, 1.0]
    assert max(waits) == 15.0


def test_progress_restarts_retry_timeout():
    retry_tracker = RetryTracker(10.0, 1, 0.0)
    retry_tracker.record_failure(0, make_error("truncated"))
    retry_tracker.record_progress(9.0)
    assert retry_tracker.next_wait_s(18.0) == 0.25
    assert retry_tracker.next_wait_s(19.0) is None


def test_permanent_failures_are_not_retried():
    retry_tracker = RetryTracker(100.0, 2, 0.0)
    retry_tracker.record_failure(0, make_error("access_denied"))
    assert retry_tracker.usable_sources() == (1,)
    assert retry_tracker.next_wait_s(0.0) is not None
    retry_tracker.record_failure(1, make_error("certificate_invalid"))
    assert retry_tracker.next_wait_s(0.0) is None


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["object_missing", "object_missing"], "object_missing"),
        (["object_missing", "service_unavailable"], "service_unavailable"),
        (["object_missing", "host_unknown"], "host_unknown"),
        (["service_unavailable", "access_denied"], "access_denied"),
        (["truncated", "unexpected_content"], "unexpected_content"),
    ],
)
def test_combined_error(kinds, expected):
    retry_tracker = RetryTracker(0.0, len(kinds), 0.0)
    for index, kind in enumerate(kinds):
        retry_tracker.record_failure(index, make_error(kind, f"source {index}: {kind}"))
    assert retry_tracker.final_error().kind == expected
    assert all(f"source {index}" in retry_tracker.final_error().detail for index in range(len(kinds)))
