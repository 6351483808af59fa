"""How attempts fared at places: kept for the runs that follow, each once, until it weighs nothing."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from packtrain.errors import FormatError
from packtrain.state.site_history import MAX_AGE_S, SiteObservation
from packtrain.store import SqliteStore

FIRST = SiteObservation("run-1", "0/0-1/1/agent", 1000.0, "htcondor", "A", "w1", steps_s=9.0, dataset_id="d")


def test_older_version_is_rejected(path):
    path.parent.mkdir()
    old = sqlite3.connect(path)
    old.execute("PRAGMA user_version = 2")
    old.close()
    with pytest.raises(FormatError, match="has version 2, but this packtrain reads version"):
        SqliteStore(path)


def test_visits_come_back_the_newest_first(store, path):
    later = replace(FIRST, run="run-2", ended_at=1001.0)
    store.add_observations([FIRST, later])
    assert SqliteStore(path).observations() == [later, FIRST]


def test_the_same_one_again_replaces_it(store):
    store.add_observations([FIRST])
    store.add_observations([replace(FIRST, failure_kind="evicted")])
    assert store.observations() == [replace(FIRST, failure_kind="evicted")]


def test_what_weighs_nothing_is_dropped(store, clock):
    store.add_observations([FIRST])
    clock.now = FIRST.ended_at + MAX_AGE_S + 1
    fresh = replace(FIRST, run="run-2", ended_at=clock.now)
    store.add_observations([fresh])
    assert store.observations() == [fresh]
