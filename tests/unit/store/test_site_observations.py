"""Site observations in the store: each stored once, until it is too old."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from packtrain.errors import FormatError
from packtrain.state.site_history import MAX_AGE_S, SiteObservation
from packtrain.store import SqliteStore

OBSERVATION = SiteObservation("run-1", "0/0-1/1/agent", 1000.0, "htcondor", "A", "w1", steps_s=9.0, dataset_id="d")


def test_older_version_is_rejected(path):
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(FormatError, match="has version 2, but this packtrain reads version"):
        SqliteStore(path)


def test_newest_first(store, path):
    later = replace(OBSERVATION, run="run-2", ended_at=1001.0)
    store.add_observations([OBSERVATION, later])
    assert SqliteStore(path).observations() == [later, OBSERVATION]


def test_same_observation_is_replaced(store):
    store.add_observations([OBSERVATION])
    store.add_observations([replace(OBSERVATION, failure_kind="evicted")])
    assert store.observations() == [replace(OBSERVATION, failure_kind="evicted")]


def test_old_observations_are_deleted(store, clock):
    store.add_observations([OBSERVATION])
    clock.now = OBSERVATION.ended_at + MAX_AGE_S + 1
    recent = replace(OBSERVATION, run="run-2", ended_at=clock.now)
    store.add_observations([recent])
    assert store.observations() == [recent]
