"""Virtual time: what is due next happens next, at its own time. The same calls in the same order, the same course."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class EventQueue:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._pending: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()  # of what is due at once, the first that was asked for comes first

    def schedule(self, due_at: float, callback: Callable[[], None]) -> None:
        """What should have been long ago happens now."""
        heappush(self._pending, (due_at if due_at > self.now else self.now, next(self._order), callback))

    @property
    def next_due_at(self) -> float | None:
        return self._pending[0][0] if self._pending else None

    def run_next(self) -> bool:
        """Let the next thing happen; False if there is none."""
        if not self._pending:
            return False
        self.now, _, what = heappop(self._pending)
        what()
        return True

    def run_until(self, end_at: float) -> None:
        """All that is due by then; then it is that time."""
        due = self._pending
        while due and due[0][0] <= end_at:
            self.now, _, what = heappop(due)
            what()
        self.now = max(self.now, end_at)
