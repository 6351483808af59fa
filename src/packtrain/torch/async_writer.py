"""Run one write at a time in a background thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class AsyncWriter:
    """A background thread for one write at a time.

    The thread is not a daemon, so a program that ends waits for a write in progress.

    Attributes:
        error: The exception of the last write, or None if it succeeded.
        max_write_s: The duration of the longest write so far, in seconds.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None
        self.max_write_s = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a write is in progress."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, write_fn: Callable[[], None]) -> None:
        """Wait for the previous write, then start `write_fn` in the background.

        Args:
            write_fn: Writes one checkpoint. An exception that it raises is stored in `error`.
        """
        self.wait()
        self.error = None
        self._thread = threading.Thread(target=self._run, args=(write_fn,), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait until the write in progress has finished."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, write_fn: Callable[[], None]) -> None:
        started_at = time.monotonic()
        try:
            write_fn()
        except Exception as error:  # the next save or close reports it; training continues
            self.error = error
        self.max_write_s = max(self.max_write_s, time.monotonic() - started_at)
