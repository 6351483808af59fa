"""The contract that the SQLite store and the memory store share."""

from __future__ import annotations

import pytest

from packtrain.errors import LeaseLostError, UnavailableError
from packtrain.events import kinds
from packtrain.simulate.memory_store import MemoryEventStore
from packtrain.store import SqliteStore

RUN = "run-1"


@pytest.fixture(params=["disk", "memory"])
def store(request, path, clock):
    return SqliteStore(path, clock) if request.param == "disk" else MemoryEventStore(clock)


def acquire(store, ttl=30.0, alive=True):
    return store.acquire_lease(RUN, "me", "here", 7, ttl, lambda lease: alive)


def test_events_are_stored_once_in_order(store, event, clock):
    store.append([event(1), event(2, job="1")])
    clock.now += 5
    store.append([event(2, job="1"), event(1, text="same identity"), event(3)])
    stored_events = store.events(RUN)
    assert [(row.event, row.received_at) for row in stored_events] == [
        (event(1), clock.now - 5),
        (event(2, job="1"), clock.now - 5),
        (event(3), clock.now),
    ]
    assert list(store.events(RUN, stored_events[0].id)) == list(stored_events[1:])
    assert list(store.events("another")) == []


def test_filter_by_kind(store, event):
    events = [event(1), event(2)._replace(kind=kinds.METRIC)]
    store.append(events)
    assert [row.event for row in store.events(RUN, kind=kinds.METRIC)] == events[1:]


def test_cursors_and_progress(store):
    store.append([], cursors={(RUN, "/a"): 7, ("other", "/a"): 1}, progress={(RUN, "0-1"): {"step": 1}})
    store.append([], cursors={(RUN, "/a"): 3}, progress={(RUN, "0-1"): {"step": 2}, (RUN, "1-1"): {"step": 9}})
    assert store.cursors(RUN) == {"/a": 7}
    assert store.progress(RUN) == {"0-1": {"step": 2}, "1-1": {"step": 9}}


def test_acquire_lease(store, clock):
    first = acquire(store)
    with pytest.raises(UnavailableError, match="already has a supervisor"):
        acquire(store)
    second = acquire(store, alive=False)
    clock.now += 31
    third = acquire(store)
    store.release_lease(third)
    fourth = acquire(store)
    assert [lease.epoch for lease in (first, second, third, fourth)] == [1, 2, 3, 4]


def test_lost_lease_cannot_write(store, event):
    old = acquire(store)
    acquire(store, alive=False)
    with pytest.raises(LeaseLostError):
        store.append([event(1)], lease=old)
    with pytest.raises(LeaseLostError):
        store.renew_lease(old, 30.0)
    store.release_lease(old)
    assert list(store.events(RUN)) == []
    with pytest.raises(UnavailableError):
        acquire(store)


def test_renew(store, clock):
    lease = acquire(store)
    clock.now += 20
    store.renew_lease(lease, 30.0)
    clock.now += 20
    with pytest.raises(UnavailableError):
        acquire(store)


def test_memory_store_without_history(event, clock):
    store = MemoryEventStore(clock, keep_events=False)
    store.append([event(1)], progress={(RUN, "0-1"): {"step": 1}})
    (first,) = store.events(RUN)
    store.append([event(2)])
    assert [row.event for row in store.events(RUN, first.id)] == [event(2)]
    assert list(store.events(RUN)) == [] and store.progress(RUN) == {}
