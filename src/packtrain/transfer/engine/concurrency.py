"""How many connections: more while that pays, fewer when it does not. Pure: told what came, what it cost, and when.

It begins with one. While that one is quick, and the processor is what limits it, there stays one: each further one
would cost processor time and bring nothing. Otherwise there are FIRST after a moment, and then as many as pay; if they
bring no more than the one did in its best moment, there is one again. To a server that is far away there are FIRST_FAR
at once: what one connection brings there is limited by the distance and by every packet that is lost.

Connections bring most in their first second, before the line loses something of theirs. Compared with that, more do not
pay although they would; so it is tried again soon, and then less and less often.
"""

from __future__ import annotations

INITIAL_CONNECTIONS = 8
INITIAL_HIGH_LATENCY_CONNECTIONS = 24
MAX_CONNECTIONS = 64
_MIN_PROBE_S = 0.1
HIGH_LATENCY_S = 0.02  # a round trip
_FAST_BYTES_PER_S = 100e6  # bytes a second, of each connection
_VERY_FAST_BYTES_PER_S = 500e6  # however busy the processor is
_CPU_BOUND_FRACTION = 0.6  # of one processor
_MIN_SETTLE_S = 0.2
_SETTLE_ROUND_TRIPS = 6  # there and back, until a new connection is as quick as it gets
_MIN_WINDOW_S = 0.2
_MIN_WINDOW_BYTES = 4 << 20  # fewer tell nothing about a rate
_INITIAL_COOLDOWN_S = 1.0
_MAX_COOLDOWN_S = 16.0
_MIN_SPEEDUP = 1.1
_RISING_FACTOR = 1.15
_MIN_CONNECTION_BYTES_PER_S = (
    100e3  # bytes a second, of each connection: where they bring less, more would take from other people's
)
_STARVATION_BYTES_PER_S = 100e3  # bytes a second, of all connections together
_STARVATION_WINDOW_S = 30.0


class _RateWindow:
    """What came between two moments."""

    def __init__(self, starts_at: float) -> None:
        self.starts_at, self._initial_bytes, self._initial_cpu_s = starts_at, -1, 0.0

    def measure(self, total_bytes: int, cpu_s: float, now: float) -> tuple[float, int, float]:
        """Seconds, bytes and the processor's share so far."""
        if self._initial_bytes < 0:
            self.starts_at, self._initial_bytes, self._initial_cpu_s = now, total_bytes, cpu_s
        seconds = now - self.starts_at
        return seconds, total_bytes - self._initial_bytes, (cpu_s - self._initial_cpu_s) / seconds if seconds else 0.0


