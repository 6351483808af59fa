"""BackgroundDigest: a file is hashed behind its writers, from memory where possible."""

from __future__ import annotations

import hashlib
import threading

import pytest

from packtrain.transfer.integrity.background_digest import BackgroundDigest
from packtrain.transfer.integrity.digests import Digests

MIB = 1 << 20
BLOCK_BYTES = MIB // 4
DATA = bytes(i % 251 for i in range(BLOCK_BYTES)) * 40


class File:
    """Content that is read in order; reads wait while it is held."""

    def __init__(self):
        self.positions, self.reading, self.may_read = [], threading.Event(), threading.Event()
        self.may_read.set()

    def readinto(self, view, position):
        self.reading.set()
        assert self.may_read.wait(30)
        self.positions.append(position)
        chunk = DATA[position : position + len(view)]
        view[: len(chunk)] = chunk
        return len(chunk)


@pytest.fixture
def file():
    return File()


def test_available_bytes_are_read(file):
    digest = BackgroundDigest(Digests(), file.readinto)
    digest.advance(3 * BLOCK_BYTES)
    digest.advance(len(DATA))
    assert digest.finish(lambda: None).hexdigest("sha256") == hashlib.sha256(DATA).hexdigest()


def test_offered_blocks_are_not_read(file):
    digest = BackgroundDigest(Digests(), file.readinto)
    for position in range(0, len(DATA), BLOCK_BYTES):
        assert digest.offer(position, memoryview(DATA)[position : position + BLOCK_BYTES])
        digest.advance(position + BLOCK_BYTES)
    assert digest.finish(lambda: None).hexdigest("sha256") == hashlib.sha256(DATA).hexdigest()
    assert file.positions == []


def test_reads_end_before_blocks_in_memory(file):
    """Otherwise a long read would pass over a block in memory, and its place would never be free again."""
    file.may_read.clear()
    digest = BackgroundDigest(Digests(), file.readinto)
    digest.advance(BLOCK_BYTES)
    assert file.reading.wait(30)
    for index in (1, 2, 3, 5, 6):  # block 4 is written without an offer
        assert digest.offer(index * BLOCK_BYTES, memoryview(DATA)[index * BLOCK_BYTES : (index + 1) * BLOCK_BYTES])
    digest.advance(7 * BLOCK_BYTES)
    file.may_read.set()
    expected = hashlib.sha256(DATA[: 7 * BLOCK_BYTES]).hexdigest()
    assert digest.finish(lambda: None).hexdigest("sha256") == expected
    assert file.positions == [0, 4 * BLOCK_BYTES]


def test_stopped_digest_ends_early(file):
    file.may_read.clear()
    digest = BackgroundDigest(Digests(), file.readinto)
    digest.advance(len(DATA))
    assert file.reading.wait(30)
    stopper = threading.Thread(target=digest.stop)
    stopper.start()
    while not digest._is_stopped:
        pass
    file.may_read.set()
    stopper.join(30)
    assert not stopper.is_alive()
    assert file.positions == [0]


def test_truncated_file():
    digest = BackgroundDigest(Digests(), lambda view, position: 0)
    digest.advance(10)
    with pytest.raises(OSError, match="truncated while it was read"):
        digest.finish(lambda: None)
