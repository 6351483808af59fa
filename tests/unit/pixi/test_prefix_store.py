"""A prefix is complete or absent, even if other jobs install it at the same time or are killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.pixi import prefix_store
from packtrain.pixi.prefix_store import ensure_prefix
from tests.support.waiting import wait_until

N_FILES = 40
# Installs in small steps, kills itself at the step that its arguments name, and lists who installed.
PROGRAM = f"""
import os, signal, sys, time
from pathlib import Path
from packtrain.pixi import prefix_store

path, step, gate = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])

def at(number):
    if number == step:
        os.kill(os.getpid(), signal.SIGKILL)

def install(folder):
    folder.mkdir()
    (path.parent / "installers").open("a").write("x")
    at(1)
    for number in range({N_FILES}):
        (folder / str(number)).write_text("content")
        at(2 + number)
        while number == 0 and gate.name and not gate.exists():
            time.sleep(0.01)

real_rename = Path.rename
numbers = iter(range(100, 200))
def rename(self, target):  # the claim, the prefix, and the claim that is given up
    at(next(numbers))
    real_rename(self, target)
    at(next(numbers))
Path.rename = rename
real_rmtree = prefix_store.shutil.rmtree
def rmtree(folder, **options):
    at(200)
    real_rmtree(folder, **options)
