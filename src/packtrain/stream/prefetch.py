"""Pieces are read before they are needed, by threads: as many as pay, within a limit of memory.

One thread gives samples to the training and asks for pieces in their order (`take`); `Reader` threads bring them. A
piece that is late when it is needed is asked for a second time, elsewhere if there is another place. While nobody
delivers, what is here is used up; then `take` waits, says why, and fails after the patience.

Where reading costs processor time rather than waiting (a server on this machine, the disk), nothing is read ahead: the
one who takes reads by himself, which spares the processor the changes between threads.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from packtrain.errors import FailedError, TransferError
from packtrain.stream.cpu_bound import CpuBoundDetector
from packtrain.stream.disk_cache import SampleCache
from packtrain.stream.index import LAYOUT_FILES, Index, IndexedArchive
from packtrain.stream.read_groups import ReadGroup, SampleNumbers, make_read_group
from packtrain.stream.reader import GroupReader, InFlightRead, ReadAbandoned, split_samples, verify_blocks
from packtrain.stream.replicas import ArchiveReplicas
from packtrain.transfer.block_checksums import BlockChecksums
from packtrain.transfer.engine.concurrency import ConcurrencyController
from packtrain.transfer.engine.source_stats import SourceStats
from packtrain.transfer.http.pool import connection_pool
from packtrain.transfer.retry import combine_errors
from packtrain.transfer.urls import redact_url

OnMessage = Callable[[str], None]

INITIAL_THREADS, MAX_THREADS = 16, 32  # where one is not enough
_POLL_INTERVAL_S = 0.1
_HEDGE_AFTER_S, _HEDGE_FACTOR = 0.5, 3.0
_MIN_OVERTAKING_GROUPS = 8  # pieces that were asked for later and are here: then it is late sooner
_OVERTAKEN_AFTER_S, _OVERTAKEN_FACTOR = 0.2, 1.5
_MAX_HEDGE_SHARE, _MAX_COPIES = 0.1, 3
_MIN_TIMINGS = 4  # pieces, until it is known how long one takes
_MESSAGE_DELAY_S, _MESSAGE_INTERVAL_S = 5.0, 30.0
_MAX_STORE_WAIT_S = 10.0  # what came last; a disk that hangs is not waited for


class ReadStats:
    """Of one prefetch, or added up."""

    def __init__(self) -> None:
        self.bytes_read = self.requests = self.failures = self.hedges = self.cache_hits = 0
        self.wait_s = 0.0


class Prefetcher:
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
        self._source_by_group: dict[int, SourceStats] = {}  # who gave a piece
        self._in_flight: dict[int, list[InFlightRead]] = {}
        self._retry_heap: list[int] = []  # a heap of pieces to ask for once more
        self._next_group = self._needed_group = 0
        self._held_bytes = self.freed_bytes = (
            0  # bytes read or being read; of them given away, counted by the one who takes
        )
        self._is_full = self._is_closed = False
        self._n_threads = self._n_idle = self._n_storing = 0
        self._concurrency = ConcurrencyController(INITIAL_THREADS, MAX_THREADS, time.monotonic())
        self._cpu_bound_detector, self._inline_reader = (
            CpuBoundDetector(replicas.are_all_local),
            GroupReader(self._check_progress),
        )
        self._read_times_s: deque[float] = deque(maxlen=32)
        self._failing_since: float | None = None  # since when nothing comes
        self._fatal_error: FailedError | None = None
        self._errors_by_source: dict[str, TransferError] = {}
        self._connection_scope = contextlib.ExitStack()
        self._connection_scope.enter_context(connection_pool())

    def take(self, group_number: int) -> list[bytes]:
        """The samples of a piece. Whoever takes adds what he lets go to `freed`."""
        found = self._ready.pop(group_number, None)
        if found is None or self._is_full:
            found = self._wait_for_group(group_number, found)
        return found

    def source_of(self, group_number: int) -> SourceStats | None:
        return self._source_by_group.get(group_number)

    def close(self) -> None:
        with self._condition:
            self._is_closed = True
            self._ready.clear()
            self._condition.notify_all()
            self._condition.wait_for(lambda: not self._n_storing, _MAX_STORE_WAIT_S)
        self._connection_scope.close()

    # The one who takes

    def _wait_for_group(self, group_number: int, samples: list[bytes] | None) -> list[bytes]:
        began = time.monotonic()
        tell_at = began + _MESSAGE_DELAY_S
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
            if samples is None and now > tell_at:
                self._on_message(self._waiting_message(now - began))
                tell_at = now + _MESSAGE_INTERVAL_S
        waited = time.monotonic() - began
        self.stats.wait_s += waited
        if waited > _MESSAGE_DELAY_S:
            self._on_message(f"the data comes again after {waited:.0f} s")
        return samples

    def _wait_for_change(self, group_number: int) -> None:
        """For the threads: until something changes, or a moment."""
        with self._condition:
            if group_number not in self._ready and self._fatal_error is None:
                self._adjust_threads(group_number)
                self._condition.wait(_POLL_INTERVAL_S)

    def _waiting_message(self, waited_s: float) -> str:
        reasons = "; ".join(dict.fromkeys(error.detail for error in self._errors_by_source.values()))
        left = f", for {self._timeout_s:.0f} s at most" if self._errors_by_source else ""
        return f"waiting for data for {waited_s:.0f} s{left}: {reasons or 'no answer yet'}"

    def _adjust_threads(self, group_number: int) -> None:
        """While the training waits: more threads if they pay, and a second copy of what is late."""
        now = time.monotonic()
        attempts = sum(map(len, self._in_flight.values()))
        wanted = self._concurrency.update(self.stats.bytes_read, time.process_time(), now, attempts)
        if self._is_late(group_number, now):
            self.stats.hedges += 1
            heapq.heappush(self._retry_heap, group_number)
            wanted = max(wanted, self._n_threads + (not self._n_idle))
        for _ in range(self._n_threads, 0 if self._cpu_bound_detector.is_cpu_bound else min(wanted, MAX_THREADS + 1)):
            self._n_threads += 1
            threading.Thread(target=self._run_thread, name="stream", daemon=True).start()
        self._condition.notify_all()

    def _is_late(self, group_number: int, now: float) -> bool:
        flying = self._in_flight.get(group_number, ())
        if not 0 < len(flying) < _MAX_COPIES or group_number in self._retry_heap:
            return False
        if self.stats.hedges >= 2 + _MAX_HEDGE_SHARE * self.stats.requests:
            return False
        usual = (
            sorted(self._read_times_s)[len(self._read_times_s) // 2] if len(self._read_times_s) >= _MIN_TIMINGS else 0.0
        )
        age = now - flying[-1].started_at
        overtaken = len(self._ready) >= _MIN_OVERTAKING_GROUPS and age > max(
            _OVERTAKEN_AFTER_S, _OVERTAKEN_FACTOR * usual
        )
        return overtaken or age > max(_HEDGE_AFTER_S, _HEDGE_FACTOR * usual)

    # The threads that read

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
        """One piece, or one moment of waiting; False: this thread may go."""
        with self._condition:
            number = (
                self._claim_group()
                if reader is self._inline_reader or not self._cpu_bound_detector.is_cpu_bound
                else None
            )
            if number is None:
                return not self._should_thread_exit() and self._wait_idle(_POLL_INTERVAL_S)
        if (
            self._cache is not None
            and self._cache.has_all(self._groups[number])
            and self._read_from_cache(number, self._cache)
        ):
            return True
        attempt = self._start_read(number)
        if attempt is not None:
            self._read_from_source(attempt, reader)
        return True

    def _read_from_cache(self, group_number: int, cache: SampleCache) -> bool:
        began, cpu_s = time.monotonic(), time.thread_time()
        try:
            found = cache.read(self._groups[group_number])
        except OSError:
            return False  # then by the network
        self._cpu_bound_detector.record_read(time.thread_time() - cpu_s, time.monotonic() - began)
        self._on_group_read(group_number, found, None)
        return True

    def _should_thread_exit(self) -> bool:
        done = self._next_group >= len(self._groups) and not self._in_flight
        many = 0 if self._cpu_bound_detector.is_cpu_bound else self._concurrency.connections + 1
        return self._is_closed or self._fatal_error is not None or done or self._n_threads > many

    def _wait_idle(self, timeout_s: float) -> bool:
        self._n_idle += 1
        self._condition.wait(timeout_s)
        self._n_idle -= 1
        return True

    def _claim_group(self) -> int | None:
        """What to read next; its bytes count as held from now on."""
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
        block = self._checksums[self._index.archive_ids[samples[0]]].block_bytes if self._checksums else 1
        return make_read_group(self._index, samples, block)

    def _samples_bytes(self, group_number: int) -> int:
        """Bytes that the samples of a piece take."""
        sizes = self._index.sizes
        return sum(sizes[sample] for sample in self._groups[group_number])

    def _start_read(self, group_number: int) -> InFlightRead | None:
        """Who is asked for it. None: nobody can be now; the piece waits."""
        piece = self._make_group(group_number)
        archive = piece.archive_id
        if not piece.size:  # there is no range of no bytes that one could ask for
            self._on_group_read(group_number, [b""] * len(piece.samples), None)
            return None
        try:
            self._replicas.discover(archive)
        except TransferError as error:
            self._defer_group(group_number, "finding", error)
            return None
        with self._condition:
            now, flying = time.monotonic(), self._in_flight.get(group_number)
            if flying is None:
                return None  # it has come meanwhile
            chosen = self._replicas.choose(archive, now, [other.source_stats for other in flying])
            if chosen is None:
                self._wait_for_source(group_number, archive, now)
                return None
            standing, place = chosen
            standing.connections += 1
            attempt = InFlightRead(
                group_number, piece, standing, place, now, standing.timeout_factor, is_hedge=bool(flying)
            )
            flying.append(attempt)
            self.stats.requests += 1
            return attempt

    def _read_from_source(self, in_flight: InFlightRead, reader: GroupReader) -> None:
        piece, hosts = in_flight.group, self._replicas
        archive = piece.archive_id
        in_flight.is_inline, cpu_s = reader is self._inline_reader, time.thread_time()
        try:
            ref = hosts.sample_location(in_flight.replica, piece.samples[0])
            data = reader.read(
                in_flight, ref, self._expected_archive(piece), hosts.is_indexed_source(archive, in_flight.source_stats)
            )
            if self._checksums:
                verify_blocks(piece, data, self._checksums[archive], redact_url(ref.url))
            found = split_samples(self._index, piece, data)
        except ReadAbandoned:
            self._on_read_abandoned(in_flight)
        except TransferError as error:
            self._on_read_failed(in_flight, archive, error)
        else:
            self._cpu_bound_detector.record_read(time.thread_time() - cpu_s, time.monotonic() - in_flight.started_at)
            if self._on_group_read(in_flight.group_number, found, in_flight) and self._cache is not None:
                self._store_in_cache(self._cache, piece, data)

    def _expected_archive(self, group: ReadGroup) -> IndexedArchive:
        """What the object should be; of files in a folder only the size is known."""
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
        """Asked while bytes are waited for: is it worth it?"""
        if self._is_closed or in_flight.group_number not in self._in_flight:
            raise ReadAbandoned
        now = time.monotonic()
        if in_flight.is_inline and now - in_flight.started_at > _HEDGE_AFTER_S:
            self._cpu_bound_detector = CpuBoundDetector(is_local=False)  # no longer quick
            with self._condition:
                self._adjust_threads(in_flight.group_number)
        if in_flight.is_stalled(now):
            with self._condition:
                alone = self._replicas.source_set.is_only_usable(in_flight.source_stats, now)
                in_flight.source_stats.record_stall(now, alone, in_flight.timeout_factor, in_flight.received_bytes)
            raise in_flight.stall_error(now)

    def _on_group_read(self, group_number: int, samples: list[bytes], in_flight: InFlightRead | None) -> bool:
        """Whether it is the first to bring it."""
        with self._condition:
            now = time.monotonic()
            if in_flight is None:
                self.stats.cache_hits += 1
            else:
                took = now - in_flight.started_at
                in_flight.source_stats.connections -= 1
                in_flight.source_stats.record_block(in_flight.group.size, took, now)
                self.stats.bytes_read += in_flight.group.size
                self._read_times_s.append(took)
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
            now, standing = time.monotonic(), in_flight.source_stats
            standing.connections -= 1
            ends = (self._failing_since or now) + self._timeout_s
            standing.record_failure(
                error, in_flight.started_at, now, self._replicas.source_set.is_only_usable(standing, now), ends
            )
            if standing.is_refused or error.kind == "unexpected_content":
                self._replicas.exclude(archive_id, standing, error)
            self.stats.failures += 1
            flying = self._in_flight.get(in_flight.group_number)
            if flying is not None:
                flying.remove(in_flight)
                if not flying:
                    heapq.heappush(self._retry_heap, in_flight.group_number)
            self._record_error(standing.replica.label, error, now)
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
        """All rest, or are refused: the piece waits until one may be asked."""
        heapq.heappush(self._retry_heap, group_number)
        self._give_up_if_exhausted(archive_id, now)
        self._wait_idle(_POLL_INTERVAL_S)

    def _record_error(self, source_label: str, error: TransferError, now: float) -> None:
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._errors_by_source[source_label] = error

    def _give_up_if_exhausted(self, archive_id: int, now: float) -> None:
        """Give up when nobody may be asked ever again, or nothing came for the whole patience."""
        known, hopeless = self._replicas.stats_for(archive_id), self._replicas.exclusion_errors(archive_id)
        if hopeless or (self._failing_since is not None and now - self._failing_since > self._timeout_s):
            self._give_up(hopeless)
        elif known and all(standing.n_failures for standing in known) and not self._has_reads_in_flight():
            self._replicas.forget(archive_id)

    def _has_reads_in_flight(self) -> bool:
        return any(self._in_flight.values())

    def _give_up(self, errors: Sequence[TransferError] = ()) -> None:
        """The reason may be older than this stream."""
        self._fatal_error = self._fatal_error or combine_errors([*self._errors_by_source.values()] or errors)
        self._condition.notify_all()
