"""Read groups before they are needed, with several threads, within a memory limit.

The consumer thread takes groups in their order (`Prefetcher.take`); reader threads fetch them. A group that is late
when it is needed is requested a second time (a hedge), from another server if there is one. While no server delivers,
the consumer uses the groups that are in memory. Then `take` waits, reports why, and fails after the timeout.

If reading is limited by the processor rather than by waiting (a server on this machine, the disk cache), the consumer
reads by itself without threads: that avoids the cost of switching between threads.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from packtrain.errors import FailedError, TransferError
from packtrain.formatting import format_duration
from packtrain.stream.disk_cache import SampleCache
from packtrain.stream.index import LAYOUT_FILES, Index, IndexedArchive
from packtrain.stream.read_groups import ReadGroup, SampleNumbers, make_read_group
from packtrain.stream.reader import GroupReader, InFlightRead, ReadAbandoned, split_samples, verify_blocks
from packtrain.stream.replicas import ArchiveReplicas
from packtrain.transfer.engine.concurrency import ConcurrencyController
from packtrain.transfer.engine.source_stats import SourceStats
from packtrain.transfer.http.pool import connection_pool
from packtrain.transfer.integrity.block_checksums import BlockChecksums
from packtrain.transfer.retry import combine_errors
from packtrain.transfer.urls import redact_url

OnMessage = Callable[[str], None]

INITIAL_THREADS, MAX_THREADS = 16, 32
_POLL_INTERVAL_S = 0.1
_HEDGE_AFTER_S, _HEDGE_FACTOR = 0.5, 3.0  # late after this time, and after this multiple of the usual read time
_MIN_OVERTAKING_GROUPS = 8  # if this many later groups have arrived, the next two limits apply instead
_OVERTAKEN_AFTER_S, _OVERTAKEN_FACTOR = 0.2, 1.5
_MAX_HEDGE_SHARE, _MAX_COPIES = 0.1, 3  # hedges per request, and requests for one group at a time
_MIN_TIMINGS = 4  # reads needed to estimate the usual read time
_MESSAGE_DELAY_S, _MESSAGE_INTERVAL_S = 5.0, 30.0
_MAX_STORE_WAIT_S = 10.0  # how long `close` waits for writes to the cache; a disk may hang
_CPU_TIME_DECAY = 0.95  # weight of earlier reads, per read
_CPU_BOUND_SHARE = 0.3  # below 1, because other processes also use the processor
_LOCAL_CPU_BOUND_SHARE = 0.1  # lower, because a local server needs the processor while the reader waits for it
_MIN_CPU_TIMINGS = 4  # reads needed to compare processor time and elapsed time


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
        """Record how long a read took.

        Args:
            cpu_s: Processor time, in seconds.
            elapsed_s: Elapsed time, in seconds.
        """
        self._cpu_s = _CPU_TIME_DECAY * self._cpu_s + cpu_s
        self._elapsed_s = _CPU_TIME_DECAY * self._elapsed_s + elapsed_s
        self._n_reads += 1

    @property
    def is_cpu_bound(self) -> bool:
        """Whether the processor limits reading."""
        if self._n_reads < _MIN_CPU_TIMINGS:
            return self._is_local
        return self._cpu_s >= (_LOCAL_CPU_BOUND_SHARE if self._is_local else _CPU_BOUND_SHARE) * self._elapsed_s


class Prefetcher:
    """Reads groups in order, ahead of the consumer.

    Args:
        index: The index.
        groups: The groups, in the order in which they are taken.
        replicas: The servers.
        prefetch_bytes: Memory for samples that were read and not yet freed, in bytes.
        timeout_s: How long to wait while no server delivers, in seconds.
        on_message: Called with messages for the user while the consumer waits.
        cache: The disk cache, if there is one.
        checksums: The checksums of each archive, to verify each block; empty: no verification.

    Attributes:
        stats: Counts of what was read.
        freed_bytes: Size of the samples that the consumer has freed. The consumer adds to it.
    """

    def __init__(
        self,
        index: Index,
        groups: Sequence[SampleNumbers],
        replicas: ArchiveReplicas,
        *,
        prefetch_bytes: int,
        timeout_s: float,
        on_message: OnMessage,
        cache: SampleCache | None = None,
        checksums: Sequence[BlockChecksums] = (),
    ) -> None:
        self._index, self._groups, self._replicas, self._cache = index, groups, replicas, cache
        self._checksums = checksums
        self._prefetch_bytes, self._timeout_s, self._on_message = prefetch_bytes, timeout_s, on_message
        self.stats = ReadStats()
        self._condition = threading.Condition(replicas.lock)
        self._ready: dict[int, list[bytes]] = {}
        self._source_by_group: dict[int, SourceStats] = {}  # the server that each group came from
        self._in_flight: dict[int, list[InFlightRead]] = {}
        self._retry_heap: list[int] = []  # groups to request again, lowest first
        self._next_group = self._needed_group = 0
        self._held_bytes = self.freed_bytes = 0  # bytes read or being read, including the freed ones
        self._is_full = self._is_closed = False
        self._n_threads = self._n_idle = self._n_storing = 0
        self._concurrency = ConcurrencyController(INITIAL_THREADS, MAX_THREADS, time.monotonic())
        self._cpu_bound_detector = CpuBoundDetector(replicas.are_all_local)
        self._inline_reader = GroupReader(self._check_progress)
        self._read_times_s: deque[float] = deque(maxlen=32)
        self._failing_since: float | None = None  # since when every request has failed
        self._fatal_error: FailedError | None = None
        self._errors_by_source: dict[str, TransferError] = {}
        self._connection_scope = contextlib.ExitStack()
        self._connection_scope.enter_context(connection_pool())

    def take(self, group_number: int) -> list[bytes]:
        """Return the samples of a group, waiting for it if necessary.

        Args:
            group_number: The position of the group.

        Raises:
            FailedError: No server delivered within the timeout.
        """
        samples = self._ready.pop(group_number, None)
        if samples is None or self._is_full:
            samples = self._wait_for_group(group_number, samples)
        return samples

    def source_of(self, group_number: int) -> SourceStats | None:
        """Return the server that a group came from; None if it came from the cache.

        Args:
            group_number: The position of the group.
        """
        return self._source_by_group.get(group_number)

    def close(self) -> None:
        """Stop the threads and wait for writes to the cache."""
        with self._condition:
            self._is_closed = True
            self._ready.clear()
            self._condition.notify_all()
            self._condition.wait_for(lambda: not self._n_storing, _MAX_STORE_WAIT_S)
        self._connection_scope.close()

    # Called by the consumer thread

    def _wait_for_group(self, group_number: int, samples: list[bytes] | None) -> list[bytes]:
        started_at = time.monotonic()
        next_message_at = started_at + _MESSAGE_DELAY_S
        with self._condition:
            self._needed_group, self._is_full = max(self._needed_group, group_number), False
            self._condition.notify_all()
        while samples is None:
            if self._cpu_bound_detector.is_cpu_bound and not self._n_threads:
                self._read_next_group(self._inline_reader)
            else:
                self._wait_for_change(group_number)
            samples = self._ready.pop(group_number, None)
            now = time.monotonic()
            if samples is None and self._fatal_error is not None:
                raise self._fatal_error
            if samples is None and now > next_message_at:
                self._on_message(self._waiting_message(now - started_at))
                next_message_at = now + _MESSAGE_INTERVAL_S
        waited_s = time.monotonic() - started_at
        self.stats.wait_s += waited_s
        if waited_s > _MESSAGE_DELAY_S:
            self._on_message(f"data arrives again after {format_duration(waited_s)}")
        return samples

    def _wait_for_change(self, group_number: int) -> None:
        """Wait for the threads, for at most the poll interval."""
        with self._condition:
            if group_number not in self._ready and self._fatal_error is None:
                self._adjust_threads(group_number)
                self._condition.wait(_POLL_INTERVAL_S)

    def _waiting_message(self, waited_s: float) -> str:
        reasons = "; ".join(dict.fromkeys(error.detail for error in self._errors_by_source.values()))
        limit = f" (timeout {format_duration(self._timeout_s)})" if self._errors_by_source else ""
        return f"waiting for data for {format_duration(waited_s)}{limit}: {reasons or 'no response yet'}"

    def _adjust_threads(self, group_number: int) -> None:
        """Start more threads if they pay off, and request a late group again."""
        now = time.monotonic()
        n_requests = sum(map(len, self._in_flight.values()))
        wanted = self._concurrency.update(self.stats.bytes_read, time.process_time(), now, n_requests)
        if self._is_late(group_number, now):
            self.stats.hedges += 1
            heapq.heappush(self._retry_heap, group_number)
            wanted = max(wanted, self._n_threads + (not self._n_idle))
        for _ in range(self._n_threads, 0 if self._cpu_bound_detector.is_cpu_bound else min(wanted, MAX_THREADS + 1)):
            self._n_threads += 1
            threading.Thread(target=self._run_thread, name="stream", daemon=True).start()
        self._condition.notify_all()

    def _is_late(self, group_number: int, now: float) -> bool:
        requests = self._in_flight.get(group_number, ())
        if not 0 < len(requests) < _MAX_COPIES or group_number in self._retry_heap:
            return False
        if self.stats.hedges >= 2 + _MAX_HEDGE_SHARE * self.stats.requests:
            return False
        usual_s = (
            sorted(self._read_times_s)[len(self._read_times_s) // 2] if len(self._read_times_s) >= _MIN_TIMINGS else 0.0
        )
        age_s = now - requests[-1].started_at
        is_overtaken = len(self._ready) >= _MIN_OVERTAKING_GROUPS and age_s > max(
            _OVERTAKEN_AFTER_S, _OVERTAKEN_FACTOR * usual_s
        )
        return is_overtaken or age_s > max(_HEDGE_AFTER_S, _HEDGE_FACTOR * usual_s)

    # Called by the reader threads, and by the consumer when it reads by itself

    def _run_thread(self) -> None:
        reader = GroupReader(self._check_progress)
        try:
            while self._read_next_group(reader):
                pass
        except FailedError as error:
            self._set_fatal_error(error)
        except BaseException as error:
            self._set_fatal_error(FailedError("internal", f"reading failed: {error!r}"))
            raise
        finally:
            with self._condition:
                self._n_threads -= 1
                self._condition.notify_all()

    def _set_fatal_error(self, error: FailedError) -> None:
        with self._condition:
            self._fatal_error = self._fatal_error or error

    def _read_next_group(self, reader: GroupReader) -> bool:
        """Read one group, or wait for the poll interval. Return False if this thread should exit."""
        with self._condition:
            may_read = reader is self._inline_reader or not self._cpu_bound_detector.is_cpu_bound
            group_number = self._claim_group() if may_read else None
            if group_number is None:
                return not self._should_thread_exit() and self._wait_idle(_POLL_INTERVAL_S)
        if (
            self._cache is not None
            and self._cache.has_all(self._groups[group_number])
            and self._read_from_cache(group_number, self._cache)
        ):
            return True
        in_flight = self._start_read(group_number)
        if in_flight is not None:
            self._read_from_source(in_flight, reader)
        return True

    def _read_from_cache(self, group_number: int, cache: SampleCache) -> bool:
        started_at, started_cpu_s = time.monotonic(), time.thread_time()
        try:
            samples = cache.read(self._groups[group_number])
        except OSError:
            return False  # the caller reads from a server
        self._cpu_bound_detector.record_read(time.thread_time() - started_cpu_s, time.monotonic() - started_at)
        self._on_group_read(group_number, samples, None)
        return True

    def _should_thread_exit(self) -> bool:
        is_done = self._next_group >= len(self._groups) and not self._in_flight
        max_threads = 0 if self._cpu_bound_detector.is_cpu_bound else self._concurrency.connections + 1
        return self._is_closed or self._fatal_error is not None or is_done or self._n_threads > max_threads

    def _wait_idle(self, timeout_s: float) -> bool:
        self._n_idle += 1
        self._condition.wait(timeout_s)
        self._n_idle -= 1
        return True

    def _claim_group(self) -> int | None:
        """Return the group to read next, if memory allows. From now on its bytes count as held."""
        if self._is_closed or self._fatal_error is not None:
            return None
        if self._retry_heap:
            return heapq.heappop(self._retry_heap)
        if self._next_group >= len(self._groups):
            return None
        size = self._samples_bytes(self._next_group)
        if self._held_bytes - self.freed_bytes + size > self._prefetch_bytes and self._next_group > self._needed_group:
            self._is_full = True
            return None
        self._held_bytes += size
        self._in_flight[self._next_group] = []
        self._next_group += 1
        return self._next_group - 1

    def _make_group(self, group_number: int) -> ReadGroup:
        samples = self._groups[group_number]
        block_bytes = self._checksums[self._index.archive_ids[samples[0]]].block_bytes if self._checksums else 1
        return make_read_group(self._index, samples, block_bytes)

    def _samples_bytes(self, group_number: int) -> int:
        sizes = self._index.sizes
        return sum(sizes[sample] for sample in self._groups[group_number])

    def _start_read(self, group_number: int) -> InFlightRead | None:
        """Choose a server for a group. Return None if there is none now; the group is then read later."""
        group = self._make_group(group_number)
        archive_id = group.archive_id
        if not group.size:  # HTTP has no empty range
            self._on_group_read(group_number, [b""] * len(group.samples), None)
            return None
        try:
            self._replicas.discover(archive_id)
        except TransferError as error:
            self._defer_group(group_number, "discovery", error)
            return None
        with self._condition:
            now, requests = time.monotonic(), self._in_flight.get(group_number)
            if requests is None:
                return None  # another thread has read it meanwhile
            choice = self._replicas.choose(archive_id, now, [other.source_stats for other in requests])
            if choice is None:
                self._wait_for_source(group_number, archive_id, now)
                return None
            source_stats, replica = choice
            source_stats.connections += 1
            in_flight = InFlightRead(
                group_number, group, source_stats, replica, now, source_stats.timeout_factor, is_hedge=bool(requests)
            )
            requests.append(in_flight)
            self.stats.requests += 1
            return in_flight

    def _read_from_source(self, in_flight: InFlightRead, reader: GroupReader) -> None:
        group, replicas = in_flight.group, self._replicas
        archive_id = group.archive_id
        in_flight.is_inline, started_cpu_s = reader is self._inline_reader, time.thread_time()
        try:
            location = replicas.sample_location(in_flight.replica, group.samples[0])
            check_etag = replicas.is_indexed_source(archive_id, in_flight.source_stats)
            data = reader.read(in_flight, location, self._expected_archive(group), check_etag)
            if self._checksums:
                verify_blocks(group, data, self._checksums[archive_id], redact_url(location.url))
            samples = split_samples(self._index, group, data)
        except ReadAbandoned:
            self._on_read_abandoned(in_flight)
        except TransferError as error:
            self._on_read_failed(in_flight, archive_id, error)
        else:
            elapsed_s = time.monotonic() - in_flight.started_at
            self._cpu_bound_detector.record_read(time.thread_time() - started_cpu_s, elapsed_s)
            if self._on_group_read(in_flight.group_number, samples, in_flight) and self._cache is not None:
                self._store_in_cache(self._cache, group, data)

    def _expected_archive(self, group: ReadGroup) -> IndexedArchive:
        """Return the indexed archive. For a file of a folder only the size is known."""
        if self._index.layout == LAYOUT_FILES:
            return IndexedArchive("", self._index.sizes[group.samples[0]])
        return self._index.archives[group.archive_id]

    def _store_in_cache(self, cache: SampleCache, group: ReadGroup, data: memoryview) -> None:
        try:
            cache.store(group, data)
        finally:
            with self._condition:
                self._n_storing -= 1
                if self._is_closed:
                    self._condition.notify_all()

    def _check_progress(self, in_flight: InFlightRead) -> None:
        """Raise an exception if a read is no longer needed, or stalled."""
        if self._is_closed or in_flight.group_number not in self._in_flight:
            raise ReadAbandoned
        now = time.monotonic()
        if in_flight.is_inline and now - in_flight.started_at > _HEDGE_AFTER_S:
            self._cpu_bound_detector = CpuBoundDetector(is_local=False)  # the server is slow: use threads
            with self._condition:
                self._adjust_threads(in_flight.group_number)
        if in_flight.is_stalled(now):
            with self._condition:
                is_only = self._replicas.source_set.is_only_usable(in_flight.source_stats, now)
                in_flight.source_stats.record_stall(now, is_only, in_flight.timeout_factor, in_flight.received_bytes)
            raise in_flight.stall_error(now)

    def _on_group_read(self, group_number: int, samples: list[bytes], in_flight: InFlightRead | None) -> bool:
        """Record a group that was read. Return whether this was the first of its requests to finish."""
        with self._condition:
            now = time.monotonic()
            if in_flight is None:
                self.stats.cache_hits += 1
            else:
                elapsed_s = now - in_flight.started_at
                in_flight.source_stats.connections -= 1
                in_flight.source_stats.record_block(in_flight.group.size, elapsed_s, now)
                self.stats.bytes_read += in_flight.group.size
                self._read_times_s.append(elapsed_s)
                self._failing_since, self._errors_by_source = None, {}
            if self._in_flight.pop(group_number, None) is None or self._is_closed:
                return False
            self._ready[group_number] = samples
            if in_flight is not None:
                self._source_by_group[group_number] = in_flight.source_stats
                self._n_storing += self._cache is not None
            if group_number == self._needed_group:
                self._condition.notify_all()
            return True

    def _on_read_abandoned(self, in_flight: InFlightRead) -> None:
        with self._condition:
            in_flight.source_stats.connections -= 1

    def _on_read_failed(self, in_flight: InFlightRead, archive_id: int, error: TransferError) -> None:
        with self._condition:
            now, source_stats = time.monotonic(), in_flight.source_stats
            source_stats.connections -= 1
            deadline_at = (self._failing_since or now) + self._timeout_s
            is_only = self._replicas.source_set.is_only_usable(source_stats, now)
            source_stats.record_failure(error, in_flight.started_at, now, is_only, deadline_at)
            if source_stats.is_refused or error.kind == "unexpected_content":
                self._replicas.exclude(archive_id, source_stats, error)
            self.stats.failures += 1
            requests = self._in_flight.get(in_flight.group_number)
            if requests is not None:
                requests.remove(in_flight)
                if not requests:
                    heapq.heappush(self._retry_heap, in_flight.group_number)
            self._record_error(source_stats.replica.label, error, now)
            self._give_up_if_exhausted(archive_id, now)

    def _defer_group(self, group_number: int, source_label: str, error: TransferError) -> None:
        with self._condition:
            now = time.monotonic()
            heapq.heappush(self._retry_heap, group_number)
            self._record_error(source_label, error, now)
            if now - (self._failing_since or now) > self._timeout_s or error.kind == "unsupported":
                self._give_up()
            self._wait_idle(10 * _POLL_INTERVAL_S)

    def _wait_for_source(self, group_number: int, archive_id: int, now: float) -> None:
        """Put a group back while all servers back off or are excluded."""
        heapq.heappush(self._retry_heap, group_number)
        self._give_up_if_exhausted(archive_id, now)
        self._wait_idle(_POLL_INTERVAL_S)

    def _record_error(self, source_label: str, error: TransferError, now: float) -> None:
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._errors_by_source[source_label] = error

    def _give_up_if_exhausted(self, archive_id: int, now: float) -> None:
        """Fail if all servers are excluded, or every request failed until the timeout expired."""
        servers, exclusions = self._replicas.stats_for(archive_id), self._replicas.exclusion_errors(archive_id)
        if exclusions or (self._failing_since is not None and now - self._failing_since > self._timeout_s):
            self._give_up(exclusions)
        elif servers and all(stats.n_failures for stats in servers) and not self._has_reads_in_flight():
            self._replicas.forget(archive_id)

    def _has_reads_in_flight(self) -> bool:
        return any(self._in_flight.values())

    def _give_up(self, errors: Sequence[TransferError] = ()) -> None:
        """Fail with the errors of this prefetcher, or with `errors` of an earlier one."""
        self._fatal_error = self._fatal_error or combine_errors([*self._errors_by_source.values()] or errors)
        self._condition.notify_all()
