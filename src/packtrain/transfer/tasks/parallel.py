"""Run several tasks at once, in threads: all to their end, or many small ones until a deadline."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")

_POLL_INTERVAL_S = 0.1


def run_parallel(tasks: Sequence[Callable[[], None]], on_error: Callable[[], None] = lambda: None) -> None:
    """Run all tasks at once, wait for them, and raise the first error; later ones are mostly its consequence.

    Args:
        tasks: One thread runs each of them.
        on_error: Called after each error, in the thread where it occurred.
    """
    errors: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)
            on_error()

    threads = [threading.Thread(target=run, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def run_with_deadline(
    tasks: Mapping[K, Callable[[], T]],
    timeout_s: float,
    max_threads: int,
    check_cancelled: Callable[[], None] = lambda: None,
) -> dict[K, T | Exception]:
    """Run tasks in threads and return the results that arrive in time, by the keys of the tasks.

    Threads that hang, for example on a dead file server, are abandoned; they end with the process.

    Args:
        tasks: The tasks. An exception that a task raises is its result.
        timeout_s: When to give up on the tasks that have not finished, in seconds.
        max_threads: How many tasks run at once.
        check_cancelled: Called several times a second; raises to give up at once.
    """
    deadline = time.monotonic() + timeout_s
    pending: queue.SimpleQueue[tuple[K, Callable[[], T]]] = queue.SimpleQueue()
    finished: queue.SimpleQueue[tuple[K, T | Exception]] = queue.SimpleQueue()
    for task in tasks.items():
        pending.put(task)

    def work() -> None:
        while time.monotonic() < deadline:
            try:
                key, task = pending.get_nowait()
            except queue.Empty:
                return
            try:
                finished.put((key, task()))
            except Exception as error:
                finished.put((key, error))

    for _ in range(min(len(tasks), max_threads)):
        threading.Thread(target=work, name="ask", daemon=True).start()
    results: dict[K, T | Exception] = {}
    while len(results) < len(tasks) and time.monotonic() < deadline:
        check_cancelled()
        try:
            key, result = finished.get(timeout=min(_POLL_INTERVAL_S, max(0.0, deadline - time.monotonic())))
        except queue.Empty:
            continue
        results[key] = result
    return results
