"""A thread pool whose tasks may submit further tasks."""

from __future__ import annotations

import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

_POLL_INTERVAL_S = 0.1


class TaskPoolStopped(Exception):
    """Another task failed, or the pool was closed."""


class TaskPool:
    """Runs tasks in threads until all are done. Leaving the `with` block cancels what is left."""

    def __init__(self, threads: int) -> None:
        self._executor = concurrent.futures.ThreadPoolExecutor(threads, "index")
        self._futures: deque[concurrent.futures.Future[None]] = deque()
        self._stopped = threading.Event()

    def __enter__(self) -> TaskPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._executor.shutdown(cancel_futures=True)

    def submit(self, task: Callable[..., None], *args: Any) -> None:
        """Run a task later. Ignored after the pool was stopped."""
        if not self._stopped.is_set():
            self._futures.append(self._executor.submit(task, *args))

    def raise_if_stopped(self) -> None:
        """Raise TaskPoolStopped if the pool was stopped. Long tasks call this repeatedly."""
        if self._stopped.is_set():
            raise TaskPoolStopped

    def wait_all(self, on_poll: Callable[[], None]) -> None:
        """Wait until all tasks are done, and call `on_poll` meanwhile. Raises the first error of a task."""
        while self._futures:
            try:
                self._futures[0].result(_POLL_INTERVAL_S)
            except concurrent.futures.TimeoutError:
                on_poll()
            else:
                self._futures.popleft()
        on_poll()
