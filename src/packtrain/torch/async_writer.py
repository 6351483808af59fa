"""Writes in a thread of its own, one thing at a time, and remembers what went wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class AsyncWriter:
    """The thread is no daemon: a program that ends waits for what it began to write."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None  # of the last work, if it failed
        self.max_write_s = 0.0

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, write_fn: Callable[[], None]) -> None:
        """Waits for the work before, then begins."""
        self.wait()
        self.error = None
        self._thread = threading.Thread(target=self._run, args=(write_fn,), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, write_fn: Callable[[], None]) -> None:
        began = time.monotonic()
        try:
            write_fn()
        except Exception as error:  # told by whoever asks next: training goes on
            self.error = error
        self.max_write_s = max(self.max_write_s, time.monotonic() - began)
