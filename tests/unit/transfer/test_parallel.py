"""Running tasks with a deadline: results in time, exceptions as results, hanging tasks abandoned."""

import threading
from functools import partial

import pytest

from packtrain.transfer.tasks.parallel import run_with_deadline


def fail(message):
    raise ValueError(message)


def test_results_by_key():
    results = run_with_deadline({n: partial(pow, n, 2) for n in range(50)}, 60, max_threads=4)
    assert results == {n: n * n for n in range(50)}


def test_exception_is_a_result():
    results = run_with_deadline({"good": lambda: 1, "bad": partial(fail, "no")}, 60, max_threads=1)
    assert results["good"] == 1
    assert isinstance(results["bad"], ValueError)


def test_no_tasks():
    assert run_with_deadline({}, 60, max_threads=4) == {}


def test_hanging_task_is_abandoned():
    release = threading.Event()
    results = run_with_deadline({"hangs": release.wait, "quick": lambda: 1}, 0.3, max_threads=2)
    release.set()
    assert results == {"quick": 1}


def test_no_task_starts_after_the_deadline():
    release, started = threading.Event(), []
    tasks = {"hangs": release.wait, "late": lambda: started.append(True)}
    assert run_with_deadline(tasks, 0.1, max_threads=1) == {}
    release.set()
    for thread in threading.enumerate():
        if thread.name == "ask":
            thread.join()
    assert started == []


def test_at_most_max_threads():
    running, lock, peaks = set(), threading.Lock(), []

    def count(n):
        with lock:
            running.add(n)
            peaks.append(len(running))
        with lock:
            running.discard(n)

    run_with_deadline({n: partial(count, n) for n in range(100)}, 60, max_threads=3)
    assert max(peaks) <= 3


def test_cancelled():
    release = threading.Event()
    with pytest.raises(ValueError, match="stop"):
        run_with_deadline({"hangs": release.wait}, 60, 1, partial(fail, "stop"))
    release.set()
