"""Threads that do what is to be done, which may find more to be done."""

from __future__ import annotations

import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

_TELL_EVERY_S = 0.1


class LeftError(Exception):
    """Somebody else has failed, or was told to stop."""


class Crew:
    def __init__(self, threads: int) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "index")
        self._tasks: deque[concurrent.futures.Future[None]] = deque()
        self._left = threading.Event()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exc: object) -> None:
        self._left.set()
        self._pool.shutdown(cancel_futures=True)

    def do(self, task: Callable[..., None], *args: Any) -> None:
        if not self._left.is_set():
            self._tasks.append(self._pool.submit(task, *args))

    def check(self) -> None:
        """Asked by whoever works."""
        if self._left.is_set():
            raise LeftError

    def finish(self, tell: Callable[[], None]) -> None:
        """All that is to be done is done; `tell` is called meanwhile. Raises the first error."""
        while self._tasks:
            try:
                self._tasks[0].result(_TELL_EVERY_S)
            except concurrent.futures.TimeoutError:
                tell()
            else:
                self._tasks.popleft()
        tell()
