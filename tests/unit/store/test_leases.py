"""Leases: one supervisor acts for a run, and an older one is refused."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from packtrain.errors import LeaseLostError, UnavailableError
from packtrain.store import sqlite

RUN = "run-1"


def alive(lease):
    return True


def dead(lease):
    return False


@pytest.fixture
def acquire(store):
    def take(holder="a", is_alive=alive, ttl=30.0, run=RUN):
        return store.acquire_lease(run, holder, "host-1", 42, ttl, is_alive)

    return take


def test_the_first_epoch_is_one(store, acquire, clock):
    lease = acquire()
    assert (lease.epoch, lease.holder, lease.expires_at) == (1, "a", clock.now + 30)
    assert store.get_lease(RUN) == lease


def test_a_second_holder_is_refused_while_the_first_lives(store, acquire):
    first = acquire()
    with pytest.raises(UnavailableError, match=r"already has a supervisor \(process 42 on host-1\)") as caught:
        acquire("b")
    assert not isinstance(caught.value, LeaseLostError)
    assert store.get_lease(RUN) == first


def test_each_run_has_a_lease_of_its_own(acquire):
    acquire()
    assert acquire("b", run="run-2").epoch == 1


def test_a_dead_holder_is_followed_at_once(acquire):
    acquire()
    seen = []
    assert acquire("b", is_alive=lambda lease: seen.append(lease.holder)).epoch == 2
    assert seen == ["a"]


def test_a_lease_that_ran_out_is_taken_over(acquire, clock):
    acquire()
    clock.now += 29.9
    with pytest.raises(UnavailableError):
        acquire("b")
    clock.now += 0.2
    assert acquire("b").epoch == 2


def test_a_released_lease_is_free(store, acquire):
    store.release_lease(acquire())
    assert acquire("b").epoch == 2


def test_the_epoch_grows_with_every_holder(acquire):
    assert [acquire(str(n), dead).epoch for n in range(4)] == [1, 2, 3, 4]


def test_a_renewed_lease_lasts_longer(store, acquire, clock):
    lease = acquire()
    clock.now += 20
    store.renew_lease(lease, 30.0)
    clock.now += 20
    with pytest.raises(UnavailableError):
        acquire("b")


def test_an_old_lease_writes_and_renews_nothing(store, acquire, event):
    old, new = acquire("a"), acquire("b", dead)
    with pytest.raises(LeaseLostError, match="another supervisor has taken over"):
        store.append([event(1)], lease=old, cursors={(RUN, "/x"): 5})
    with pytest.raises(LeaseLostError):
        store.renew_lease(old, 30.0)
    assert store.events(RUN) == []
    assert store.cursors(RUN) == {}
    store.append([event(1)], lease=new)
    assert len(store.events(RUN)) == 1


def test_releasing_an_old_lease_does_not_free_the_new_one(store, acquire):
    old = acquire("a")
    acquire("b", dead)
    store.release_lease(old)
    with pytest.raises(UnavailableError):
        acquire("c")


def test_a_lease_that_ran_out_but_was_not_taken_still_writes(store, acquire, clock, event):
    lease = acquire()
    clock.now += 100
    store.append([event(1)], lease=lease)
    store.renew_lease(lease, 30.0)
    with pytest.raises(UnavailableError):
        acquire("b")


def test_nobody_gets_between_the_look_at_a_lease_and_its_taking(path, acquire, clock, monkeypatch):
    acquire("a")
    monkeypatch.setattr(sqlite, "_BUSY_TIMEOUT_S", 0.1)
    other = sqlite.SqliteStore(path, clock)

    def interrupt(lease):
        with pytest.raises(UnavailableError, match="locked"):
            other.acquire_lease(RUN, "b", "host-2", 43, 30.0, dead)
        return False

    assert acquire("c", interrupt).epoch == 2
    other.close()


CONTENDER = textwrap.dedent("""
    import os, sys
    from pathlib import Path
    from packtrain.errors import UnavailableError
    from packtrain.store import SqliteStore
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    sys.stdin.readline()
    store = SqliteStore(Path(sys.argv[1]))
    try:
        print("epoch", store.acquire_lease("run-1", sys.argv[2], "host", os.getpid(), 30.0, lambda lease: True).epoch)
    except UnavailableError as error:
        print("refused" if "already has a supervisor" in str(error) else error)
""")


@pytest.mark.slow
def test_of_processes_that_acquire_at_once_exactly_one_wins(path):
    """They also make the store at once: the file does not exist when they begin."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    made = [subprocess.Popen([sys.executable, "-c", CONTENDER, str(path), str(n)], **pipes) for n in range(6)]
    for process in made:
        assert process.stdout.readline() == "ready\n"
    for process in made:
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60) for process in made]
    assert sorted(out.strip() for out, _ in said) == ["epoch 1", *["refused"] * 5], said
