"""The state that all connections of one download share.

`FetchCoordinator` holds the scheduler, the sources and the counters under one lock, and never touches the network. Each
connection is a `worker.DownloadWorker`: it requests work from the coordinator, receives blocks and reports what
happened. `worker.run_workers` starts them and waits for the end. Blocks go to a `BlockSink`: a file (`file_sink`) or a
window in memory (`ordered_download`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from typing import Protocol

from packtrain.errors import TransferError
from packtrain.transfer.api import ObjectInfo
from packtrain.transfer.engine.completion import POLL_INTERVAL_S, Completion
from packtrain.transfer.engine.concurrency import (
    HIGH_LATENCY_S,
    MAX_CONNECTIONS,
    ConcurrencyController,
    StarvationDetector,
)
from packtrain.transfer.engine.fetch_request import (
    ActiveRequests,
    FetchRequest,
    ObjectChangedError,
    RangeRequest,
    TransferStats,
)
from packtrain.transfer.engine.resolver import SourceResolver
from packtrain.transfer.engine.resume_log import ObjectIdentity
from packtrain.transfer.engine.scheduler import MAX_SPAN_BLOCKS, BlockScheduler, BlockSpan
from packtrain.transfer.engine.source_stats import SourceSelector, SourceStats
from packtrain.transfer.retry import combine_errors, try_ends_at

_logger = logging.getLogger("packtrain.transfer.engine")
_MAX_IDLE_POLL_INTERVAL_S = 0.4  # of an idle worker; a node with many agents has hundreds of them
_MAX_BUFFERED_BYTES = 96 << 20
_BLOCKS_PER_WORKER = 2
MIN_UNSIZED_PROGRESS_BYTES = 1 << 14  # a body without a length may drip forever


class DirectWriter(Protocol):
    """Accepts blocks in chunks, as they are received."""

    def write_chunk(self, index: int, offset: int, chunk: memoryview) -> None:
        """Write the bytes of a block from `offset` on."""
        ...

    def finish_block(self, index: int) -> None:
        """Record that all chunks of a block are written."""
        ...

    def read_back(self, index: int, view: memoryview) -> None:
        """Read the first bytes of an incomplete block into memory."""
        ...


class BlockSink(Protocol):
    """The destination of the blocks."""

    def begin(self, identity: ObjectIdentity) -> None:
        """Prepare for a new object."""
        ...

    def begin_unsized(self) -> None:
        """Prepare for a new object of unknown size."""
        ...

    def write_block(self, index: int, block: memoryview) -> memoryview:
        """Store a block and return a buffer to receive the next one into."""
        ...

    def append(self, position: int, data: memoryview) -> None:
        """Store the next bytes of an object of unknown size."""
        ...

    @property
    def direct_writer(self) -> DirectWriter | None:
        """A writer for chunks, or None if complete blocks are needed."""
        ...


class FetchCoordinator:
    """Distributes the blocks of one object over connections and decides when the download has ended."""

    def __init__(
        self, request: FetchRequest, block_sink: BlockSink, sources: SourceSelector, stats: TransferStats
    ) -> None:
        self.request, self.block_sink, self.sources, self.stats = request, block_sink, sources, stats
        self.condition = threading.Condition()
        self.identity: ObjectIdentity | None = None
        self.scheduler: BlockScheduler | None = None
        self.last_source: SourceStats | None = None  # sent the last block
        self.is_reading_unsized = False  # one connection reads an object of unknown size
        self._max_unsized_bytes = 0  # of it, in all tries; a body that breaks off again is no progress
        self.n_workers = 0
        self.completion = Completion(self.condition, self._has_all_blocks)
        self.active_requests = ActiveRequests()
        self.window_blocks: int | None = None  # how far the assigned blocks may be ahead of the reader; None: unlimited
        self.max_span_blocks = MAX_SPAN_BLOCKS  # for blocks of `request.block_bytes`
        self.high_latency_block_bytes = request.block_bytes  # block size if the first server to respond is distant
        self.max_connections = min(MAX_CONNECTIONS, max(1, _MAX_BUFFERED_BYTES // request.block_bytes))
        self._resolver = SourceResolver(request.remote_file.locations, request.resolve_secret, self)
        self.round_trip_s = 0.0  # to the server that responded last; 0: unknown
        self._started_at = self._last_progress_at = time.monotonic()
        self._concurrency: ConcurrencyController | None = None
        self._starvation_detector = StarvationDetector(self._started_at)

    def resume(self, identity: ObjectIdentity, done: Collection[int]) -> None:
        """Continue the download of an earlier process.

        Args:
            identity: The object.
            done: The blocks that are valid.
        """
        with self.condition:
            self._create_scheduler(identity, done)

    # Called by the workers. Each method acquires the lock unless it states otherwise.

    def next_range_request(self) -> RangeRequest | None:
        """Wait for work and return it, or None if the worker must exit."""
        poll_interval_s = POLL_INTERVAL_S
        with self.condition:
            while not self._has_surplus_workers():
                range_request = self._make_range_request(time.monotonic())
                if range_request is not None:
                    return range_request
                self.condition.wait(poll_interval_s)
                poll_interval_s = min(2 * poll_interval_s, _MAX_IDLE_POLL_INTERVAL_S)
            self.n_workers -= 1
            self.condition.notify_all()
            return None

    def retry_span(self, span: BlockSpan) -> RangeRequest | None:
        """Wait for a source for the rest of a span whose request ended, or return None if it is not needed."""
        with self.condition:
            while self.scheduler is not None and not self.completion.is_closed:
                self.scheduler.skip_done(span)
                now = time.monotonic()
                if self.scheduler.is_obsolete(span):
                    break
                source = self.sources.choose(now)
                if source is not None:
                    _logger.debug(
                        "the rest of blocks %d to %d is requested from %s",
                        span.next_block, span.stop_block - 1, source.replica.label,
                    )  # fmt: skip
                    span.source, span.block_started_at, span.last_byte_at = source, now, now
                    return self.active_requests.add(RangeRequest(source, span, now))
                self.condition.wait(POLL_INTERVAL_S)
            return None

    def end_request(self, range_request: RangeRequest) -> None:
        """Record that a request ended, successfully or not."""
        with self.condition:
            self.active_requests.remove(range_request)
            range_request.source_stats.has_sent_bytes |= range_request.received_bytes > 0
            if not range_request.has_failed:
                range_request.source_stats.response_limit.record_complete(range_request.received_bytes)
            self.condition.notify_all()

    def release_span(self, span: BlockSpan) -> None:
        """Give the remaining blocks of a span to other connections."""
        with self.condition:
            assert self.scheduler is not None
            self.stats.wasted_bytes += span.received_bytes
            self.scheduler.release(span)
            self.condition.notify_all()

    def record_failure(self, range_request: RangeRequest, error: TransferError) -> None:
        """Record a failed request; called before `end_request`."""
        with self.condition:
            now, source, range_request.has_failed = time.monotonic(), range_request.source_stats, True
            self.stats.retries += 1
            is_only_source = self.sources.is_only_usable(source, now)
            source.record_failure(error, range_request.started_at, now, is_only_source, self.retry_ends_at())
            source.needs_full_request = range_request.span is None and error.kind == "unexpected_content"
            _logger.debug(
                "%s; the source backs off for %.2f s, failures in a row: %d",
                error.detail, max(0.0, source.backoff_ends_at - now), source.n_failures,
            )  # fmt: skip
            self._check_exhausted(now, n_ending=1)

    def record_stall(self, range_request: RangeRequest) -> None:
        """Record that a request is given up because its source is silent or slow."""
        with self.condition:
            self.stats.stalls += 1
            now, source = time.monotonic(), range_request.source_stats
            is_only_source = self.sources.is_only_usable(source, now)
            source.record_stall(now, is_only_source, range_request.timeout_factor, range_request.received_bytes)

    def record_pause(self, range_request: RangeRequest) -> None:
        """Record a short pause of a response."""
        with self.condition:
            self.active_requests.record_pause(range_request, self.request.block_bytes)

    def is_slow(self, range_request: RangeRequest, now: float) -> bool:
        """Return whether a new request would be faster. Called very often, so without the lock."""
        span, scheduler = range_request.span, self.scheduler
        if span is None or scheduler is None:
            return False
        return scheduler.is_slow(span, now, self.sources.is_only_usable(range_request.source_stats, now))

    def record_different_object(self, range_request: RangeRequest) -> None:
        """Record that a source has a different object than the one that is being downloaded."""
        with self.condition:
            range_request.source_stats.has_different_object = True
            self._check_exhausted(time.monotonic(), n_ending=1)

    def begin(self, range_request: RangeRequest, info: ObjectInfo, requested_bytes: int | None) -> bool:
        """Start the download with the first valid response.

        Args:
            range_request: The request.
            info: Metadata from its response.
            requested_bytes: The number of bytes requested; None: all.

        Returns:
            False if another response was first.
        """
        with self.condition:
            if self.scheduler is not None or self.is_reading_unsized or self.completion.is_closed:
                return False
            _logger.debug("%s responded first; size: %s bytes", range_request.url, info.size)
            if info.size is None:
                self.block_sink.begin_unsized()
                self.is_reading_unsized = True
                return True
            is_distant = self.round_trip_s >= HIGH_LATENCY_S
            block_bytes = self.high_latency_block_bytes if is_distant else self.request.block_bytes
            identity = ObjectIdentity(info.size, info.etag, info.digest, block_bytes)
            self.block_sink.begin(identity)
            self._create_scheduler(identity, ())
            assert self.scheduler is not None
            n_blocks = identity.n_blocks if requested_bytes is None else max(1, requested_bytes // block_bytes)
            range_request.span = self.scheduler.assign_first(
                range_request.source_stats, range_request.started_at, n_blocks
            )
            if not info.accepts_ranges:
                range_request.source_stats.max_connections = 1
            self.condition.notify_all()  # other workers may start
            return True

    def accept_block(self, range_request: RangeRequest, n_bytes: int) -> bool:
        """Record that a valid block is in memory.

        Returns:
            Whether it is the first copy. Then the worker stores it and calls `record_stored`.
        """
        with self.condition:
            is_first_copy = self._record_block(range_request, n_bytes)
            return is_first_copy and self.completion.begin_write(range_request)

    def record_stored(self, range_request: RangeRequest, n_bytes: int) -> None:
        """Record that an accepted block is in the block sink."""
        with self.condition:
            self.stats.done_bytes += n_bytes
        self.completion.end_write(range_request)

    def record_direct_write(self, range_request: RangeRequest, n_bytes: int) -> None:
        """Record a block that was written in chunks."""
        with self.condition:
            if self._record_block(range_request, n_bytes):
                self.stats.done_bytes += n_bytes
                self.completion.update()

    def record_unsized_progress(
        self, range_request: RangeRequest, received_bytes: int, *, write_s: float = 0.0, is_complete: bool = False
    ) -> None:
        """Record the bytes received so far of an object of unknown size.

        Args:
            range_request: The request.
            received_bytes: All bytes of the response so far.
            write_s: How long the last write took, which is not the server's fault.
            is_complete: Whether the response has ended.
        """
        with self.condition:
            now = time.monotonic()
            self._last_progress_at += write_s
            if received_bytes >= self._max_unsized_bytes + MIN_UNSIZED_PROGRESS_BYTES:
                self._last_progress_at, self._max_unsized_bytes = now, received_bytes
            self.last_source = range_request.source_stats
            self.stats.done_bytes = received_bytes
            range_request.source_stats.last_block_at = now
            self.completion.is_complete = is_complete

    def reset_unsized(self) -> None:
        """Discard an incomplete object of unknown size, which cannot be resumed."""
        with self.condition:
            self.is_reading_unsized = False
            self.stats.wasted_bytes += self.stats.done_bytes
            self.stats.done_bytes = 0

    # Called by the main thread.

    def poll(self) -> int | None:
        """Return how many workers to start; None if the download is complete.

        Raises:
            BaseException: The error that ended the download.
        """
        self._resolver.poll(time.monotonic())
        with self.condition:
            if self.completion.failure is not None:
                raise self.completion.failure
            if self.completion.is_complete:
                return None
            self._check_exhausted(time.monotonic(), n_ending=0)
            missing = self._count_missing_workers(time.monotonic())
            self.n_workers += missing
            return missing

    # The following methods are called with the lock held.

    def _create_scheduler(self, identity: ObjectIdentity, done: Collection[int]) -> None:
        self.identity, factor = identity, max(1, self.request.block_bytes // identity.block_bytes)
        self.scheduler = BlockScheduler(
            identity.n_blocks,
            done,
            window_end=self.window_blocks,
            max_span_blocks=factor * self.max_span_blocks,
            block_bytes=identity.block_bytes,
            min_span_blocks=factor,
        )
        self.stats.done_bytes = sum(identity.block_length(index) for index in done)
        max_useful = max(1, self.scheduler.n_missing // (factor * _BLOCKS_PER_WORKER))
        self._concurrency = ConcurrencyController(
            min(self.max_connections, max_useful), self.max_connections, time.monotonic()
        )
        self.completion.update()

    def _record_block(self, range_request: RangeRequest, n_bytes: int) -> bool:
        """Update the statistics for a received block; return whether it is the first copy."""
        span, scheduler, now = range_request.span, self.scheduler, time.monotonic()
        assert span is not None and scheduler is not None
        range_request.source_stats.record_block(n_bytes, now - span.block_started_at, now)
        self._last_progress_at, self.last_source = now, range_request.source_stats
        is_first_copy = not self.completion.is_closed and scheduler.complete_block(span, now)
        self.stats.wasted_bytes += 0 if is_first_copy else n_bytes
        return is_first_copy

    def _has_all_blocks(self) -> bool:
        return self.scheduler is not None and not self.scheduler.n_missing

    def _has_surplus_workers(self) -> bool:
        if self.completion.should_exit() or self.completion.is_complete:
            return True
        return (
            self._concurrency is not None and self.n_workers > self._concurrency.connections + self.sources.is_starved
        )

    def _make_range_request(self, now: float) -> RangeRequest | None:
        for source in () if self.is_reading_unsized else self.sources.rank_usable(now):
            if self.scheduler is None:
                if self.active_requests.may_start_initial(source, now):
                    return self.active_requests.add(RangeRequest(source, None, now, is_initial=True))
                continue
            span = self.scheduler.assign(source, now, self.n_workers, self.sources.is_only_usable(source, now))
            if span is not None:
                return self.active_requests.add(RangeRequest(source, span, now))
        return None

    def _count_missing_workers(self, now: float) -> int:
        if self._concurrency is None:
            return max(0, min(len(self.sources.source_stats), self.active_requests.n_initial + 1) - self.n_workers)
        assert self.scheduler is not None
        received_bytes = self.stats.done_bytes + self.scheduler.partial_bytes()
        self.sources.is_starved = self._starvation_detector.update(received_bytes, now)
        connections = self._concurrency.update(
            received_bytes, time.process_time(), now, len(self.active_requests), self.round_trip_s
        )
        n_wanted = connections + self.sources.is_starved
        return max(0, min(n_wanted, self.scheduler.n_missing) - self.n_workers)

    def _check_exhausted(self, now: float, n_ending: int) -> None:
        """Fail the download if no source can succeed any more.

        Args:
            now: The time.
            n_ending: Active requests that have failed already.
        """
        if len(self.active_requests) > n_ending or self.completion.is_closed or not self.sources.source_stats:
            return
        ends_at = self.retry_ends_at()
        usable = [s for s in self.sources.source_stats if not s.is_refused and not s.has_different_object]
        is_exhausted = not self._resolver.can_still_resolve(ends_at) and all(s.failed_at >= ends_at for s in usable)
        failed_repeatedly = all(s.n_failures > 1 and s.failed_at >= self._last_progress_at for s in usable)
        if (is_exhausted or failed_repeatedly) and any(s.has_different_object for s in self.sources.source_stats):
            self.completion.failure = ObjectChangedError()
        elif is_exhausted:
            errors = [s.last_error for s in self.sources.source_stats if s.last_error is not None]
            self.completion.failure = combine_errors([*errors, *self._resolver.errors()])
        self.condition.notify_all()

    # Called by the resolver.

    def record_resolve_failure(self) -> None:
        """Check whether the download has failed, because an address could not be resolved."""
        with self.condition:
            self._check_exhausted(time.monotonic(), n_ending=0)

    def retry_ends_at(self) -> float:
        """Return when the retry timeout expires, unless there is progress."""
        return self._last_progress_at + self.request.retry_timeout_s

    def try_ends_at(self, started_at: float) -> float:
        """Return when to abort a request that started at a time, unless there is progress."""
        return try_ends_at(started_at, self._last_progress_at, self.request.retry_timeout_s)