class ConcurrencyController:
    def __init__(self, max_initial: int, max_connections: int, now: float) -> None:
        """`useful`: more are not needed to begin with."""
        self.connections, self._max_initial, self._max_connections = 1, max_initial, max_connections
        self._round_trip_s = self._previous_bytes_per_s = 0.0  # the latter: goodput of the window before
        self._probe_window: _RateWindow | None = _RateWindow(now)
        self._window = _RateWindow(now)
        self._best_single_bytes_per_s = 0.0  # of the one connection
        self._before_change: tuple[int, float] | None = None  # connections and goodput before the last change
        self._cooldown_s, self._cooldown_ends_at = _INITIAL_COOLDOWN_S, now

    def update(self, total_bytes: int, cpu_s: float, now: float, n_active: int, round_trip_s: float = 0.0) -> int:
        """The number of connections to have from now on; `flowing` are at work, `busy_s` is processor time."""
        self._round_trip_s = round_trip_s
        if self._probe_window is not None:
            self._evaluate_probe(self._probe_window, total_bytes, cpu_s, now)
        elif now >= self._window.starts_at:
            seconds, count, busy = self._window.measure(total_bytes, cpu_s, now)
            if seconds >= _MIN_WINDOW_S and count >= _MIN_WINDOW_BYTES:
                self._evaluate_window(count / seconds, busy, now, n_active)
        return self.connections

    def _evaluate_probe(self, window: _RateWindow, total_bytes: int, cpu_s: float, now: float) -> None:
        """Is the one connection enough, still?"""
        seconds, count, busy = window.measure(total_bytes, cpu_s, now)
        far = self._round_trip_s >= HIGH_LATENCY_S
        if seconds < _MIN_PROBE_S and not far:
            return
        rate = count / seconds if seconds else 0.0
        self._best_single_bytes_per_s = max(self._best_single_bytes_per_s, rate)
        if rate >= _VERY_FAST_BYTES_PER_S or (rate >= _FAST_BYTES_PER_S and busy >= _CPU_BOUND_FRACTION):
            self._probe_window = _RateWindow(now)
        else:
            self._probe_window, self.connections = (
                None,
                min(INITIAL_HIGH_LATENCY_CONNECTIONS if far else INITIAL_CONNECTIONS, self._max_initial),
            )
            self._before_change = (
                (1, self._best_single_bytes_per_s) if self._best_single_bytes_per_s >= _FAST_BYTES_PER_S else None
            )
            self._start_window_after_settling(now)

    def _start_window_after_settling(self, now: float) -> None:
        self._window = _RateWindow(now + max(_MIN_SETTLE_S, _SETTLE_ROUND_TRIPS * self._round_trip_s))

    def _evaluate_window(self, bytes_per_s: float, cpu_fraction: float, now: float, n_active: int) -> None:
        rises, self._previous_bytes_per_s, self._window = (
            bytes_per_s > _RISING_FACTOR * self._previous_bytes_per_s,
            bytes_per_s,
            _RateWindow(now),
        )
        if not rises:  # else it is not known yet what these connections bring
            connections = self.connections
            self._adjust_connections(bytes_per_s, cpu_fraction, now, n_active)
            if self.connections != connections:
                self._previous_bytes_per_s = 0.0
                self._start_window_after_settling(now)

    def _adjust_connections(self, bytes_per_s: float, cpu_fraction: float, now: float, n_active: int) -> None:
        before, self._before_change = self._before_change, None
        if before is not None and bytes_per_s < _MIN_SPEEDUP * before[1]:
            self.connections, self._cooldown_ends_at = before[0], now + self._cooldown_s
            self._cooldown_s = min(2 * self._cooldown_s, _MAX_COOLDOWN_S)
        elif (
            now >= self._cooldown_ends_at
            and n_active >= self.connections < self._max_connections
            and self._can_grow(bytes_per_s, cpu_fraction)
        ):
            self._before_change = (self.connections, bytes_per_s)
            self.connections = min(2 * self.connections, self._max_connections)
        elif self._is_below_min_rate(bytes_per_s) and self.connections > INITIAL_CONNECTIONS:
            self.connections = max(INITIAL_CONNECTIONS, self.connections // 2)

    def _can_grow(self, bytes_per_s: float, cpu_fraction: float) -> bool:
        return cpu_fraction < _CPU_BOUND_FRACTION and not self._is_below_min_rate(bytes_per_s)

    def _is_below_min_rate(self, bytes_per_s: float) -> bool:
        return bytes_per_s < _MIN_CONNECTION_BYTES_PER_S * self.connections


class StarvationDetector:
    """Whether so little has come for so long that even servers of last resort are asked, from then on."""

    def __init__(self, now: float) -> None:
        self.is_starved, self._window = False, _RateWindow(now)

    def update(self, total_bytes: int, now: float) -> bool:
        seconds, count, _ = self._window.measure(total_bytes, 0.0, now)
        if seconds >= _STARVATION_WINDOW_S:
            self.is_starved, self._window = (
                self.is_starved or count < _STARVATION_BYTES_PER_S * seconds,
                _RateWindow(now),
            )
        return self.is_starved
