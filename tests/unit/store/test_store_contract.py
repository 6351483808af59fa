"""The store in memory does what the one on disk does, as far as a supervisor can tell."""

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


def held(store, ttl=30.0, alive=True):
    return store.acquire_lease(RUN, "me", "here", 7, ttl, lambda lease: alive)


def test_events_are_kept_once_and_found_in_their_order(store, event, clock):
    store.append([event(1), event(2, job="1")])
    clock.now += 5
    store.append([event(2, job="1"), event(1, text="of the same identity"), event(3)])
    found = store.events(RUN)
    assert [(row.event, row.received_at) for row in found] == [
        (event(1), clock.now - 5),
        (event(2, job="1"), clock.now - 5),
        (event(3), clock.now),
    ]
    assert list(store.events(RUN, found[0].id)) == list(found[1:])
    assert list(store.events("another")) == []


def test_events_of_one_kind(store, event):
    told = [event(1), event(2)._replace(kind=kinds.METRIC)]
    store.append(told)
    assert [row.event for row in store.events(RUN, kind=kinds.METRIC)] == told[1:]


def test_cursors_never_go_back_and_glimpses_are_replaced(store):
    store.append([], cursors={(RUN, "/a"): 7, ("other", "/a"): 1}, progress={(RUN, "0-1"): {"step": 1}})
    store.append([], cursors={(RUN, "/a"): 3}, progress={(RUN, "0-1"): {"step": 2}, (RUN, "1-1"): {"step": 9}})
    assert store.cursors(RUN) == {"/a": 7}
    assert store.progress(RUN) == {"0-1": {"step": 2}, "1-1": {"step": 9}}


def test_a_lease_is_refused_until_its_holder_is_dead_or_late_or_gone(store, clock):
    first = held(store)
    with pytest.raises(UnavailableError, match="already has a supervisor"):
        held(store)
    second = held(store, alive=False)
    clock.now += 31
    third = held(store)
    store.release_lease(third)
    fourth = held(store)
    assert [lease.epoch for lease in (first, second, third, fourth)] == [1, 2, 3, 4]


def test_an_older_epoch_writes_nothing(store, event):
    old = held(store)
    held(store, alive=False)
    with pytest.raises(LeaseLostError):
        store.append([event(1)], lease=old)
    with pytest.raises(LeaseLostError):
        store.renew_lease(old, 30.0)
    store.release_lease(old)
    assert list(store.events(RUN)) == []
    with pytest.raises(UnavailableError):
        held(store)


def test_a_renewed_lease_lasts(store, clock):
    lease = held(store)
    clock.now += 20
    store.renew_lease(lease, 30.0)
    clock.now += 20
    with pytest.raises(UnavailableError):
        held(store)


def test_what_was_read_may_be_let_go(event, clock):
    store = MemoryEventStore(clock, keep_events=False)
    store.append([event(1)], progress={(RUN, "0-1"): {"step": 1}})
    (first,) = store.events(RUN)
    store.append([event(2)])
    assert [row.event for row in store.events(RUN, first.id)] == [event(2)]
    assert list(store.events(RUN)) == [] and store.progress(RUN) == {}
