"""How attempts fared at places: kept for the runs that follow, each once, until it weighs nothing."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace

from packtrain.state.site_history import MAX_AGE_S, SiteObservation
from packtrain.store import SqliteStore

FIRST = SiteObservation("run-1", "0/0-1/1/agent", 1000.0, "htcondor", "A", "w1", steps_s=9.0, dataset_id="d")


def test_a_store_of_version_2_gets_what_it_lacks(path):
    path.parent.mkdir()
    old = sqlite3.connect(path)
    old.executescript(
        "CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, run, job, emitter, seq, kind, wall, mono, arrived, "
        "data, UNIQUE (run, job, emitter, seq)); CREATE TABLE glimpses (run, job, data, PRIMARY KEY (run, job));"
        "INSERT INTO glimpses VALUES ('run-1', '0', '{}'); PRAGMA user_version = 2;"
    )
    old.close()
    store = SqliteStore(path)
    store.append([], progress={("run-1", "0-1"): {"done": 1}, ("run-1", "0-2"): {"done": 2}})
    store.add_observations([replace(FIRST, ended_at=time.time())])
    assert store.progress("run-1") == {"0-1": {"done": 1}, "0-2": {"done": 2}}
    assert len(SqliteStore(path).observations()) == 1


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
