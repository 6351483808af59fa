"""A distant server sends a file in smaller blocks; partial files of either block size can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from packtrain.plan import Digest
from packtrain.transfer.engine.resume_log import DEFAULT_BLOCK_BYTES, HIGH_LATENCY_BLOCK_BYTES
from packtrain.transfer.fetch import fetch
from packtrain.transfer.http.connection import Http11Connection
from packtrain.transfer.integrity.block_checksums import make_checksums
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
def set_round_trip_s(monkeypatch):
    return lambda round_trip_s: monkeypatch.setattr(Http11Connection, "measure_round_trip_s", lambda self: round_trip_s)


def read_block_bytes(target: Path) -> int:
    with open(target.with_name(f"{FILENAME}.part.resume"), "rb") as resume_log:
        return int(json.loads(resume_log.readline())["block_bytes"])


@pytest.mark.parametrize("digest", [None, SHA256])
def test_distant_download(large, target, set_round_trip_s, digest):
    set_round_trip_s(FAR_S)
    with HttpServer(large) as server:
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}", digest=digest), target)
    assert target.read_bytes() == LARGE


@pytest.mark.parametrize(
    ("first", "second", "block"), [(FAR_S, NEAR_S, HIGH_LATENCY_BLOCK_BYTES), (NEAR_S, FAR_S, DEFAULT_BLOCK_BYTES)]
)
def test_resume_with_other_distance(large, target, set_round_trip_s, first, second, block):
    set_round_trip_s(first)
    with HttpServer(
        large, faults=[ResponseFault(close_after_bytes=2 * DEFAULT_BLOCK_BYTES), *[ResponseFault(status=503)] * 99]
    ) as server:
        fetch_error(make_remote_file(f"{server.url}/{FILENAME}"), target)
    assert read_block_bytes(target) == block
    set_round_trip_s(second)
    with HttpServer(large) as server:
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}", digest=SHA256), target)
    assert target.read_bytes() == LARGE
    assert (
        min(int(byte_range.split("=")[1].split("-")[0]) for byte_range in requested_ranges(server))
        == 2 * DEFAULT_BLOCK_BYTES
    )


def test_checksums_discard_small_blocks(large, target, set_round_trip_s):
    """A partial file with small blocks cannot be verified by a checksums file, so it is discarded."""
    set_round_trip_s(FAR_S)
    with HttpServer(
        large, faults=[ResponseFault(close_after_bytes=2 * DEFAULT_BLOCK_BYTES), *[ResponseFault(status=503)] * 99]
    ) as server:
        fetch_error(make_remote_file(f"{server.url}/{FILENAME}"), target)
    options = {"retry_timeout_s": 5.0, "check_cancelled": lambda: None, "on_progress": lambda done, total: None}
    with HttpServer(large) as server:
        checksums = make_checksums(large / FILENAME)
        fetch(make_remote_file(f"{server.url}/{FILENAME}"), target, str, checksums=checksums, **options)
    assert target.read_bytes() == LARGE
    assert "bytes=0-4194303" in requested_ranges(server)
