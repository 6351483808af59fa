"""Fixtures: a store in a temporary folder, a fake clock and events."""

from __future__ import annotations

import pytest

from packtrain.events import Event
from packtrain.store import SqliteStore

RUN = "run-1"


class FakeClock:
    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "store.db"


@pytest.fixture
def store(path, clock):
    sqlite_store = SqliteStore(path, clock)
    yield sqlite_store
    sqlite_store.close()


@pytest.fixture
def event():
    def make(seq, *, run=RUN, job="0", emitter="agent-1", **data):
        return Event(run, job, emitter, seq, "notice", 1.5, 2.5, data)

    return make
