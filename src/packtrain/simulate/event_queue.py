"""Virtual time: what is due next happens next, at its own time. The same calls in the same order, the same course."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Kernel:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()  # of what is due at once, the first that was asked for comes first

    def at(self, when: float, what: Callable[[], None]) -> None:
        """What should have been long ago happens now."""
        heappush(self._due, (when if when > self.now else self.now, next(self._order), what))

    @property
    def next_at(self) -> float | None:
        return self._due[0][0] if self._due else None

    def step(self) -> bool:
        """Let the next thing happen; False if there is none."""
        if not self._due:
            return False
        self.now, _, what = heappop(self._due)
        what()
        return True

    def run_until(self, when: float) -> None:
        """All that is due by then; then it is that time."""
        due = self._due
        while due and due[0][0] <= when:
            self.now, _, what = heappop(due)
            what()
        self.now = max(self.now, when)
