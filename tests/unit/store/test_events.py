"""Events in the store: stored once, atomically, and returned in order of arrival."""

from __future__ import annotations

from pathlib import Path

import pytest

from packtrain.events import kinds
from packtrain.store import RunInfo, SqliteStore

RUN = "run-1"
JOURNAL = (RUN, "/x/journal.jsonl")


def test_append_and_read(store, event, clock):
    events = [event(1, text="ü → 汉", n=[1, None]), event(2, job="", emitter="supervisor-1")]
    store.append(events)
    stored_events = store.events(RUN)
    assert [stored.event for stored in stored_events] == events
    assert [stored.received_at for stored in stored_events] == [clock.now] * 2


def test_filter_by_kind(store, event):
    events = [event(1), event(2)._replace(kind=kinds.METRIC), event(3), event(4)._replace(kind=kinds.METRIC)]
    store.append(events)
    stored_events = store.events(RUN, kind=kinds.METRIC)
    assert [stored.event for stored in stored_events] == [events[1], events[3]]
    assert store.events(RUN, stored_events[0].id, kind=kinds.METRIC) == stored_events[1:]


def test_append_is_idempotent(store, event):
    store.append([event(1), event(2)])
    before = store.events(RUN)
    store.append([event(2), event(1)])
    store.append([event(1, text="same identity, other content")])
    assert store.events(RUN) == before


def test_event_identity(store, event):
    event_1 = event(1)
    others = [
        event_1._replace(run="run-2"),
        event_1._replace(job="1"),
        event_1._replace(emitter="agent-2"),
        event_1._replace(seq=2),
    ]
    store.append([event_1, *others])
    assert len(store.events(RUN)) == 4
    assert len(store.events("run-2")) == 1


def test_append_is_atomic(store, event):
    with pytest.raises(OverflowError):
        store.append([event(1), event(2**70)], cursors={JOURNAL: 10})
    assert store.events(RUN) == []
    assert store.cursors(RUN) == {}
    store.append([event(1)])
    assert len(store.events(RUN)) == 1, "the store works after a failed append"


def test_lone_surrogates(store, event):
    store.append([event(1, text="half \ud83d")])
    assert store.events(RUN)[0].event.data == {"text": "half \ud83d"}


def test_cursors_only_advance(store, event):
    store.append([event(1)], cursors={JOURNAL: 100})
    store.append([event(2)], cursors={JOURNAL: 50, (RUN, "/y"): 7})
    assert store.cursors(RUN) == {"/x/journal.jsonl": 100, "/y": 7}


def test_cursors_without_events(store):
    """A journal may contain only invalid lines."""
    store.append([], cursors={JOURNAL: 100})
    assert store.cursors(RUN) == {"/x/journal.jsonl": 100}
    assert store.cursors("") == {}


def test_events_after_id(store, event):
    store.append([event(1), event(1, run="run-2"), event(2)])
    first = store.events(RUN)
    store.append([event(2), event(3)])
    assert [stored.event.seq for stored in store.events(RUN, first[-1].id)] == [3]
    assert store.events(RUN, store.events(RUN)[-1].id) == []


def test_data_version(store, path, event):
    other = SqliteStore(path)
    before = other.data_version()
    assert other.data_version() == before
    store.append([event(1)])
    assert other.data_version() != before
    other.close()


def test_second_connection(store, path, event):
    store.append([event(1)])
    other = SqliteStore(path)
    assert [stored.event for stored in other.events(RUN)] == [event(1)]
    other.close()


def test_add_run(store, event):
    info = RunInfo(RUN, "name", "local", Path("/x"), 5.0)
    run_created = event(1, name="name")._replace(kind=kinds.RUN_CREATED, job="")
    store.add_run(info, run_created)
    assert store.list_runs() == [info]
    assert [stored.event for stored in store.events(RUN)] == [run_created]


def test_list_runs(store, event):
    for number, created_at in ((1, 30.0), (2, 10.0), (3, 20.0)):
        info = RunInfo(f"run-{number}", "name", "local", Path("/x"), created_at)
        store.add_run(info, event(1, run=info.run, job=""))
    assert [info.run for info in store.list_runs()] == ["run-2", "run-3", "run-1"]
