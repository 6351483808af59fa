"""A thread that handles items in the order in which they are queued, while the caller makes the next ones."""

from __future__ import annotations

import threading
from collections import deque
from typing import Callable, Generic, TypeVar

from packtrain.transfer.tasks.cancellation import CancelCheck

T = TypeVar("T")
_POLL_INTERVAL_S = 0.1


class BackgroundWorker(Generic[T]):
    """Calls `handle` for each item in a thread of its own. Its first error ends the work, and is raised to the caller.

    Args:
        handle: Handles one item.
        name: The name of the thread.
        max_pending: `put` waits while more than this is pending; None: no limit.
        size_of: How much an item counts.
    """

    def __init__(
        self,
        handle: Callable[[T], None],
        name: str,
        max_pending: int | None = None,
        size_of: Callable[[T], int] = lambda item: 1,
    ) -> None:
        self._handle, self._max_pending, self._size_of = handle, max_pending, size_of
        self._condition = threading.Condition()
        self._items: deque[T] = deque()
        self._error: BaseException | None = None
        self._is_ending = False
        self.pending = 0  # the sum of all items that are not handled completely
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Queue an item, and wait if too much is pending. Raises the error of the thread."""
        with self._condition:
            self._items.append(item)
            self.pending += self._size_of(item)
            self._condition.notify_all()
        if self._max_pending is not None:
            self.wait(self._max_pending)

    def wait(self, max_pending: int = 0) -> None:
        """Wait until at most this much is pending. Raises the error of the thread."""
        with self._condition:
            self._condition.wait_for(lambda: self.pending <= max_pending or self._error is not None)
        self._raise_error()

    def finish(self, check_cancelled: CancelCheck = lambda: None) -> None:
        """Wait until all items are handled, and end the thread. Raises its error."""
        self._end(drop_items=False)
        while self._thread.is_alive():
            check_cancelled()
            self._thread.join(_POLL_INTERVAL_S)
        self._raise_error()

    def cancel(self) -> None:
        """Drop the items that are not being handled, and end the thread."""
        self._end(drop_items=True)
        self._thread.join()

    def _end(self, drop_items: bool) -> None:
        with self._condition:
            self._is_ending = True
            if drop_items:
                self._items.clear()
            self._condition.notify_all()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while self._error is None:
            with self._condition:
                self._condition.wait_for(lambda: self._items or self._is_ending)
                if not self._items:
                    return
                item = self._items.popleft()
            try:
                self._handle(item)
            except BaseException as error:
                self._error = error
            with self._condition:
                self.pending -= self._size_of(item)
                self._condition.notify_all()
