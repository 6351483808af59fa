"""Leases: a run has one supervisor, and a supervisor that lost its lease cannot write."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from packtrain.errors import LeaseLostError, UnavailableError
from packtrain.store import sqlite

RUN = "run-1"


def always_alive(lease):
    return True


def never_alive(lease):
    return False


@pytest.fixture
def acquire(store):
    def acquire_lease(holder="a", is_alive=always_alive, ttl=30.0, run=RUN):
        return store.acquire_lease(run, holder, "host-1", 42, ttl, is_alive)

    return acquire_lease


def test_first_epoch(store, acquire, clock):
    lease = acquire()
    assert (lease.epoch, lease.holder, lease.expires_at) == (1, "a", clock.now + 30)
    assert store.get_lease(RUN) == lease


def test_second_holder_is_refused(store, acquire):
    first = acquire()
    with pytest.raises(UnavailableError, match=r"already has a supervisor \(process 42 on host-1\)") as error:
        acquire("b")
    assert not isinstance(error.value, LeaseLostError)
    assert store.get_lease(RUN) == first


def test_leases_are_per_run(acquire):
    acquire()
    assert acquire("b", run="run-2").epoch == 1


def test_dead_holder_is_replaced(acquire):
    acquire()
    checked = []
    assert acquire("b", is_alive=lambda lease: checked.append(lease.holder)).epoch == 2
    assert checked == ["a"]


def test_expired_lease_is_replaced(acquire, clock):
    acquire()
    clock.now += 29.9
    with pytest.raises(UnavailableError):
        acquire("b")
    clock.now += 0.2
    assert acquire("b").epoch == 2


def test_release(store, acquire):
    store.release_lease(acquire())
    assert acquire("b").epoch == 2


def test_epoch_increases(acquire):
    assert [acquire(str(n), never_alive).epoch for n in range(4)] == [1, 2, 3, 4]


def test_renew(store, acquire, clock):
    lease = acquire()
    clock.now += 20
    store.renew_lease(lease, 30.0)
    clock.now += 20
    with pytest.raises(UnavailableError):
        acquire("b")


def test_lost_lease_cannot_write(store, acquire, event):
    old, new = acquire("a"), acquire("b", never_alive)
    with pytest.raises(LeaseLostError, match="another supervisor has taken over"):
        store.append([event(1)], lease=old, cursors={(RUN, "/x"): 5})
    with pytest.raises(LeaseLostError):
        store.renew_lease(old, 30.0)
    assert store.events(RUN) == []
    assert store.cursors(RUN) == {}
    store.append([event(1)], lease=new)
    assert len(store.events(RUN)) == 1


def test_releasing_lost_lease(store, acquire):
    old = acquire("a")
    acquire("b", never_alive)
    store.release_lease(old)
    with pytest.raises(UnavailableError):
        acquire("c")


def test_expired_lease_can_write(store, acquire, clock, event):
    """An expired lease remains valid until another supervisor acquires it."""
    lease = acquire()
    clock.now += 100
    store.append([event(1)], lease=lease)
    store.renew_lease(lease, 30.0)
    with pytest.raises(UnavailableError):
        acquire("b")


def test_acquire_is_atomic(path, acquire, clock):
    acquire("a")
    other = sqlite.SqliteStore(path, clock, busy_timeout_s=0.1)

    def interrupt(lease):
        with pytest.raises(UnavailableError, match="locked"):
            other.acquire_lease(RUN, "b", "host-2", 43, 30.0, never_alive)
        return False

    assert acquire("c", interrupt).epoch == 2
    other.close()


ACQUIRE_SCRIPT = textwrap.dedent("""
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
def test_concurrent_processes(path):
    """The processes also create the store concurrently: its file does not exist at the start."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([sys.executable, "-c", ACQUIRE_SCRIPT, str(path), str(n)], **pipes) for n in range(6)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60) for process in processes]
    assert sorted(out.strip() for out, _ in outputs) == ["epoch 1", *["refused"] * 5], outputs
