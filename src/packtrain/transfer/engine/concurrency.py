"""The number of connections of a download: more while that pays, fewer when it does not.

A download starts with one connection. While that connection is fast and the CPU is its limit, it remains the only one:
more would cost CPU time and gain nothing. Otherwise INITIAL_CONNECTIONS follow after a moment, and then as many as
pay; if they are no faster than the single connection at its best, there is one again. A distant server gets
INITIAL_HIGH_LATENCY_CONNECTIONS at once, because latency and packet loss limit each connection there.

Connections are fastest in their first second, before the network drops packets. Measured against that second, more
connections seem not to pay although they would. So the controller tries again soon, and then less and less often.

Everything here is pure: the caller passes the bytes received, the CPU time and the time.
"""

from __future__ import annotations

INITIAL_CONNECTIONS = 8
INITIAL_HIGH_LATENCY_CONNECTIONS = 24
MAX_CONNECTIONS = 64
_MIN_PROBE_S = 0.1
HIGH_LATENCY_S = 0.02  # round trip from which a server counts as distant
_FAST_BYTES_PER_S = 100e6  # of one connection, if the CPU is its limit
_VERY_FAST_BYTES_PER_S = 500e6  # of one connection, whatever the CPU load
_CPU_BOUND_FRACTION = 0.6  # of one CPU
_MIN_SETTLE_S = 0.2
_SETTLE_ROUND_TRIPS = 6  # until a new connection has reached its full speed
_MIN_WINDOW_S = 0.2
_MIN_WINDOW_BYTES = 4 << 20  # fewer bytes are too few to measure a rate
_INITIAL_COOLDOWN_S = 1.0
_MAX_COOLDOWN_S = 16.0
_MIN_SPEEDUP = 1.1
_RISING_FACTOR = 1.15
_MIN_CONNECTION_BYTES_PER_S = 100e3  # per connection; below, more would take bandwidth from other users
_STARVATION_BYTES_PER_S = 100e3  # of all connections together
_STARVATION_WINDOW_S = 30.0


class _RateWindow:
    """Measures bytes and CPU time since its first call."""

    def __init__(self, starts_at: float) -> None:
        self.starts_at, self._initial_bytes, self._initial_cpu_s = starts_at, -1, 0.0

    def measure(self, total_bytes: int, cpu_s: float, now: float) -> tuple[float, int, float]:
        """Return the seconds, the bytes and the fraction of a CPU used since the first call."""
        if self._initial_bytes < 0:
            self.starts_at, self._initial_bytes, self._initial_cpu_s = now, total_bytes, cpu_s
        duration_s = now - self.starts_at
        cpu_fraction = (cpu_s - self._initial_cpu_s) / duration_s if duration_s else 0.0
        return duration_s, total_bytes - self._initial_bytes, cpu_fraction


class ConcurrencyController:
    """Decides how many connections a download should have.

    Args:
        max_initial: Limit for the first increase; a small object needs few connections.
        max_connections: Limit for later increases.
        now: The time.
    """

    def __init__(self, max_initial: int, max_connections: int, now: float) -> None:
        self.connections, self._max_initial, self._max_connections = 1, max_initial, max_connections
        self._round_trip_s = self._previous_bytes_per_s = 0.0  # the latter: speed in the previous window
        self._probe_window: _RateWindow | None = _RateWindow(now)
        self._window = _RateWindow(now)
        self._best_single_bytes_per_s = 0.0  # best speed of the single connection
        self._before_change: tuple[int, float] | None = None  # connections and speed before the last change
        self._cooldown_s, self._cooldown_ends_at = _INITIAL_COOLDOWN_S, now

    def update(self, total_bytes: int, cpu_s: float, now: float, n_active: int, round_trip_s: float = 0.0) -> int:
        """Return the number of connections to have from now on.

        Args:
            total_bytes: Bytes received so far.
            cpu_s: CPU time used so far.
            now: The time.
            n_active: Connections that are receiving.
            round_trip_s: Round trip to the server; 0: unknown.
        """
        self._round_trip_s = round_trip_s
        if self._probe_window is not None:
            self._evaluate_probe(self._probe_window, total_bytes, cpu_s, now)
        elif now >= self._window.starts_at:
            duration_s, n_bytes, cpu_fraction = self._window.measure(total_bytes, cpu_s, now)
            if duration_s >= _MIN_WINDOW_S and n_bytes >= _MIN_WINDOW_BYTES:
                self._evaluate_window(n_bytes / duration_s, cpu_fraction, now, n_active)
        return self.connections

    def _evaluate_probe(self, window: _RateWindow, total_bytes: int, cpu_s: float, now: float) -> None:
        """Add connections if the single connection is not, or no longer, fast enough."""
        duration_s, n_bytes, cpu_fraction = window.measure(total_bytes, cpu_s, now)
        is_distant = self._round_trip_s >= HIGH_LATENCY_S
        if duration_s < _MIN_PROBE_S and not is_distant:
            return
        speed = n_bytes / duration_s if duration_s else 0.0
        self._best_single_bytes_per_s = max(self._best_single_bytes_per_s, speed)
        if speed >= _VERY_FAST_BYTES_PER_S or (speed >= _FAST_BYTES_PER_S and cpu_fraction >= _CPU_BOUND_FRACTION):
            self._probe_window = _RateWindow(now)
            return
        self._probe_window = None
        self.connections = min(
            INITIAL_HIGH_LATENCY_CONNECTIONS if is_distant else INITIAL_CONNECTIONS, self._max_initial
        )
        self._before_change = (
            (1, self._best_single_bytes_per_s) if self._best_single_bytes_per_s >= _FAST_BYTES_PER_S else None
        )
        self._start_window_after_settling(now)

    def _start_window_after_settling(self, now: float) -> None:
        self._window = _RateWindow(now + max(_MIN_SETTLE_S, _SETTLE_ROUND_TRIPS * self._round_trip_s))

    def _evaluate_window(self, bytes_per_s: float, cpu_fraction: float, now: float, n_active: int) -> None:
        is_rising = bytes_per_s > _RISING_FACTOR * self._previous_bytes_per_s
        self._previous_bytes_per_s, self._window = bytes_per_s, _RateWindow(now)
        if not is_rising:  # while it rises, the gain of these connections is not known yet
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
    """Detects that all sources together are almost silent; from then on fallback sources are used as well."""

    def __init__(self, now: float) -> None:
        self.is_starved, self._window = False, _RateWindow(now)

    def update(self, total_bytes: int, now: float) -> bool:
        """Return whether the download starves, or has starved before."""
        duration_s, n_bytes, _ = self._window.measure(total_bytes, 0.0, now)
        if duration_s >= _STARVATION_WINDOW_S:
            self.is_starved = self.is_starved or n_bytes < _STARVATION_BYTES_PER_S * duration_s
            self._window = _RateWindow(now)
        return self.is_starved
