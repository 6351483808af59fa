"""How many connections: more while that pays, fewer when it does not. Pure: told what came, what it cost, and when.

It begins with one. While that one is quick, and the processor is what limits it, there stays one: each further one
would cost processor time and bring nothing. Otherwise there are FIRST after a moment, and then as many as pay; if they
bring no more than the one did in its best moment, there is one again.

Connections bring most in their first second, before the line loses something of theirs. Compared with that, more do not
pay although they would; so it is tried again soon, and then less and less often.
"""

from __future__ import annotations

FIRST = 8
MOST = 64
_LOOK_S = 0.1
_QUICK_RATE = 100e6  # bytes a second, of each connection
_VERY_QUICK_RATE = 500e6  # however busy the processor is
_BUSY = 0.6  # of one processor
_SETTLE_S = 0.2
_WINDOW_S = 0.2
_LEAST_BYTES = 4 << 20  # fewer tell nothing about a rate
_FIRST_HOLD_S = 1.0
_LONGEST_HOLD_S = 16.0
_PAYS = 1.1
_THIN_RATE = 100e3  # bytes a second, of each connection: where they bring less, more would take from other people's
_TRICKLE_RATE = 100e3  # bytes a second, of all connections together
_TRICKLE_S = 30.0


class _Span:
    """What came between two moments."""

    def __init__(self, begins: float) -> None:
        self.begins, self._bytes, self._busy = begins, -1, 0.0

    def seen(self, total: int, busy_s: float, now: float) -> tuple[float, int, float]:
        """Seconds, bytes and the processor's share so far."""
        if self._bytes < 0:
            self.begins, self._bytes, self._busy = now, total, busy_s
        seconds = now - self.begins
        return seconds, total - self._bytes, (busy_s - self._busy) / seconds if seconds else 0.0


class Pace:
    def __init__(self, first: int, most: int, now: float) -> None:
        self.connections, self._first, self._most = 1, first, most
        self._quick: _Span | None = _Span(now)
        self._window = _Span(now)
        self._best = 0.0  # of the one connection
        self._before: tuple[int, float] | None = None  # connections and goodput before the last change
        self._hold_s, self._hold_until = _FIRST_HOLD_S, now

    def told(self, total: int, busy_s: float, now: float, flowing: int) -> int:
        """The number of connections to have from now on; `flowing` are at work, `busy_s` is processor time."""
        if self._quick is not None:
            self._look(self._quick, total, busy_s, now)
        elif now >= self._window.begins:
            seconds, count, busy = self._window.seen(total, busy_s, now)
            if seconds >= _WINDOW_S and count >= _LEAST_BYTES:
                self._judge(count / seconds, busy, now, flowing)
        return self.connections

    def _look(self, span: _Span, total: int, busy_s: float, now: float) -> None:
        """Is the one connection enough, still?"""
        seconds, count, busy = span.seen(total, busy_s, now)
        if seconds < _LOOK_S:
            return
        rate = count / seconds
        self._best = max(self._best, rate)
        if rate >= _VERY_QUICK_RATE or (rate >= _QUICK_RATE and busy >= _BUSY):
            self._quick = _Span(now)
        else:
            self._quick, self.connections = None, self._first
            self._before = (1, self._best) if self._best >= _QUICK_RATE else None
            self._window = _Span(now + _SETTLE_S)

    def _judge(self, rate: float, busy: float, now: float, flowing: int) -> None:
        before, self._before = self._before, None
        if before is not None and rate < _PAYS * before[1]:
            self.connections, self._hold_until = before[0], now + self._hold_s
            self._hold_s = min(2 * self._hold_s, _LONGEST_HOLD_S)
        elif now >= self._hold_until and flowing >= self.connections < self._most and self._may_grow(rate, busy):
            self._before = (self.connections, rate)
            self.connections = min(2 * self.connections, self._most)
        self._window = _Span(now + _SETTLE_S)

    def _may_grow(self, rate: float, busy: float) -> bool:
        return busy < _BUSY and rate >= _THIN_RATE * self.connections


class Trickle:
    """Whether so little has come for so long that even servers of last resort are asked, from then on."""

    def __init__(self, now: float) -> None:
        self.seen, self._span = False, _Span(now)

    def told(self, total: int, now: float) -> bool:
        seconds, count, _ = self._span.seen(total, 0.0, now)
        if seconds >= _TRICKLE_S:
            self.seen, self._span = self.seen or count < _TRICKLE_RATE * seconds, _Span(now)
        return self.seen
