"""BackgroundWorker: items are handled in order by another thread, and its errors reach the caller."""

from __future__ import annotations

import threading

import pytest

from packtrain.transfer.tasks.background import BackgroundWorker


def test_items_are_handled_in_order_by_another_thread():
    handled = []
    worker = BackgroundWorker(lambda item: handled.append((item, threading.current_thread().name)), "writer")
    for item in range(100):
        worker.put(item)
    worker.finish()
    assert handled == [(item, "writer") for item in range(100)]
    assert worker.pending == 0


def test_put_waits_while_too_much_is_pending():
    started, go_on = threading.Event(), threading.Event()

    def handle(item):
        started.set()
        assert go_on.wait(30)

    worker = BackgroundWorker(handle, "writer", max_pending=10, size_of=len)
    worker.put(b"x" * 10)
    assert started.wait(30)
    caller = threading.Thread(target=worker.put, args=(b"y",))
    caller.start()
    caller.join(0.1)
    assert caller.is_alive()
    assert worker.pending == 11
    go_on.set()
    caller.join(30)
    worker.finish()
    assert worker.pending == 0


def test_error_ends_the_work():
    handled = []

    def handle(item):
        handled.append(item)
        raise OSError(f"cannot write {item}")

    worker = BackgroundWorker(handle, "writer", max_pending=0)
    with pytest.raises(OSError, match="cannot write 1"):
        worker.put(1)
    with pytest.raises(OSError, match="cannot write 1"):
        worker.put(2)
    with pytest.raises(OSError, match="cannot write 1"):
        worker.wait()
    with pytest.raises(OSError, match="cannot write 1"):
        worker.finish()
    worker.cancel()
    assert handled == [1]


def test_cancel_drops_pending_items():
    started, go_on, handled = threading.Event(), threading.Event(), []

    def handle(item):
        started.set()
        assert go_on.wait(30)
        handled.append(item)

    worker = BackgroundWorker(handle, "writer")
    worker.put(1)
    worker.put(2)
    assert started.wait(30)
    canceller = threading.Thread(target=worker.cancel)
    canceller.start()
    while not worker._is_ending:
        pass
    go_on.set()
    canceller.join(30)
    assert handled == [1]


def test_finish_can_be_cancelled():
    go_on = threading.Event()
    worker = BackgroundWorker(lambda item: go_on.wait(30), "writer")
    worker.put(1)

    def check_cancelled():
        raise KeyError("cancelled")

    with pytest.raises(KeyError):
        worker.finish(check_cancelled)
    go_on.set()
    worker.finish()
