"""Decide how many threads read groups, and start them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from packtrain.transfer.engine.concurrency import ConcurrencyController

INITIAL_THREADS, MAX_THREADS = 16, 32
_CPU_TIME_DECAY = 0.95  # weight of earlier reads, per read
_CPU_BOUND_SHARE = 0.3  # below 1, because other processes also use the processor
_LOCAL_CPU_BOUND_SHARE = 0.1  # lower, because a local server needs the processor while the reader waits for it
_MIN_CPU_TIMINGS = 4  # reads needed to compare processor time and elapsed time


class CpuBoundDetector:
    """Decides whether the processor limits reading, rather than waiting for a network.

    Args:
        is_local: Whether the server runs on this machine; it is assumed to be fast until reads show otherwise.
    """

    def __init__(self, is_local: bool) -> None:
        self._is_local = is_local
        self._cpu_s = self._elapsed_s = 0.0
        self._n_reads = 0

    def record_read(self, cpu_s: float, elapsed_s: float) -> None:
        """Record how long a read took."""
        self._cpu_s = _CPU_TIME_DECAY * self._cpu_s + cpu_s
        self._elapsed_s = _CPU_TIME_DECAY * self._elapsed_s + elapsed_s
        self._n_reads += 1

    @property
    def is_cpu_bound(self) -> bool:
        """Whether the processor limits reading."""
        if self._n_reads < _MIN_CPU_TIMINGS:
            return self._is_local
        return self._cpu_s >= (_LOCAL_CPU_BOUND_SHARE if self._is_local else _CPU_BOUND_SHARE) * self._elapsed_s


class ReaderThreads:
    """The reader threads of one prefetcher; none while the processor limits reading. The caller holds a lock.

    Args:
        target: What each thread runs. It calls `exited` at its end.
        is_local: Whether the server runs on this machine.

    Attributes:
        n_running: Number of threads.
        n_idle: Number of threads that wait. The threads count themselves.
        detector: Decides whether the processor limits reading.
    """

    def __init__(self, target: Callable[[], None], is_local: bool) -> None:
        self._target = target
        self.n_running = self.n_idle = 0
        self.detector = CpuBoundDetector(is_local)
        self._concurrency = ConcurrencyController(INITIAL_THREADS, MAX_THREADS, time.monotonic())

    @property
    def are_too_many(self) -> bool:
        """Whether a thread should exit."""
        return self.n_running > (0 if self.detector.is_cpu_bound else self._concurrency.connections + 1)

    def start(self, bytes_read: int, n_requests: int, needs_idle: bool) -> None:
        """Start more threads if they pay off."""
        wanted = self._concurrency.update(bytes_read, time.process_time(), time.monotonic(), n_requests)
        if needs_idle and not self.n_idle:
            wanted = max(wanted, self.n_running + 1)
        for _ in range(self.n_running, 0 if self.detector.is_cpu_bound else min(wanted, MAX_THREADS + 1)):
            self.n_running += 1
            threading.Thread(target=self._target, name="stream", daemon=True).start()

    def exited(self) -> None:
        """Record that a thread exits."""
        self.n_running -= 1
