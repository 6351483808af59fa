"""The end of a download: complete, failed, or closed by its reader."""

from __future__ import annotations

import threading
from collections.abc import Callable

POLL_INTERVAL_S = 0.05


class Completion:
    """Knows who writes to the block sink, and whether the download has ended.

    Args:
        condition: The lock of the download, notified of its end.
        is_received: Whether all blocks were received.
    """

    def __init__(self, condition: threading.Condition, is_received: Callable[[], bool]) -> None:
        self._condition, self._is_received = condition, is_received
        self._writers: set[object] = set()  # changed without the lock: add and discard are atomic
        self.is_closed = False
        self.is_complete = False  # all blocks are in the block sink
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """End the download with an error that no other source can fix."""
        with self._condition:
            self.failure = self.failure or error
            self._condition.notify_all()

    def should_exit(self) -> bool:
        """Return whether workers must exit."""
        return self.is_closed or self.failure is not None

    def begin_write(self, writer: object) -> bool:
        """Return whether the worker may write to the block sink; if so, `end_write` must follow.

        Called for every chunk, so without the lock.
        """
        self._writers.add(writer)
        is_closed = self.is_closed
        if is_closed:
            self.end_write(writer)
        return not is_closed

    def end_write(self, writer: object) -> None:
        """Record that a write ended. The last writer completes the download, even if its block was a second copy."""
        self._writers.discard(writer)
        if self.is_closed or self._is_received():
            with self._condition:
                self.update()

    def update(self) -> None:
        """Complete the download if all blocks are received and written. Called with the lock held."""
        self.is_complete = self.is_complete or (self._is_received() and not self._writers)
        if self.is_complete or self.is_closed:
            self._condition.notify_all()

    def wait(self) -> None:
        """Wait a moment for the end."""
        with self._condition:
            if not self.is_complete and self.failure is None:
                self._condition.wait(POLL_INTERVAL_S)

    def close(self) -> None:
        """Refuse further writes and wait for those in progress; workers may still be blocked in connections."""
        with self._condition:
            self.is_closed = True
            self._condition.notify_all()
            while self._writers:
                self._condition.wait(POLL_INTERVAL_S)
