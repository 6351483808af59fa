"""How many connections: more while that pays, fewer when it does not. Pure: told how many bytes have come, and when."""

from __future__ import annotations

FIRST = 8
MOST = 64
_SETTLE_S = 0.2
_WINDOW_S = 0.4
_LEAST_BYTES = 4 << 20  # fewer tell nothing about a rate
_HOLD_S = 10.0
_PAYS = 1.1


class Pace:
    def __init__(self, first: int, most: int, now: float) -> None:
        self.connections, self._most = first, most
        self._before: tuple[int, float] | None = None  # connections and goodput before the last change
        self._measure_from, self._bytes = now + _SETTLE_S, -1
        self._hold_until = now

    def told(self, total: int, now: float, flowing: int) -> int:
        """The number of connections to have from now on; `flowing` are at work."""
        if now < self._measure_from:
            return self.connections
        if self._bytes < 0:
            self._bytes, self._measure_from = total, now
        elif now - self._measure_from >= _WINDOW_S and total - self._bytes >= _LEAST_BYTES:
            self._judge((total - self._bytes) / (now - self._measure_from), now, flowing)
        return self.connections

    def _judge(self, rate: float, now: float, flowing: int) -> None:
        before, self._before = self._before, None
        if before is not None and rate < _PAYS * before[1]:
            self.connections, self._hold_until = before[0], now + _HOLD_S
        elif now >= self._hold_until and flowing >= self.connections < self._most:
            self._before = (self.connections, rate)
            self.connections = min(2 * self.connections, self._most)
        self._bytes, self._measure_from = -1, now + _SETTLE_S
