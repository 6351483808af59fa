"""fetch verifies what came, by the user's digest or the server's, and asks elsewhere for what is wrong."""

from __future__ import annotations

import hashlib
import os

import pytest

from packtrain.plan import Digest
from packtrain.transfer import crc32c
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
def no_module(monkeypatch):
    """Whoever runs the tests may have one."""
    monkeypatch.setattr(crc32c, "_find_native_extend", lambda: None)


def test_a_wrong_digest_is_fetched_once_more_from_zero(folder, target):
    with HttpServer(folder, faults=[ResponseFault(corrupt_offset=500_000)]) as origin:
        done = fetch_file(make_remote_file(f"{origin.url}/{FILENAME}", digest=SHA256), target)
    assert target.read_bytes() == DATA
    assert done.retries == 1
    assert requested_ranges(origin) == ["bytes=0-4194303"] * 2


def test_a_wrong_digest_is_fetched_from_the_other_source(folder, target):
    bad = copy_with_other_etag(folder, "bad", bytes(len(DATA)))
    with HttpServer(bad) as first, HttpServer(folder) as second:
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}", digest=SHA256), target)
    assert target.read_bytes() == DATA
    assert (len(first.requests), len(second.requests)) == (1, 1)


def test_a_digest_that_is_wrong_twice(folder, target):
    wanted = Digest("sha256", "0" * 64)
    with HttpServer(folder) as origin:
        error = fetch_error(make_remote_file(f"{origin.url}/{FILENAME}", digest=wanted), target, 60)
    assert error.kind == "digest_mismatch"
    assert SHA256.value in error.detail and wanted.value in error.detail
    assert len(origin.requests) == 2
    assert os.listdir(target.parent) == []


def test_the_digest_of_the_server_counts_where_the_user_has_none(folder, target):
    import base64

    md5 = base64.b64encode(hashlib.md5(DATA).digest()).decode()
    faults = [ResponseFault(corrupt_offset=1)]
    with HttpServer(folder, headers={"Content-MD5": md5}, faults=faults) as origin:
        assert fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target).retries == 1
    assert target.read_bytes() == DATA


@pytest.mark.parametrize("digest", [MD5, CRC32C])
def test_other_digests_of_the_user(folder, target, digest):
    with HttpServer(folder) as origin:
        assert (
            fetch_file(make_remote_file(f"{origin.url}/{FILENAME}", digest=digest), target).verified_by
            == digest.algorithm
        )


def test_a_wrong_crc32c_is_fetched_from_the_other_source(folder, target):
    bad = copy_with_other_etag(folder, "bad", bytes(len(DATA)))
    with HttpServer(bad) as first, HttpServer(folder) as second:
        done = fetch_file(
            make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}", digest=CRC32C), target
        )
    assert target.read_bytes() == DATA
    assert (done.verified_by, done.retries) == ("crc32c", 1)
    assert (len(first.requests), len(second.requests)) == (1, 1)


def test_a_crc32c_that_is_wrong_everywhere(folder, target):
    with HttpServer(folder) as first, HttpServer(folder) as second:
        thing = make_remote_file(
            f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}", digest=Digest("crc32c", "00000000")
        )
        error = fetch_error(thing, target, 60)
    assert error.kind == "digest_mismatch"
    assert CRC32C.value in error.detail and "00000000" in error.detail
    assert (len(first.requests), len(second.requests)) == (1, 1)


@pytest.mark.parametrize("right", [True, False])
def test_what_the_first_server_stated_binds_a_mirror_that_states_nothing(folder, target, right):
    """Else the second download would count whatever it is, only because nobody says what it should be."""
    bad = copy_with_other_etag(folder, "bad", bytes(len(DATA)))
    mirrored = folder if right else copy_with_other_etag(folder, "worse", b"x" * len(DATA))
    with HttpServer(bad, headers={"Digest": f"crc32c={CRC32C.value}"}) as first, HttpServer(mirrored) as second:
        thing = make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}")
        if right:
            assert fetch_file(thing, target).verified_by == "crc32c"
            assert target.read_bytes() == DATA
        else:
            assert fetch_error(thing, target, 60).kind == "digest_mismatch"
    assert (len(first.requests), len(second.requests)) == (1, 1)


@pytest.mark.usefixtures("no_module")
def test_a_crc32c_of_too_much_is_refused_before_anything_comes(folder, target):
    size = crc32c.MAX_PURE_PYTHON_BYTES + 1
    os.truncate(folder / FILENAME, size)
    with HttpServer(folder) as origin:
        error = fetch_error(make_remote_file(f"{origin.url}/{FILENAME}", digest=CRC32C), target, 60)
    assert error.kind == "unsupported"
    assert error.detail == (
        f"{FILENAME} has {size} bytes, and computing a crc32c of more than 1 GiB takes too long without a module "
        "such as google-crc32c; state its sha256 or md5 instead"
    )
    assert len(origin.requests) == 1
    assert not target.parent.exists()


@pytest.mark.usefixtures("no_module")
def test_a_servers_crc32c_of_too_much_is_not_called_verified(folder, target, monkeypatch):
    monkeypatch.setattr(crc32c, "MAX_PURE_PYTHON_UNREQUESTED_BYTES", len(DATA) - 1)
    with HttpServer(folder, headers={"Digest": "crc32c=00000000"}) as origin:
        assert fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target).verified_by == ""
    assert target.read_bytes() == DATA