prefix_store.shutil.rmtree = rmtree
print(prefix_store.ensure_prefix(path, install, lambda: None), flush=True)
"""


@pytest.fixture
def start(tmp_path):
    processes = []

    def run(step=-1, gate=""):
        argv = [sys.executable, "-c", PROGRAM, str(tmp_path / "env"), str(step), str(gate)]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        processes.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environ))
        return processes[-1]

    yield run
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def is_complete(path):
    return len(list(path.iterdir())) == N_FILES


def leftovers(path):
    return sorted(one.name for one in path.parent.iterdir() if one.name.startswith(path.name) and one != path)


def install(folder):
    folder.mkdir()
    for number in range(N_FILES):
        (folder / str(number)).write_text("content")


def test_install_once(tmp_path):
    path = tmp_path / "env"
    assert ensure_prefix(path, install, lambda: None)
    assert not ensure_prefix(path, lambda folder: pytest.fail("it is there"), lambda: None)
    assert is_complete(path)
    assert not leftovers(path)


def test_several_at_once(tmp_path, start):
    """One installs, the others wait for it."""
    gate = tmp_path / "go"
    processes = [start(gate=gate) for _ in range(4)]
    wait_until((tmp_path / "installers").exists)
    gate.touch()
    outputs = sorted(process.communicate()[0].strip() for process in processes)
    assert outputs == ["False", "False", "False", "True"]
    assert (tmp_path / "installers").read_text() == "x"
    assert is_complete(tmp_path / "env")
    assert not leftovers(tmp_path / "env")


@pytest.mark.parametrize("step", [1, 2, 20, 100, 101, 102, 103, 104, 105, 200])
def test_killed(tmp_path, start, step):
    """Killed before or after a file is written, renamed or removed: the next job installs, and removes the rest."""
    path = tmp_path / "env"
    assert start(step).wait() == -signal.SIGKILL
    assert not path.exists() or is_complete(path)
    was_there = path.exists()
    assert ensure_prefix(path, install, lambda: None) is not was_there
    assert is_complete(path)
    assert was_there or not leftovers(path)


def test_waiting_job_takes_over_when_the_other_is_killed(tmp_path, start):
    first = start(gate=tmp_path / "never")
    wait_until((tmp_path / "installers").exists)
    waiting = threading.Event()
    results = []
    thread = threading.Thread(
        target=lambda: results.append(ensure_prefix(tmp_path / "env", install, lambda: None, waiting.set))
    )
    thread.start()
    waiting.wait()
    first.kill()
    thread.join()
    assert results == [True]
    assert is_complete(tmp_path / "env")


def test_failure_leaves_nothing(tmp_path):
    path = tmp_path / "env"

    def fail(folder):
        install(folder)
        raise FailedError("disk_full", "no space")

    with pytest.raises(FailedError, match="no space"):
        ensure_prefix(path, fail, lambda: None)
    assert not path.exists()
    assert not leftovers(path)
    assert ensure_prefix(path, install, lambda: None)


def test_cancelled_while_waiting(tmp_path, start):
    start(gate=tmp_path / "never")
    wait_until((tmp_path / "installers").exists)
    waiting = threading.Event()

    def check():
        if waiting.is_set():
            raise FailedError("terminated", "SIGTERM")

    with pytest.raises(FailedError, match="SIGTERM"):
        ensure_prefix(tmp_path / "env", install, check, waiting.set)


@pytest.fixture
def other_machine(tmp_path, monkeypatch):
    """Leave the claim of a job on another machine, whose lock says nothing here."""
    folder = tmp_path / "env.claim"
    (folder / "other-1").mkdir(parents=True)
    (folder / "other-1" / "0").write_text("half")
    (folder / "other-1.alive").write_text("another-boot-id")
    monkeypatch.setattr(prefix_store, "_POLL_INTERVAL_S", 0.01)
    return folder


def test_silent_job_on_another_machine(tmp_path, other_machine):
    assert ensure_prefix(tmp_path / "env", install, lambda: None, claim_timeout_s=0.05)
    assert is_complete(tmp_path / "env")
    assert not leftovers(tmp_path / "env")


def test_live_job_on_another_machine(tmp_path, other_machine):
    """A job waits as long as the file of the installing job changes."""
    n_beats = 0

    def beat_until_done():
        nonlocal n_beats
        n_beats += 1
        (other_machine / "other-1.alive").write_text(f"another-boot-id {n_beats}")
        if n_beats == 100:  # 20 times the timeout
            install_now = tmp_path / "complete"
            install(install_now)
            install_now.rename(tmp_path / "env")

    assert not ensure_prefix(
        tmp_path / "env", lambda folder: pytest.fail("taken over"), beat_until_done, claim_timeout_s=0.05
    )


def test_suspended_job_that_lost_its_claim(tmp_path):
    """Its folder is gone when it continues; it uses the prefix that the other job installed."""
    path = tmp_path / "env"

    def suspended(folder):
        folder.mkdir()
        (folder / "0").write_text("half")
        shutil.rmtree(tmp_path / "env.claim")  # what the other job does
        assert ensure_prefix(path, install, lambda: None)
        (folder / "1").write_text("half")

    assert not ensure_prefix(path, suspended, lambda: None)
    assert is_complete(path)


def test_suspended_job_cannot_publish_the_other_half(tmp_path):
    """The other job is still installing when the suspended one wants to publish."""
    path = tmp_path / "env"
    other = Path(tmp_path / "env.claim")

    def suspended(folder):
        folder.mkdir()
        shutil.rmtree(other)
        (other / "new-1").mkdir(parents=True)
        (other / "new-1" / "0").write_text("half of the other")
        (other / "new-1.alive").write_text("another-boot-id")
        folder.with_name("gone")

    assert ensure_prefix(path, _first_then(suspended, install), lambda: None, claim_timeout_s=0.05)
    assert is_complete(path)


def _first_then(first, then):
    calls = []

    def install_next(folder):
        calls.append(folder)
        (first if len(calls) == 1 else then)(folder)

    return install_next


def test_file_system_without_locks(tmp_path, monkeypatch, start):
    """A job that was killed is noticed by its silence."""
    first = start(gate=tmp_path / "never")
    wait_until((tmp_path / "installers").exists)
    first.kill()
    first.wait()

    def no_locks(fd, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(prefix_store.fcntl, "flock", no_locks)
    monkeypatch.setattr(prefix_store, "_POLL_INTERVAL_S", 0.01)
    assert ensure_prefix(tmp_path / "env", install, lambda: None, claim_timeout_s=0.05)
    assert is_complete(tmp_path / "env")
