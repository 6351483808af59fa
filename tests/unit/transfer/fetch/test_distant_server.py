"""From a server that is far away a file comes in smaller blocks; parts of either kind are gone on with anywhere."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from packtrain.plan import Digest
from packtrain.transfer.block_checksums import make_checksums
from packtrain.transfer.engine import worker
from packtrain.transfer.engine.resume_log import BLOCK, FAR_BLOCK
from packtrain.transfer.fetch import fetch
from testbed.http_server import Fault, Origin
from tests.support.fetches import NAME, failure, item, ranges, run

LARGE = os.urandom(3 * BLOCK + 1234)
SHA256 = Digest("sha256", hashlib.sha256(LARGE).hexdigest())
FAR_S, NEAR_S = 0.05, 0.001


@pytest.fixture
def large(folder: Path) -> Path:
    (folder / NAME).write_bytes(LARGE)
    return folder


@pytest.fixture
def distance(monkeypatch):
    return lambda seconds: monkeypatch.setattr(worker, "round_trip_s", lambda: seconds)


def block_of(target: Path) -> int:
    with open(target.with_name(f"{NAME}.part.ledger"), "rb") as ledger:
        return int(json.loads(ledger.readline())["block"])


@pytest.mark.parametrize("digest", [None, SHA256])
def test_it_is_the_same_file(large, target, distance, digest):
    distance(FAR_S)
    with Origin(large) as origin:
        run(item(f"{origin.url}/{NAME}", digest=digest), target)
    assert target.read_bytes() == LARGE


@pytest.mark.parametrize(("first", "then", "block"), [(FAR_S, NEAR_S, FAR_BLOCK), (NEAR_S, FAR_S, BLOCK)])
def test_a_part_from_far_is_gone_on_with_near_and_the_other_way_round(large, target, distance, first, then, block):
    distance(first)
    with Origin(large, faults=[Fault(close_after=2 * BLOCK), *[Fault(status=503)] * 99]) as origin:
        failure(item(f"{origin.url}/{NAME}"), target)
    assert block_of(target) == block
    distance(then)
    with Origin(large) as origin:
        run(item(f"{origin.url}/{NAME}", digest=SHA256), target)
    assert target.read_bytes() == LARGE
    assert min(int(asked.split("=")[1].split("-")[0]) for asked in ranges(origin)) == 2 * BLOCK


def test_checksums_have_the_last_word(large, target, distance):
    """They are of whole blocks of theirs; a part of smaller ones is of no use to them."""
    distance(FAR_S)
    with Origin(large, faults=[Fault(close_after=2 * BLOCK), *[Fault(status=503)] * 99]) as origin:
        failure(item(f"{origin.url}/{NAME}"), target)
    manner = {"patience_s": 5.0, "stop": lambda: None, "progress": lambda done, total: None}
    with Origin(large) as origin:
        checksums = make_checksums(large / NAME)
        fetch(item(f"{origin.url}/{NAME}"), target, str, checksums=checksums, **manner)
    assert target.read_bytes() == LARGE
    assert "bytes=0-4194303" in ranges(origin)
