"""How many connections: more while that pays, fewer when it does not. Pure: told what came, what it cost, and when.

It begins with one. While that one is quick, and the processor is what limits it, there stays one: each further one
would cost processor time and bring nothing. Otherwise there are FIRST after a moment, and then as many as pay; if they
bring no more than the one did in its best moment, there is one again. To a server that is far away there are FIRST_FAR
at once: what one connection brings there is limited by the distance and by every packet that is lost.

Connections bring most in their first second, before the line loses something of theirs. Compared with that, more do not
pay although they would; so it is tried again soon, and then less and less often.
"""

from __future__ import annotations

FIRST = 8
FIRST_FAR = 24
MOST = 64
_LOOK_S = 0.1
FAR_S = 0.02  # a round trip
_QUICK_RATE = 100e6  # bytes a second, of each connection
_VERY_QUICK_RATE = 500e6  # however busy the processor is
_BUSY = 0.6  # of one processor
_SETTLE_S = 0.2
_SETTLE_TRIPS = 6  # there and back, until a new connection is as quick as it gets
_WINDOW_S = 0.2
_LEAST_BYTES = 4 << 20  # fewer tell nothing about a rate
_FIRST_HOLD_S = 1.0
_LONGEST_HOLD_S = 16.0
_PAYS = 1.1
_RISES = 1.15
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
    def __init__(self, useful: int, most: int, now: float) -> None:
        """`useful`: more are not needed to begin with."""
        self.connections, self._useful, self._most = 1, useful, most
        self._round_trip_s = self._last = 0.0  # the latter: goodput of the window before
        self._quick: _Span | None = _Span(now)
        self._window = _Span(now)
        self._best = 0.0  # of the one connection
        self._before: tuple[int, float] | None = None  # connections and goodput before the last change
        self._hold_s, self._hold_until = _FIRST_HOLD_S, now

    def told(self, total: int, busy_s: float, now: float, flowing: int, round_trip_s: float = 0.0) -> int:
        """The number of connections to have from now on; `flowing` are at work, `busy_s` is processor time."""
        self._round_trip_s = round_trip_s
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
        far = self._round_trip_s >= FAR_S
        if seconds < _LOOK_S and not far:
            return
        rate = count / seconds if seconds else 0.0
        self._best = max(self._best, rate)
        if rate >= _VERY_QUICK_RATE or (rate >= _QUICK_RATE and busy >= _BUSY):
            self._quick = _Span(now)
        else:
            self._quick, self.connections = None, min(FIRST_FAR if far else FIRST, self._useful)
            self._before = (1, self._best) if self._best >= _QUICK_RATE else None
            self._settle(now)

    def _settle(self, now: float) -> None:
        self._window = _Span(now + max(_SETTLE_S, _SETTLE_TRIPS * self._round_trip_s))

    def _judge(self, rate: float, busy: float, now: float, flowing: int) -> None:
        rises, self._last, self._window = rate > _RISES * self._last, rate, _Span(now)
        if not rises:  # else it is not known yet what these connections bring
            connections = self.connections
            self._decide(rate, busy, now, flowing)
            if self.connections != connections:
                self._last = 0.0
                self._settle(now)

    def _decide(self, rate: float, busy: float, now: float, flowing: int) -> None:
        before, self._before = self._before, None
        if before is not None and rate < _PAYS * before[1]:
            self.connections, self._hold_until = before[0], now + self._hold_s
            self._hold_s = min(2 * self._hold_s, _LONGEST_HOLD_S)
        elif now >= self._hold_until and flowing >= self.connections < self._most and self._may_grow(rate, busy):
            self._before = (self.connections, rate)
            self.connections = min(2 * self.connections, self._most)
        elif self._is_thin(rate) and self.connections > FIRST:
            self.connections = max(FIRST, self.connections // 2)

    def _may_grow(self, rate: float, busy: float) -> bool:
        return busy < _BUSY and not self._is_thin(rate)

    def _is_thin(self, rate: float) -> bool:
        return rate < _THIN_RATE * self.connections


class Trickle:
    """Whether so little has come for so long that even servers of last resort are asked, from then on."""

    def __init__(self, now: float) -> None:
        self.seen, self._span = False, _Span(now)

    def told(self, total: int, now: float) -> bool:
        seconds, count, _ = self._span.seen(total, 0.0, now)
        if seconds >= _TRICKLE_S:
            self.seen, self._span = self.seen or count < _TRICKLE_RATE * seconds, _Span(now)
        return self.seen
