"""Decide which group to read next, within a memory limit, and whether to request a late one again."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import Optional

from packtrain.stream.index import Index
from packtrain.stream.read_groups import SampleNumbers
from packtrain.stream.reader import InFlightRead
from packtrain.transfer.engine.source_stats import SourceStats

_HEDGE_AFTER_S, _HEDGE_FACTOR = 0.5, 3.0  # late after this time, and after this multiple of the usual read time
_MIN_OVERTAKING_GROUPS = 8  # if this many later groups have arrived, the next two limits apply instead
_OVERTAKEN_AFTER_S, _OVERTAKEN_FACTOR = 0.2, 1.5
_MAX_HEDGE_SHARE, _MAX_COPIES = 0.1, 3  # hedges per request, and requests for one group at a time
_MIN_TIMINGS = 4  # reads needed to estimate the usual read time

GroupContent = tuple[list[bytes], Optional[SourceStats]]
"""The samples of a group, and the server that they came from (None: the cache)."""


class ReadStats:
    """Counts of one prefetcher, or the sum over several.

    Attributes:
        bytes_read: Bytes received from servers.
        requests: Number of requests.
        failures: Number of failed requests.
        hedges: Number of second requests for a late group.
        cache_hits: Number of groups that came from the disk cache.
        wait_s: How long the consumer waited, in seconds.
    """

    def __init__(self) -> None:
        self.bytes_read = self.requests = self.failures = self.hedges = self.cache_hits = 0
        self.wait_s = 0.0

    def add(self, other: ReadStats) -> None:
        """Add the counts of another prefetcher."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class ReadPlan:
    """The groups to read, those that are being read, and those that were read. The caller holds a lock.

    Args:
        index: The index.
        groups: The groups, in the order in which they are needed.
        max_bytes: Maximum size of samples that are being read or were read and are not yet freed, in bytes.
        stats: Counts the requests.

    Attributes:
        in_flight: The requests for each group that was claimed and has not arrived.
        ready: The groups that have arrived and were not taken.
        needed_group: The group that the consumer waits for; it is read even if memory is full.
        freed_bytes: Size of the samples that the consumer has freed. The consumer adds to it.
        is_full: Whether `claim` refused a group since the consumer last waited, because memory was full.
    """

    def __init__(self, index: Index, groups: Sequence[SampleNumbers], max_bytes: int, stats: ReadStats) -> None:
        self._sizes, self._groups, self._max_bytes, self._stats = index.sizes, groups, max_bytes, stats
        self.in_flight: dict[int, list[InFlightRead]] = {}
        self.ready: dict[int, GroupContent] = {}
        self.needed_group = self._next_group = 0
        self._claimed_bytes = self.freed_bytes = 0
        self.is_full = False
        self._retry_heap: list[int] = []  # groups to request again, lowest first
        self._read_times_s: deque[float] = deque(maxlen=32)

    @property
    def is_done(self) -> bool:
        """Whether all groups have arrived."""
        return self._next_group >= len(self._groups) and not self.in_flight

    def claim(self) -> int | None:
        """Return the group to read next, or None if there is none or memory is full."""
        if self._retry_heap:
            return heapq.heappop(self._retry_heap)
        if self._next_group >= len(self._groups):
            return None
        group_number, sizes = self._next_group, self._sizes
        size = sum(sizes[sample] for sample in self._groups[group_number])
        held_bytes = self._claimed_bytes - self.freed_bytes
        if held_bytes + size > self._max_bytes and group_number > self.needed_group:
            self.is_full = True
            return None
        self._claimed_bytes += size
        self.in_flight[group_number] = []
        self._next_group += 1
        return group_number

    def retry(self, group_number: int) -> None:
        """Let `claim` return a group again."""
        heapq.heappush(self._retry_heap, group_number)

    def add_request(self, request: InFlightRead) -> None:
        """Record that a claimed group was requested."""
        self.in_flight[request.group_number].append(request)
        self._stats.requests += 1

    def remove_request(self, request: InFlightRead) -> None:
        """Record that a request failed. If the group has no other request, it is requested again."""
        requests = self.in_flight.get(request.group_number)
        if requests is not None:
            requests.remove(request)
            if not requests:
                self.retry(request.group_number)

    def add_content(self, group_number: int, content: GroupContent, elapsed_s: float | None) -> bool:
        """Store a group that has arrived. Return whether this was the first of its requests to finish."""
        if elapsed_s is not None:
            self._read_times_s.append(elapsed_s)
        if self.in_flight.pop(group_number, None) is None:
            return False
        self.ready[group_number] = content
        return True

    def hedge_if_late(self, group_number: int, now: float) -> bool:
        """Request a group a second time if the first request is late. Return whether it was late."""
        requests = self.in_flight.get(group_number, ())
        if not 0 < len(requests) < _MAX_COPIES or group_number in self._retry_heap:
            return False
        if self._stats.hedges >= 2 + _MAX_HEDGE_SHARE * self._stats.requests:
            return False
        times_s = sorted(self._read_times_s)
        usual_s = times_s[len(times_s) // 2] if len(times_s) >= _MIN_TIMINGS else 0.0
        limit_s = max(_HEDGE_AFTER_S, _HEDGE_FACTOR * usual_s)
        if len(self.ready) >= _MIN_OVERTAKING_GROUPS:
            limit_s = min(limit_s, max(_OVERTAKEN_AFTER_S, _OVERTAKEN_FACTOR * usual_s))
        if now - requests[-1].started_at <= limit_s:
            return False
        self._stats.hedges += 1
        self.retry(group_number)
        return True
