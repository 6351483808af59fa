"""fetch verifies what came, by the user's digest or the server's, and asks elsewhere for what is wrong."""

from __future__ import annotations

import hashlib
import os

import pytest

from packtrain.plan import Digest
from packtrain.transfer import crc32c
from testbed.http_server import Fault, Origin
from tests.support.fetches import CRC32C, DATA, MD5, NAME, SHA256, failure, item, other_etag, ranges, run


@pytest.fixture
def no_module(monkeypatch):
    """Whoever runs the tests may have one."""
    monkeypatch.setattr(crc32c, "_fast", lambda: None)


def test_a_wrong_digest_is_fetched_once_more_from_zero(folder, target):
    with Origin(folder, faults=[Fault(corrupt_at=500_000)]) as origin:
        done = run(item(f"{origin.url}/{NAME}", digest=SHA256), target)
    assert target.read_bytes() == DATA
    assert done.retries == 1
    assert ranges(origin) == ["bytes=0-4194303"] * 2


def test_a_wrong_digest_is_fetched_from_the_other_source(folder, target):
    bad = other_etag(folder, "bad", bytes(len(DATA)))
    with Origin(bad) as first, Origin(folder) as second:
        run(item(f"{first.url}/{NAME}", f"{second.url}/{NAME}", digest=SHA256), target)
    assert target.read_bytes() == DATA
    assert (len(first.seen), len(second.seen)) == (1, 1)


def test_a_digest_that_is_wrong_twice(folder, target):
    wanted = Digest("sha256", "0" * 64)
    with Origin(folder) as origin:
        error = failure(item(f"{origin.url}/{NAME}", digest=wanted), target, 60)
    assert error.kind == "digest_mismatch"
    assert SHA256.value in error.detail and wanted.value in error.detail
    assert len(origin.seen) == 2
    assert os.listdir(target.parent) == []


def test_the_digest_of_the_server_counts_where_the_user_has_none(folder, target):
    import base64

    md5 = base64.b64encode(hashlib.md5(DATA).digest()).decode()
    faults = [Fault(corrupt_at=1)]
    with Origin(folder, headers={"Content-MD5": md5}, faults=faults) as origin:
        assert run(item(f"{origin.url}/{NAME}"), target).retries == 1
    assert target.read_bytes() == DATA


@pytest.mark.parametrize("digest", [MD5, CRC32C])
def test_other_digests_of_the_user(folder, target, digest):
    with Origin(folder) as origin:
        assert run(item(f"{origin.url}/{NAME}", digest=digest), target).verified_by == digest.algorithm


def test_a_wrong_crc32c_is_fetched_from_the_other_source(folder, target):
    bad = other_etag(folder, "bad", bytes(len(DATA)))
    with Origin(bad) as first, Origin(folder) as second:
        done = run(item(f"{first.url}/{NAME}", f"{second.url}/{NAME}", digest=CRC32C), target)
    assert target.read_bytes() == DATA
    assert (done.verified_by, done.retries) == ("crc32c", 1)
    assert (len(first.seen), len(second.seen)) == (1, 1)


def test_a_crc32c_that_is_wrong_everywhere(folder, target):
    with Origin(folder) as first, Origin(folder) as second:
        thing = item(f"{first.url}/{NAME}", f"{second.url}/{NAME}", digest=Digest("crc32c", "00000000"))
        error = failure(thing, target, 60)
    assert error.kind == "digest_mismatch"
    assert CRC32C.value in error.detail and "00000000" in error.detail
    assert (len(first.seen), len(second.seen)) == (1, 1)


@pytest.mark.parametrize("right", [True, False])
def test_what_the_first_server_stated_binds_a_mirror_that_states_nothing(folder, target, right):
    """Else the second download would count whatever it is, only because nobody says what it should be."""
    bad = other_etag(folder, "bad", bytes(len(DATA)))
    mirrored = folder if right else other_etag(folder, "worse", b"x" * len(DATA))
    with Origin(bad, headers={"Digest": f"crc32c={CRC32C.value}"}) as first, Origin(mirrored) as second:
        thing = item(f"{first.url}/{NAME}", f"{second.url}/{NAME}")
        if right:
            assert run(thing, target).verified_by == "crc32c"
            assert target.read_bytes() == DATA
        else:
            assert failure(thing, target, 60).kind == "digest_mismatch"
    assert (len(first.seen), len(second.seen)) == (1, 1)


@pytest.mark.usefixtures("no_module")
def test_a_crc32c_of_too_much_is_refused_before_anything_comes(folder, target):
    size = crc32c.MOST_BYTES + 1
    os.truncate(folder / NAME, size)
    with Origin(folder) as origin:
        error = failure(item(f"{origin.url}/{NAME}", digest=CRC32C), target, 60)
    assert error.kind == "unsupported"
    assert error.detail == (
        f"{NAME} has {size} bytes, and to compute a crc32c of more than 1 GiB would take too long without a module "
        "such as google-crc32c: give its sha256 or md5"
    )
    assert len(origin.seen) == 1
    assert not target.parent.exists()


@pytest.mark.usefixtures("no_module")
def test_a_servers_crc32c_of_too_much_is_not_called_verified(folder, target, monkeypatch):
    monkeypatch.setattr(crc32c, "MOST_UNASKED", len(DATA) - 1)
    with Origin(folder, headers={"Digest": "crc32c=00000000"}) as origin:
        assert run(item(f"{origin.url}/{NAME}"), target).verified_by == ""
    assert target.read_bytes() == DATA
