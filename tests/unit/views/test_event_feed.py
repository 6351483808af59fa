"""The feed of a run reads each event once."""

from __future__ import annotations

from packtrain.store import SqliteStore
from packtrain.views.event_feed import EventFeed
from tests.support.event_builder import RUN, RunBuilder


def test_each_event_is_read_once(tmp_path):
    run, store, other = RunBuilder(), SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
    feed = EventFeed(store, RUN)
    other.append(run.events)
    assert feed.poll() == run.events
    assert feed.poll() == []
    run.submit()
    other.append(run.events)
    assert feed.poll() == run.events[-2:]
    assert feed.state.jobs["0"].n_attempts == 1


def test_own_writes_are_read(tmp_path):
    run, store = RunBuilder(), SqliteStore(tmp_path / "store.db")
    feed = EventFeed(store, RUN)
    assert feed.poll() == []
    run.submit()
    store.append(run.events, progress={(RUN, "0-1"): {"attempt": "0-1", "stage": "fetch"}})
    assert feed.poll() == [], "SQLite only counts the writes of other connections"
    assert feed.read() == run.events
    assert feed.state.jobs["0"].latest_execution.stage == "fetch"
    assert feed.read() == []
