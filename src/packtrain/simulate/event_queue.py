"""A virtual clock with a queue of callbacks. Identical calls in the same order give identical results."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class EventQueue:
    """Runs callbacks in the order of their due times."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._pending: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()  # callbacks due at the same time run in the order in which they were scheduled

    def schedule(self, due_at: float, callback: Callable[[], None]) -> None:
        """Run `callback` at `due_at`, or now if that time has passed."""
        heappush(self._pending, (due_at if due_at > self.now else self.now, next(self._order), callback))

    @property
    def next_due_at(self) -> float | None:
        return self._pending[0][0] if self._pending else None

    def run_next(self) -> bool:
        """Run the next callback; return False if there is none."""
        if not self._pending:
            return False
        self.now, _, callback = heappop(self._pending)
        callback()
        return True

    def run_until(self, end_at: float) -> None:
        """Run all callbacks due by `end_at`, then set the clock to it."""
        pending = self._pending
        while pending and pending[0][0] <= end_at:
            self.now, _, callback = heappop(pending)
            callback()
        self.now = max(self.now, end_at)
