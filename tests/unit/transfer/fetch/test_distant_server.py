"""From a server that is far away a file comes in smaller blocks; parts of either kind are gone on with anywhere."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from packtrain.plan import Digest
from packtrain.transfer.block_checksums import make_checksums
from packtrain.transfer.engine.resume_log import DEFAULT_BLOCK_BYTES, HIGH_LATENCY_BLOCK_BYTES
from packtrain.transfer.fetch import fetch
from packtrain.transfer.http.connection import Http11Connection
from testbed.http_server import HttpServer, ResponseFault
from tests.support.fetches import FILENAME, fetch_error, fetch_file, make_remote_file, requested_ranges

LARGE = os.urandom(3 * DEFAULT_BLOCK_BYTES + 1234)
SHA256 = Digest("sha256", hashlib.sha256(LARGE).hexdigest())
FAR_S, NEAR_S = 0.05, 0.001


@pytest.fixture
def large(folder: Path) -> Path:
    (folder / FILENAME).write_bytes(LARGE)
    return folder


@pytest.fixture
def distance(monkeypatch):
    return lambda seconds: monkeypatch.setattr(Http11Connection, "_measure_round_trip_s", lambda self: seconds)


def block_of(target: Path) -> int:
    with open(target.with_name(f"{FILENAME}.part.resume"), "rb") as ledger:
        return int(json.loads(ledger.readline())["block_bytes"])


@pytest.mark.parametrize("digest", [None, SHA256])
def test_it_is_the_same_file(large, target, distance, digest):
    distance(FAR_S)
    with HttpServer(large) as origin:
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}", digest=digest), target)
    assert target.read_bytes() == LARGE


@pytest.mark.parametrize(
    ("first", "then", "block"), [(FAR_S, NEAR_S, HIGH_LATENCY_BLOCK_BYTES), (NEAR_S, FAR_S, DEFAULT_BLOCK_BYTES)]
)
def test_a_part_from_far_is_gone_on_with_near_and_the_other_way_round(large, target, distance, first, then, block):
    distance(first)
    with HttpServer(
        large, faults=[ResponseFault(close_after_bytes=2 * DEFAULT_BLOCK_BYTES), *[ResponseFault(status=503)] * 99]
    ) as origin:
        fetch_error(make_remote_file(f"{origin.url}/{FILENAME}"), target)
    assert block_of(target) == block
    distance(then)
    with HttpServer(large) as origin:
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}", digest=SHA256), target)
    assert target.read_bytes() == LARGE
    assert min(int(asked.split("=")[1].split("-")[0]) for asked in requested_ranges(origin)) == 2 * DEFAULT_BLOCK_BYTES


def test_checksums_have_the_last_word(large, target, distance):
    """They are of whole blocks of theirs; a part of smaller ones is of no use to them."""
    distance(FAR_S)
    with HttpServer(
        large, faults=[ResponseFault(close_after_bytes=2 * DEFAULT_BLOCK_BYTES), *[ResponseFault(status=503)] * 99]
    ) as origin:
        fetch_error(make_remote_file(f"{origin.url}/{FILENAME}"), target)
    manner = {"retry_timeout_s": 5.0, "check_cancelled": lambda: None, "on_progress": lambda done, total: None}
    with HttpServer(large) as origin:
        checksums = make_checksums(large / FILENAME)
        fetch(make_remote_file(f"{origin.url}/{FILENAME}"), target, str, checksums=checksums, **manner)
    assert target.read_bytes() == LARGE
    assert "bytes=0-4194303" in requested_ranges(origin)
