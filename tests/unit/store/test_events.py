"""Events in the store: kept once, all or nothing, and found again in the order of their arrival."""

from __future__ import annotations

from pathlib import Path

import pytest

from packtrain.events import kinds
from packtrain.store import RunInfo, SqliteStore

RUN = "run-1"
JOURNAL = (RUN, "/x/journal.jsonl")


def test_events_come_back_as_they_were(store, event, clock):
    told = [event(1, text="ü → 汉", n=[1, None]), event(2, job="", emitter="supervisor-1")]
    store.append(told)
    found = store.events(RUN)
    assert [stored.event for stored in found] == told
    assert [stored.received_at for stored in found] == [clock.now] * 2


def test_events_of_one_kind(store, event):
    told = [event(1), event(2)._replace(kind=kinds.METRIC), event(3), event(4)._replace(kind=kinds.METRIC)]
    store.append(told)
    found = store.events(RUN, kind=kinds.METRIC)
    assert [stored.event for stored in found] == [told[1], told[3]]
    assert store.events(RUN, found[0].id, kind=kinds.METRIC) == found[1:]


def test_appending_again_changes_nothing(store, event):
    store.append([event(1), event(2)])
    before = store.events(RUN)
    store.append([event(2), event(1)])
    store.append([event(1, text="another content of the same identity")])
    assert store.events(RUN) == before


def test_identity_is_run_job_emitter_and_seq(store, event):
    base = event(1)
    others = [
        base._replace(run="run-2"),
        base._replace(job="1"),
        base._replace(emitter="agent-2"),
        base._replace(seq=2),
    ]
    store.append([base, *others])
    assert len(store.events(RUN)) == 4
    assert len(store.events("run-2")) == 1


def test_an_append_is_all_or_nothing(store, event):
    with pytest.raises(OverflowError):
        store.append([event(1), event(2**70)], cursors={JOURNAL: 10})
    assert store.events(RUN) == []
    assert store.cursors(RUN) == {}
    store.append([event(1)])
    assert len(store.events(RUN)) == 1, "the store goes on after a failed append"


def test_data_with_half_characters_can_be_kept(store, event):
    store.append([event(1, text="half \ud83d")])
    assert store.events(RUN)[0].event.data == {"text": "half \ud83d"}


def test_cursors_move_with_the_events_and_never_back(store, event):
    store.append([event(1)], cursors={JOURNAL: 100})
    store.append([event(2)], cursors={JOURNAL: 50, (RUN, "/y"): 7})
    assert store.cursors(RUN) == {"/x/journal.jsonl": 100, "/y": 7}


def test_cursors_move_for_their_run_without_events_too(store):
    """A journal may hold nothing but broken lines."""
    store.append([], cursors={JOURNAL: 100})
    assert store.cursors(RUN) == {"/x/journal.jsonl": 100}
    assert store.cursors("") == {}


def test_a_feed_goes_on_after_the_last_id(store, event):
    store.append([event(1), event(1, run="run-2"), event(2)])
    first = store.events(RUN)
    store.append([event(2), event(3)])
    assert [stored.event.seq for stored in store.events(RUN, first[-1].id)] == [3]
    assert store.events(RUN, store.events(RUN)[-1].id) == []


def test_the_version_changes_when_another_connection_wrote(store, path, event):
    other = SqliteStore(path)
    before = other.data_version()
    assert other.data_version() == before
    store.append([event(1)])
    assert other.data_version() != before
    other.close()


def test_what_one_process_wrote_another_reads(store, path, event):
    store.append([event(1)])
    other = SqliteStore(path)
    assert [stored.event for stored in other.events(RUN)] == [event(1)]
    other.close()


def test_a_run_and_its_first_event_are_added_together(store, event):
    row = RunInfo(RUN, "name", "local", Path("/x"), 5.0)
    created = event(1, name="name")._replace(kind=kinds.RUN_CREATED, job="")
    store.add_run(row, created)
    assert store.list_runs() == [row]
    assert [stored.event for stored in store.events(RUN)] == [created]


def test_runs_are_listed_the_newest_last(store, event):
    for number, created in ((1, 30.0), (2, 10.0), (3, 20.0)):
        row = RunInfo(f"run-{number}", "name", "local", Path("/x"), created)
        store.add_run(row, event(1, run=row.run, job=""))
    assert [row.run for row in store.list_runs()] == ["run-2", "run-3", "run-1"]
