"""Read groups before they are needed, with several threads, within a memory limit.

The consumer thread takes groups in their order (`Prefetcher.take`); reader threads fetch them. A group that is late
when it is needed is requested a second time (a hedge), from another server if there is one. While no server delivers,
the consumer uses the groups that are in memory. Then `take` waits, reports why, and fails after the timeout.

If reading is limited by the processor rather than by waiting (a server on this machine, the disk cache), the consumer
reads by itself without threads: that avoids the cost of switching between threads.

read_plan.py decides what to read, and reader_threads.py how many threads do it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from packtrain.errors import FailedError, TransferError
from packtrain.formatting import format_duration
from packtrain.stream.disk_cache import SampleCache
from packtrain.stream.index import LAYOUT_FILES, Index, IndexedArchive
from packtrain.stream.read_groups import ReadGroup, SampleNumbers, make_read_group
from packtrain.stream.read_plan import GroupContent, ReadPlan, ReadStats
from packtrain.stream.reader import GroupReader, InFlightRead, ReadAbandoned, split_samples, verify_blocks
from packtrain.stream.reader_threads import CpuBoundDetector, ReaderThreads
from packtrain.stream.replicas import ArchiveReplicas
from packtrain.transfer.http.pool import connection_pool
from packtrain.transfer.integrity.block_checksums import BlockChecksums
from packtrain.transfer.retry import combine_errors
from packtrain.transfer.urls import redact_url

OnMessage = Callable[[str], None]

_POLL_INTERVAL_S = 0.1
_MAX_INLINE_READ_S = 0.5  # a read without threads that takes longer starts them
_MESSAGE_DELAY_S, _MESSAGE_INTERVAL_S = 5.0, 30.0
_MAX_STORE_WAIT_S = 10.0  # how long `close` waits for writes to the cache; a disk may hang


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
        self._checksums, self._timeout_s, self._on_message = checksums, timeout_s, on_message
        self.stats = ReadStats()
        self._plan = ReadPlan(index, groups, prefetch_bytes, self.stats)
        self._threads = ReaderThreads(self._run_thread, replicas.are_all_local)
        self._condition = threading.Condition(replicas.lock)  # protects the plan and the threads
        self._is_closed, self._n_storing = False, 0
        self._inline_reader = GroupReader(self._check_progress)
        self._failing_since: float | None = None  # since when every request has failed
        self._fatal_error: FailedError | None = None
        self._errors_by_source: dict[str, TransferError] = {}
        self._connection_scope = contextlib.ExitStack()
        self._connection_scope.enter_context(connection_pool())

    def take(self, group_number: int) -> GroupContent:
        """Return the samples of a group and the server they came from, waiting for them if necessary.

        Raises:
            FailedError: No server delivered within the timeout.
        """
        content = self._plan.ready.pop(group_number, None)
        if content is None or self._plan.is_full:
            content = self._wait_for_group(group_number, content)
        return content

    def free(self, n_bytes: int) -> None:
        """Record that samples of this size no longer use memory."""
        self._plan.freed_bytes += n_bytes

    def close(self) -> None:
        """Stop the threads and wait for writes to the cache."""
        with self._condition:
            self._is_closed = True
            self._plan.ready.clear()
            self._condition.notify_all()
            self._condition.wait_for(lambda: not self._n_storing, _MAX_STORE_WAIT_S)
        self._connection_scope.close()

    # Called by the consumer thread

    def _wait_for_group(self, group_number: int, content: GroupContent | None) -> GroupContent:
        started_at, plan = time.monotonic(), self._plan
        next_message_at = started_at + _MESSAGE_DELAY_S
        with self._condition:
            plan.needed_group, plan.is_full = max(plan.needed_group, group_number), False
            self._condition.notify_all()
        while content is None:
            if self._threads.detector.is_cpu_bound and not self._threads.n_running:
                self._read_next_group(self._inline_reader)
            else:
                self._wait_for_change(group_number)
            content = plan.ready.pop(group_number, None)
            now = time.monotonic()
            if content is None and self._fatal_error is not None:
                raise self._fatal_error
            if content is None and now > next_message_at:
                self._on_message(self._waiting_message(now - started_at))
                next_message_at = now + _MESSAGE_INTERVAL_S
        waited_s = time.monotonic() - started_at
        self.stats.wait_s += waited_s
        if waited_s > _MESSAGE_DELAY_S:
            self._on_message(f"data arrives again after {format_duration(waited_s)}")
        return content

    def _wait_for_change(self, group_number: int) -> None:
        """Wait for the threads, for at most the poll interval."""
        with self._condition:
            if group_number not in self._plan.ready and self._fatal_error is None:
                self._start_threads(group_number)
                self._condition.wait(_POLL_INTERVAL_S)

    def _waiting_message(self, waited_s: float) -> str:
        reasons = "; ".join(dict.fromkeys(error.detail for error in self._errors_by_source.values()))
        limit = f" (timeout {format_duration(self._timeout_s)})" if self._errors_by_source else ""
        return f"waiting for data for {format_duration(waited_s)}{limit}: {reasons or 'no response yet'}"

    def _start_threads(self, group_number: int) -> None:
        """Start more threads if they pay off, and request the needed group again if it is late."""
        n_requests = sum(map(len, self._plan.in_flight.values()))
        is_late = self._plan.hedge_if_late(group_number, time.monotonic())
        self._threads.start(self.stats.bytes_read, n_requests, needs_idle=is_late)
        self._condition.notify_all()

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
                self._threads.exited()
                self._condition.notify_all()

    def _set_fatal_error(self, error: FailedError) -> None:
        with self._condition:
            self._fatal_error = self._fatal_error or error

    def _read_next_group(self, reader: GroupReader) -> bool:
        """Read one group, or wait for the poll interval. Return False if this thread should exit."""
        with self._condition:
            is_stopped = self._is_closed or self._fatal_error is not None
            may_read = reader is self._inline_reader or not self._threads.detector.is_cpu_bound
            group_number = self._plan.claim() if may_read and not is_stopped else None
            if group_number is None:
                if is_stopped or self._plan.is_done or self._threads.are_too_many:
                    return False
                self._wait_idle(_POLL_INTERVAL_S)
                return True
        samples = self._read_from_cache(self._groups[group_number])
        if samples is not None:
            self._on_group_read(group_number, samples, None)
        else:
            self._read_from_source(group_number, reader)
        return True

    def _wait_idle(self, timeout_s: float) -> None:
        self._threads.n_idle += 1
        self._condition.wait(timeout_s)
        self._threads.n_idle -= 1

    def _read_from_cache(self, numbers: SampleNumbers) -> list[bytes] | None:
        """Return samples, or None if they are not all cached."""
        if self._cache is None or not self._cache.has_all(numbers):
            return None
        started_at, started_cpu_s = time.monotonic(), time.thread_time()
        try:
            samples = self._cache.read(numbers)
        except OSError:
            return None
        self._threads.detector.record_read(time.thread_time() - started_cpu_s, time.monotonic() - started_at)
        return samples

    def _read_from_source(self, group_number: int, reader: GroupReader) -> None:
        group = self._make_group(self._groups[group_number])
        if not group.size:  # HTTP has no empty range
            self._on_group_read(group_number, [b""] * len(group.samples), None)
            return
        in_flight = self._start_request(group_number, group, is_inline=reader is self._inline_reader)
        if in_flight is None:
            return
        started_cpu_s = time.thread_time()
        try:
            data = self._fetch(in_flight, reader)
            samples = split_samples(self._index, group, data)
        except ReadAbandoned:
            with self._condition:
                in_flight.source_stats.connections -= 1
        except TransferError as error:
            self._on_read_failed(in_flight, error)
        else:
            elapsed_s = time.monotonic() - in_flight.started_at
            self._threads.detector.record_read(time.thread_time() - started_cpu_s, elapsed_s)
            if self._on_group_read(group_number, samples, in_flight) and self._cache is not None:
                self._store_in_cache(self._cache, group, data)

    def _make_group(self, numbers: SampleNumbers) -> ReadGroup:
        block_bytes = self._checksums[self._index.archive_ids[numbers[0]]].block_bytes if self._checksums else 1
        return make_read_group(self._index, numbers, block_bytes)

    def _start_request(self, group_number: int, group: ReadGroup, is_inline: bool) -> InFlightRead | None:
        """Choose a server for a group. Return None if there is none now; the group is then read later."""
        archive_id = group.archive_id
        try:
            self._replicas.discover(archive_id)
        except TransferError as error:
            self._on_discovery_failed(group_number, error)
            return None
        with self._condition:
            now, requests = time.monotonic(), self._plan.in_flight.get(group_number)
            if requests is None:
                return None  # another thread has read it meanwhile
            choice = self._replicas.choose(archive_id, now, [other.source_stats for other in requests])
            if choice is None:  # all servers back off or are excluded
                self._plan.retry(group_number)
                self._give_up_if_exhausted(archive_id, now)
                self._wait_idle(_POLL_INTERVAL_S)
                return None
            source_stats, replica = choice
            source_stats.connections += 1
            in_flight = InFlightRead(
                group_number, group, source_stats, replica, now, source_stats.timeout_factor, is_inline
            )
            self._plan.add_request(in_flight)
            return in_flight

    def _fetch(self, in_flight: InFlightRead, reader: GroupReader) -> memoryview:
        """Return the verified bytes of a group, in memory that the next read overwrites."""
        group, replicas = in_flight.group, self._replicas
        location = replicas.sample_location(in_flight.replica, group.samples[0])
        check_etag = replicas.is_indexed_source(group.archive_id, in_flight.source_stats)
        expected = self._index.archives[group.archive_id]
        if self._index.layout == LAYOUT_FILES:  # of a file of a folder only the size is known
            expected = IndexedArchive("", self._index.sizes[group.samples[0]])
        data = reader.read(in_flight, location, expected, check_etag)
        if self._checksums:
            verify_blocks(group, data, self._checksums[group.archive_id], redact_url(location.url))
        return data

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
        if self._is_closed or in_flight.group_number not in self._plan.in_flight:
            raise ReadAbandoned
        now = time.monotonic()
        if in_flight.is_inline and now - in_flight.started_at > _MAX_INLINE_READ_S:
            with self._condition:
                self._threads.detector = CpuBoundDetector(is_local=False)  # the server is slow: use threads
                self._start_threads(in_flight.group_number)
        if in_flight.is_stalled(now):
            with self._condition:
                is_only = self._replicas.source_set.is_only_usable(in_flight.source_stats, now)
                in_flight.source_stats.record_stall(now, is_only, in_flight.timeout_factor, in_flight.received_bytes)
            raise in_flight.stall_error(now)

    # The outcome of a read

    def _on_group_read(self, group_number: int, samples: list[bytes], in_flight: InFlightRead | None) -> bool:
        """Record a group that was read. Return whether this was the first of its requests to finish."""
        with self._condition:
            source_stats = elapsed_s = None
            if in_flight is None:
                self.stats.cache_hits += 1
            else:
                now, source_stats = time.monotonic(), in_flight.source_stats
                elapsed_s = now - in_flight.started_at
                source_stats.connections -= 1
                source_stats.record_block(in_flight.group.size, elapsed_s, now)
                self.stats.bytes_read += in_flight.group.size
                self._failing_since, self._errors_by_source = None, {}
            if self._is_closed or not self._plan.add_content(group_number, (samples, source_stats), elapsed_s):
                return False
            self._n_storing += in_flight is not None and self._cache is not None
            if group_number == self._plan.needed_group:
                self._condition.notify_all()
            return True

    def _on_read_failed(self, in_flight: InFlightRead, error: TransferError) -> None:
        with self._condition:
            now, source_stats, archive_id = time.monotonic(), in_flight.source_stats, in_flight.group.archive_id
            source_stats.connections -= 1
            deadline_at = (self._failing_since or now) + self._timeout_s
            is_only = self._replicas.source_set.is_only_usable(source_stats, now)
            source_stats.record_failure(error, in_flight.started_at, now, is_only, deadline_at)
            if source_stats.is_refused or error.kind == "unexpected_content":
                self._replicas.exclude(archive_id, source_stats, error)
            self.stats.failures += 1
            self._plan.remove_request(in_flight)
            self._record_error(source_stats.replica.label, error, now)
            self._give_up_if_exhausted(archive_id, now)

    def _on_discovery_failed(self, group_number: int, error: TransferError) -> None:
        with self._condition:
            now = time.monotonic()
            self._plan.retry(group_number)
            self._record_error("discovery", error, now)
            if self._has_timed_out(now) or error.kind == "unsupported":
                self._give_up()
            self._wait_idle(10 * _POLL_INTERVAL_S)

    def _record_error(self, source_label: str, error: TransferError, now: float) -> None:
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._errors_by_source[source_label] = error

    def _has_timed_out(self, now: float) -> bool:
        """Return whether every request has failed until the timeout expired."""
        return self._failing_since is not None and now - self._failing_since > self._timeout_s

    def _give_up_if_exhausted(self, archive_id: int, now: float) -> None:
        """Fail if all servers are excluded, or the timeout expired. If all have failed, look for other ones."""
        servers, exclusions = self._replicas.stats_for(archive_id), self._replicas.exclusion_errors(archive_id)
        if exclusions or self._has_timed_out(now):
            self._give_up(exclusions)
        elif servers and all(stats.n_failures for stats in servers) and not any(self._plan.in_flight.values()):
            self._replicas.forget(archive_id)

    def _give_up(self, errors: Sequence[TransferError] = ()) -> None:
        """Fail with the errors of this prefetcher, or with `errors` of an earlier one."""
        self._fatal_error = self._fatal_error or combine_errors([*self._errors_by_source.values()] or errors)
        self._condition.notify_all()
