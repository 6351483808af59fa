"""The many connections of one fetch: what they share.

`Engine` holds the state (schedule, sources, counters) under one lock and never touches the network;
`worker.Worker`, one a connection, asks it for work, receives blocks, and tells what happened; `crew`
hires the workers and waits for the whole. The blocks go to a `Shelf`: a file (`disk`), or a window in
memory (`ordered`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from packtrain.errors import TransferError
from packtrain.plan import RemoteFile
from packtrain.transfer.api import ObjectInfo, SecretResolver
from packtrain.transfer.engine.block_sink import BlockSink
from packtrain.transfer.engine.concurrency import (
    HIGH_LATENCY_S,
    MAX_CONNECTIONS,
    ConcurrencyController,
    StarvationDetector,
)
from packtrain.transfer.engine.resolver import SourceResolver
from packtrain.transfer.engine.resume_log import DEFAULT_BLOCK_BYTES, ObjectIdentity
from packtrain.transfer.engine.scheduler import MAX_SPAN_BLOCKS, BlockScheduler, BlockSpan
from packtrain.transfer.engine.source_stats import SourceSelector, SourceStats
from packtrain.transfer.http.tls_process import TLS_PROCESS
from packtrain.transfer.progress import SnapshotCallback
from packtrain.transfer.retry import combine_errors

if TYPE_CHECKING:
    from packtrain.transfer.block_checksums import BlockChecksums

CancelCheck = Callable[[], None]
ProgressCallback = Callable[[int, Optional[int]], None]

POLL_INTERVAL_S = 0.05
_MAX_IDLE_POLL_INTERVAL_S = 0.4  # of a worker that finds nothing to do: a hundred agents have hundreds of them
_NEXT_REPLICA_AFTER_S = 0.5  # of silence before the first answer
_MAX_BUFFERED_BYTES = 96 << 20
_BLOCKS_PER_WORKER = 2
_MAX_UNEXPECTED_RESPONSES = 3
_MIN_IDENTICAL_PAUSES = 3  # answers that stop after the same number of bytes


@dataclass(frozen=True)
class FetchRequest:
    """What is wanted, and by whom it may be ended."""

    remote_file: RemoteFile
    resolve_secret: SecretResolver
    retry_timeout_s: float
    check_cancelled: CancelCheck
    on_progress: ProgressCallback
    checksums: BlockChecksums | None = None
    on_snapshot: SnapshotCallback | None = None

    @property
    def block_bytes(self) -> int:
        return self.checksums.block_bytes if self.checksums else DEFAULT_BLOCK_BYTES

    @property
    def has_trusted_digest(self) -> bool:
        """Whether wrong bytes would be noticed, wherever they come from."""
        return self.remote_file.digest is not None or self.checksums is not None


class ObjectChangedError(Exception):
    """The sources that are left have another object than the one begun."""


@dataclass
class TransferStats:
    retries: int = 0
    stalls: int = 0
    wasted_bytes: int = 0
    done_bytes: int = 0  # done, with those of earlier processes


@dataclass(eq=False)
class RangeRequest:
    """One answer of one place. `span` is None while it is not known how large the object is."""

    source_stats: SourceStats
    span: BlockSpan | None
    started_at: float
    timeout_factor: float = 1.0  # with the place, when it began
    received_bytes: int = 0  # bytes
    paused_after_bytes: int = 0  # the bytes after which it fell silent last, for a moment or for good
    has_failed: bool = False


class FetchCoordinator:
    def __init__(
        self, request: FetchRequest, block_sink: BlockSink, sources: SourceSelector, stats: TransferStats
    ) -> None:
        self.request, self.block_sink, self.sources, self.stats = request, block_sink, sources, stats
        self.condition = threading.Condition()
        self.identity: ObjectIdentity | None = None
        self.scheduler: BlockScheduler | None = None
        self.last_source: SourceStats | None = None  # gave the last block
        self.is_reading_unsized = False  # an object without a size is read by one connection
        self.n_workers = 0
        self._writers: set[object] = set()  # changed without the lock: to add and to discard is one step each
        self._active_requests: set[RangeRequest] = set()
        self.window_blocks: int | None = None  # blocks that may be under way before the first is used up
        self.max_span_blocks = MAX_SPAN_BLOCKS  # of a span, if they have the wish's size
        self.high_latency_block_bytes = request.block_bytes  # their size, if the first server to answer is far away
        self.max_connections = min(MAX_CONNECTIONS, max(1, _MAX_BUFFERED_BYTES // request.block_bytes))
        self._resolver = SourceResolver(request.remote_file.locations, request.resolve_secret, self)
        self._initial_requests: list[RangeRequest] = []
        self.round_trip_s = 0.0  # to the place that answered last; 0: not known
        self._started_at = self._last_progress_at = time.monotonic()
        self._concurrency: ConcurrencyController | None = None
        self._starvation_detector = StarvationDetector(self._started_at)
        self._failure: BaseException | None = None
        self._is_closed = self._is_complete = False

    def resume(self, identity: ObjectIdentity, done: Collection[int]) -> None:
        """With what an earlier process left."""
        self._create_scheduler(identity, done)

    # For the workers; each takes the lock by itself.

    def next_range_request(self) -> RangeRequest | None:
        """Work, waited for; None: leave."""
        pause = POLL_INTERVAL_S
        with self.condition:
            while not self._has_surplus_workers():
                attempt = self._make_range_request(time.monotonic())
                if attempt is not None:
                    return attempt
                self.condition.wait(pause)
                pause = min(2 * pause, _MAX_IDLE_POLL_INTERVAL_S)
            self.n_workers -= 1
            self.condition.notify_all()
            return None

    def retry_span(self, span: BlockSpan) -> RangeRequest | None:
        """For a span whose connection failed; None when nobody wants it any more."""
        with self.condition:
            while self.scheduler is not None and not self._is_closed:
                self.scheduler.skip_done(span)
                now = time.monotonic()
                standing = None if self.scheduler.is_obsolete(span) else self.sources.choose(now)
                if self.scheduler.is_obsolete(span):
                    break
                if standing is not None:
                    span.source, span.block_started_at, span.last_byte_at = standing, now, now
                    return self._register_request(RangeRequest(standing, span, now))
                self.condition.wait(POLL_INTERVAL_S)
            return None

    def end_request(self, range_request: RangeRequest) -> None:
        with self.condition:
            range_request.source_stats.connections -= 1
            self._active_requests.discard(range_request)
            if range_request in self._initial_requests:
                self._initial_requests.remove(range_request)
            range_request.source_stats.has_sent_bytes |= range_request.received_bytes > 0
            if not range_request.has_failed:
                range_request.source_stats.response_limit.record_complete(range_request.received_bytes)
            self.condition.notify_all()

    def release_span(self, span: BlockSpan) -> None:
        with self.condition:
            assert self.scheduler is not None
            self.stats.wasted_bytes += span.received_bytes
            self.scheduler.release(span)
            self.condition.notify_all()

    def record_failure(self, range_request: RangeRequest, error: TransferError) -> None:
        """Before `ended` of the same attempt."""
        with self.condition:
            now, standing, range_request.has_failed = time.monotonic(), range_request.source_stats, True
            self.stats.retries += 1
            alone = self.sources.is_only_usable(standing, now)
            standing.record_failure(
                error, range_request.started_at, now, alone, self._last_progress_at + self.request.retry_timeout_s
            )
            standing.needs_full_request = range_request.span is None and error.kind == "unexpected_content"
            self._check_exhausted(now, n_ending=1)

    def record_stall(self, range_request: RangeRequest) -> None:
        with self.condition:
            self.stats.stalls += 1
            now, standing = time.monotonic(), range_request.source_stats
            standing.record_stall(
                now,
                self.sources.is_only_usable(standing, now),
                range_request.timeout_factor,
                range_request.received_bytes,
            )

    def record_pause(self, range_request: RangeRequest) -> None:
        """It is silent for a moment. Less than a block is no limit to keep to; and the first packets are alike."""
        with self.condition:
            range_request.paused_after_bytes = range_request.received_bytes
            stopped = [
                live
                for live in self._active_requests
                if live.paused_after_bytes == live.received_bytes == range_request.received_bytes
            ]
            alike = sum(live.source_stats is range_request.source_stats for live in stopped)
            if alike >= _MIN_IDENTICAL_PAUSES and range_request.received_bytes >= self.request.block_bytes:
                range_request.source_stats.response_limit.record_cutoff(range_request.received_bytes)

    def is_slow(self, range_request: RangeRequest, now: float) -> bool:
        """Looked at all the time, so without the lock."""
        span, schedule = range_request.span, self.scheduler
        if span is None or schedule is None:
            return False
        return schedule.is_slow(span, now, self.sources.is_only_usable(range_request.source_stats, now))

    def record_different_object(self, range_request: RangeRequest) -> None:
        with self.condition:
            range_request.source_stats.has_different_object = True
            self._check_exhausted(time.monotonic(), n_ending=1)

    def has_served_object(self, range_request: RangeRequest) -> bool:
        """Whether the place has had our object not long ago: then one strange answer is an accident."""
        return (
            range_request.source_stats.received_bytes > 0
            and range_request.source_stats.n_failures < _MAX_UNEXPECTED_RESPONSES
        )

    def begin(self, range_request: RangeRequest, info: ObjectInfo, requested_bytes: int | None) -> bool:
        """With the first answer that is right, to `asked` bytes: False if another was first."""
        with self.condition:
            if self.scheduler is not None or self.is_reading_unsized or self._is_closed:
                return False
            if info.size is None:
                self.block_sink.begin_unsized()
                self.is_reading_unsized = True
                return True
            block = self.high_latency_block_bytes if self.round_trip_s >= HIGH_LATENCY_S else self.request.block_bytes
            known = ObjectIdentity(info.size, info.etag, info.digest, block)
            self.block_sink.begin(known)
            self._create_scheduler(known, ())
            assert self.scheduler is not None
            blocks = known.n_blocks if requested_bytes is None else max(1, requested_bytes // known.block_bytes)
            range_request.span = self.scheduler.assign_first(
                range_request.source_stats, range_request.started_at, blocks
            )
            if not info.accepts_ranges:
                range_request.source_stats.max_connections = 1
            self.condition.notify_all()  # others may begin
            return True

    def accept_block(self, range_request: RangeRequest, n_bytes: int) -> bool:
        """A block is here and right. True: it is to be put on the shelf, and then told as `stored`."""
        with self.condition:
            first = self._record_block(range_request, n_bytes)
            if first:
                self._writers.add(range_request)
            return first

    def record_stored(self, range_request: RangeRequest, n_bytes: int) -> None:
        with self.condition:
            self.stats.done_bytes += n_bytes
        self.end_write(range_request)

    def record_direct_write(self, range_request: RangeRequest, n_bytes: int) -> None:
        """A block is here, and stands in its place already."""
        with self.condition:
            if self._record_block(range_request, n_bytes):
                self.stats.done_bytes += n_bytes
                self._update_completion()

    def begin_write(self, writer: object) -> bool:
        """Then `written` has to follow. Without the lock, since it is asked for every piece."""
        self._writers.add(writer)
        closed = self._is_closed
        if closed:
            self.end_write(writer)
        return not closed

    def end_write(self, writer: object) -> None:
        """Whoever writes last completes the whole, be it a part of a block that another copy brought before."""
        self._writers.discard(writer)
        if self._is_closed or (self.scheduler is not None and not self.scheduler.n_missing):
            with self.condition:
                self._update_completion()

    def record_unsized_progress(self, range_request: RangeRequest, received_bytes: int, is_complete: bool) -> None:
        """An object without a size: so much has come, to the end or not."""
        with self.condition:
            self._last_progress_at = time.monotonic()
            self.last_source = range_request.source_stats
            self.stats.done_bytes = received_bytes
            range_request.source_stats.last_block_at = self._last_progress_at
            self._is_complete = is_complete

    def reset_unsized(self) -> None:
        with self.condition:
            self.is_reading_unsized = False
            self.stats.wasted_bytes += self.stats.done_bytes
            self.stats.done_bytes = 0

    def fail(self, error: BaseException) -> None:
        """Something that no other source can mend."""
        with self.condition:
            self._failure = self._failure or error
            self.condition.notify_all()

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    def should_exit(self) -> bool:
        return self._is_closed or self._failure is not None

    # For `crew`, which waits for the whole.

    def poll(self) -> int | None:
        """How many workers are wanted besides those at work; None: all is here."""
        self._resolver.poll(time.monotonic())
        with self.condition:
            if self._failure is not None:
                raise self._failure
            if self._is_complete:
                return None
            self._check_exhausted(time.monotonic(), n_ending=0)
            missing = self._count_missing_workers(time.monotonic())
            self.n_workers += missing
            return missing

    def wait(self) -> None:
        with self.condition:
            if not self._is_complete and self._failure is None:
                self.condition.wait(POLL_INTERVAL_S)

    def close(self) -> None:
        """Workers may hang in a connection for a while; what they bring is refused from now on."""
        with self.condition:
            self._is_closed = True
            self.condition.notify_all()
            while self._writers:
                self.condition.wait(POLL_INTERVAL_S)

    # Under the lock.

    def _create_scheduler(self, identity: ObjectIdentity, done: Collection[int]) -> None:
        self.identity, parts = identity, max(1, self.request.block_bytes // identity.block_bytes)
        self.scheduler = BlockScheduler(
            identity.n_blocks, done, self.window_blocks, parts * self.max_span_blocks, identity.block_bytes, parts
        )
        self.stats.done_bytes = sum(identity.block_length(index) for index in done)
        useful = max(1, self.scheduler.n_missing // (parts * _BLOCKS_PER_WORKER))
        self._concurrency = ConcurrencyController(
            min(self.max_connections, useful), self.max_connections, time.monotonic()
        )
        self._is_complete = self._has_all_blocks()

    def _record_block(self, range_request: RangeRequest, n_bytes: int) -> bool:
        """A block that came: whether no copy of it did before."""
        span, schedule, now = range_request.span, self.scheduler, time.monotonic()
        assert span is not None and schedule is not None
        range_request.source_stats.record_block(n_bytes, now - span.block_started_at, now)
        self._last_progress_at, self.last_source = now, range_request.source_stats
        first = not self._is_closed and schedule.complete_block(span, now)
        self.stats.wasted_bytes += 0 if first else n_bytes
        return first

    def _update_completion(self) -> None:
        self._is_complete = self._is_complete or self._has_all_blocks()
        if self._is_complete or self._is_closed:
            self.condition.notify_all()

    def _has_all_blocks(self) -> bool:
        return self.scheduler is not None and not self.scheduler.n_missing and not self._writers

    def _has_surplus_workers(self) -> bool:
        if self.should_exit() or self._is_complete:
            return True
        return (
            self._concurrency is not None and self.n_workers > self._concurrency.connections + self.sources.is_starved
        )

    def _make_range_request(self, now: float) -> RangeRequest | None:
        for standing in () if self.is_reading_unsized else self.sources.rank_usable(now):
            if self.scheduler is None:
                attempt = self._make_initial_request(standing, now)
            else:
                span = self.scheduler.assign(standing, now, self.n_workers, self.sources.is_only_usable(standing, now))
                attempt = None if span is None else RangeRequest(standing, span, now)
            if attempt is not None:
                return self._register_request(attempt)
        return None

    def _make_initial_request(self, source_stats: SourceStats, now: float) -> RangeRequest | None:
        """One place is asked first; another one, too, while it keeps silent."""
        if any(
            now - opening.started_at < _NEXT_REPLICA_AFTER_S or opening.source_stats is source_stats
            for opening in self._initial_requests
        ):
            return None
        opening = RangeRequest(source_stats, None, now)
        self._initial_requests.append(opening)
        return opening

    def _register_request(self, range_request: RangeRequest) -> RangeRequest:
        range_request.timeout_factor = range_request.source_stats.timeout_factor
        range_request.source_stats.connections += 1
        self._active_requests.add(range_request)
        return range_request

    def _count_missing_workers(self, now: float) -> int:
        if self._concurrency is None:
            return max(0, min(len(self.sources.source_stats), len(self._initial_requests) + 1) - self.n_workers)
        assert self.scheduler is not None
        come = self.stats.done_bytes + self.scheduler.partial_bytes()
        self.sources.is_starved = self._starvation_detector.update(come, now)
        busy_s = time.process_time() + TLS_PROCESS.cpu_s()
        wanted = (
            self._concurrency.update(come, busy_s, now, len(self._active_requests), self.round_trip_s)
            + self.sources.is_starved
        )
        return max(0, min(wanted, self.scheduler.n_missing) - self.n_workers)

    def _check_exhausted(self, now: float, n_ending: int) -> None:
        """After a failure: is there hope? `still` attempts are told as failed, but not as ended."""
        if len(self._active_requests) > n_ending or self._is_closed or not self.sources.source_stats:
            return
        ends = self._last_progress_at + self.request.retry_timeout_s
        live = [s for s in self.sources.source_stats if not s.is_refused and not s.has_different_object]
        exhausted = not self._resolver.can_still_resolve(ends) and all(s.failed_at >= ends for s in live)
        again = all(s.n_failures > 1 and s.failed_at >= self._last_progress_at for s in live)
        if (exhausted or again) and any(s.has_different_object for s in self.sources.source_stats):
            self._failure = ObjectChangedError()
        elif exhausted:
            errors = [s.last_error for s in self.sources.source_stats if s.last_error is not None]
            self._failure = combine_errors([*errors, *self._resolver.errors()])
        self.condition.notify_all()

    def record_resolve_failure(self) -> None:
        with self.condition:
            self._check_exhausted(time.monotonic(), n_ending=0)

    def retry_ends_at(self) -> float:
        return self._last_progress_at + self.request.retry_timeout_s
