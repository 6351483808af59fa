"""fetch verifies a file with the digest of the user or the server, and downloads a wrong file again."""

from __future__ import annotations

import hashlib
import os

import pytest

from packtrain.plan import Digest
from packtrain.transfer.integrity import crc32c
from testbed.http_server import HttpServer, ResponseFault
from tests.support.fetches import (
    CRC32C,
    DATA,
    FILENAME,
    MD5,
    SHA256,
    copy_with_other_etag,
    fetch_error,
    fetch_file,
    make_remote_file,
    requested_ranges,
)


@pytest.fixture
def no_crc32c(monkeypatch):
    """Hide compiled CRC-32C modules, which may be installed."""
    monkeypatch.setattr(crc32c, "find_extend", lambda: None)


def test_wrong_digest_is_downloaded_again(folder, target):
    with HttpServer(folder, faults=[ResponseFault(corrupt_offset=500_000)]) as server:
        result = fetch_file(make_remote_file(f"{server.url}/{FILENAME}", digest=SHA256), target)
    assert target.read_bytes() == DATA
    assert result.retries == 1
    assert requested_ranges(server) == ["bytes=0-4194303"] * 2


def test_wrong_digest_uses_other_source(folder, target):
    bad = copy_with_other_etag(folder, "bad", bytes(len(DATA)))
    with HttpServer(bad) as first, HttpServer(folder) as second:
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}", digest=SHA256), target)
    assert target.read_bytes() == DATA
    assert (len(first.requests), len(second.requests)) == (1, 1)


def test_digest_wrong_twice(folder, target):
    expected = Digest("sha256", "0" * 64)
    with HttpServer(folder) as server:
        error = fetch_error(make_remote_file(f"{server.url}/{FILENAME}", digest=expected), target, 60)
    assert error.kind == "digest_mismatch"
    assert SHA256.value in error.detail and expected.value in error.detail
    assert len(server.requests) == 2
    assert os.listdir(target.parent) == []


def test_digest_of_server(folder, target):
    import base64

    md5 = base64.b64encode(hashlib.md5(DATA).digest()).decode()
    faults = [ResponseFault(corrupt_offset=1)]
    with HttpServer(folder, headers={"Content-MD5": md5}, faults=faults) as server:
        assert fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target).retries == 1
    assert target.read_bytes() == DATA


@pytest.mark.parametrize("digest", [MD5, CRC32C])
def test_md5_and_crc32c(folder, target, digest):
    with HttpServer(folder) as server:
        assert (
            fetch_file(make_remote_file(f"{server.url}/{FILENAME}", digest=digest), target).verified_by
            == digest.algorithm
        )


def test_wrong_crc32c_uses_other_source(folder, target):
    bad = copy_with_other_etag(folder, "bad", bytes(len(DATA)))
    with HttpServer(bad) as first, HttpServer(folder) as second:
        result = fetch_file(
            make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}", digest=CRC32C), target
        )
    assert target.read_bytes() == DATA
    assert (result.verified_by, result.retries) == ("crc32c", 1)
    assert (len(first.requests), len(second.requests)) == (1, 1)


def test_crc32c_wrong_on_all_sources(folder, target):
    with HttpServer(folder) as first, HttpServer(folder) as second:
        remote_file = make_remote_file(
            f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}", digest=Digest("crc32c", "00000000")
        )
        error = fetch_error(remote_file, target, 60)
    assert error.kind == "digest_mismatch"
    assert CRC32C.value in error.detail and "00000000" in error.detail
    assert (len(first.requests), len(second.requests)) == (1, 1)


@pytest.mark.parametrize("is_mirror_right", [True, False])
def test_digest_of_first_server_applies_to_mirror(folder, target, is_mirror_right):
    """Otherwise a second download from a server without digest would be accepted whatever its content."""
    bad = copy_with_other_etag(folder, "bad", bytes(len(DATA)))
    mirrored = folder if is_mirror_right else copy_with_other_etag(folder, "worse", b"x" * len(DATA))
    with HttpServer(bad, headers={"Digest": f"crc32c={CRC32C.value}"}) as first, HttpServer(mirrored) as second:
        remote_file = make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}")
        if is_mirror_right:
            assert fetch_file(remote_file, target).verified_by == "crc32c"
            assert target.read_bytes() == DATA
        else:
            assert fetch_error(remote_file, target, 60).kind == "digest_mismatch"
    assert (len(first.requests), len(second.requests)) == (1, 1)


@pytest.mark.usefixtures("no_crc32c")
def test_crc32c_is_rejected_without_module(folder, target):
    with HttpServer(folder) as server:
        error = fetch_error(make_remote_file(f"{server.url}/{FILENAME}", digest=CRC32C), target, 60)
    assert error.kind == "unsupported"
    assert error.detail == (
        f"the crc32c of {FILENAME} cannot be checked: Python has no crc32c, and no module such as google-crc32c is "
        "installed; state its sha256 or md5 instead"
    )
    assert not server.requests
    assert not target.parent.exists()


@pytest.mark.usefixtures("no_crc32c")
def test_crc32c_of_server_is_ignored_without_module(folder, target):
    with HttpServer(folder, headers={"Digest": "crc32c=00000000"}) as server:
        assert fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target).verified_by == ""
    assert target.read_bytes() == DATA
