"""The connections of a download: each opens a replica, checks that it has our object, and receives its blocks."""

from __future__ import annotations

import logging
import threading
import time

from packtrain.errors import FailedError, TransferError
from packtrain.transfer.api import FULL_RANGE, ByteRange, ObjectStream, Replica
from packtrain.transfer.engine.block_receiver import BlockReceiver
from packtrain.transfer.engine.coordinator import FetchCoordinator
from packtrain.transfer.engine.fetch_request import RangeRequest
from packtrain.transfer.engine.response_monitor import RequestObsoleteError, ResponseMonitor
from packtrain.transfer.engine.resume_log import HIGH_LATENCY_BLOCK_BYTES
from packtrain.transfer.integrity.content_checks import SNIFF_BYTES
from packtrain.transfer.progress import SnapshotCallback, SourceRate, TransferSnapshot
from packtrain.transfer.registry import keep_connections
from packtrain.transfer.tasks.cancellation import cancellation_scope
from packtrain.transfer.urls import redact_url

_logger = logging.getLogger("packtrain.transfer.engine")
_INITIAL_REQUEST_BYTES = 4 << 20  # first request while the size of the object is unknown
SMALL_OBJECT_BYTES = 2 << 20  # requested completely, because the response then includes a digest
_SNAPSHOT_INTERVAL_S = 0.5


class _DifferentObjectError(Exception):
    """The size or the ETag of a source differs from the object that is being downloaded."""


class DownloadWorker:
    """One connection at a time; runs in a thread of its own."""

    def __init__(self, coordinator: FetchCoordinator) -> None:
        self._coordinator = coordinator
        self._monitor = ResponseMonitor(coordinator)
        self._receiver = BlockReceiver(coordinator, self._monitor)

    def run(self) -> None:
        """Process range requests until the coordinator has no more."""
        try:
            while True:
                range_request = self._coordinator.next_range_request()
                if range_request is None:
                    return
                self._fetch_span(range_request)
        except BaseException as error:
            self._coordinator.completion.fail(error)

    def _fetch_span(self, range_request: RangeRequest | None) -> None:
        """Receive a span completely, from one source after the other if necessary."""
        span = None
        while range_request is not None:
            self._run_request(range_request)
            span = range_request.span
            range_request = None if span is None else self._coordinator.retry_span(span)
        if span is not None:
            self._coordinator.release_span(span)

    def _run_request(self, range_request: RangeRequest) -> None:
        try:
            self._receive(range_request)
        except RequestObsoleteError:
            pass
        except _DifferentObjectError:
            self._coordinator.record_different_object(range_request)
        except TransferError as error:
            self._coordinator.record_failure(range_request, error)
        finally:
            self._coordinator.end_request(range_request)

    def _receive(self, range_request: RangeRequest) -> None:
        self._monitor.start(range_request)
        with cancellation_scope(self._monitor.check, handles_read_timeout=True):
            byte_range = self._requested_range(range_request)
            stream = _open_replica(range_request.source_stats.replica, byte_range)
            self._coordinator.round_trip_s = stream.info.round_trip_s
            try:
                if range_request.span is None:
                    self._handle_first_response(range_request, stream, byte_range)
                else:
                    self._handle_later_response(range_request, stream, byte_range)
            finally:
                stream.close()

    def _requested_range(self, range_request: RangeRequest) -> ByteRange:
        source, span, identity = range_request.source_stats, range_request.span, self._coordinator.identity
        if span is None or identity is None:
            planned_size = self._coordinator.request.remote_file.size
            is_small = planned_size is not None and planned_size <= SMALL_OBJECT_BYTES
            return FULL_RANGE if is_small or source.needs_full_request else ByteRange(0, _INITIAL_REQUEST_BYTES)
        stop, max_bytes = span.stop_block, source.response_limit.max_bytes
        if max_bytes is not None:
            stop = min(stop, span.next_block + max(1, max_bytes // identity.block_bytes))
        return ByteRange(
            span.next_block * identity.block_bytes + span.received_bytes,
            min(identity.size, stop * identity.block_bytes),
        )

    def _handle_first_response(self, range_request: RangeRequest, stream: ObjectStream, byte_range: ByteRange) -> None:
        """Start the download, once the first bytes look like the file."""
        coordinator, info, url = self._coordinator, stream.info, range_request.url
        head = self._receiver.receive_head(range_request, stream, HIGH_LATENCY_BLOCK_BYTES)
        coordinator.request.check_content(url, info.content_type, head[:SNIFF_BYTES])
        if info.size is not None:
            coordinator.request.check_size(url, info.size)
        if not coordinator.begin(range_request, info, byte_range.stop):
            raise RequestObsoleteError
        if info.size is None:
            self._receiver.receive_unsized(range_request, stream, len(head))
        elif range_request.span is not None:
            range_request.span.received_bytes = range_request.received_bytes = len(head)
            stop_block = range_request.span.stop_block if info.accepts_ranges else None
            self._receiver.receive_blocks(range_request, stream, stop_block)

    def _handle_later_response(self, range_request: RangeRequest, stream: ObjectStream, byte_range: ByteRange) -> None:
        identity, source, url = self._coordinator.identity, range_request.source_stats, range_request.url
        assert identity is not None and byte_range.stop is not None
        if not identity.matches(stream.info, self._coordinator.request.has_trusted_digest):
            if source.has_served_object():
                detail = f"{url}: the response is for a different object than earlier responses"
                raise TransferError("unexpected_content", detail, url)
            raise _DifferentObjectError
        n_excess = byte_range.start - stream.start
        self._receiver.skip(range_request, stream, n_excess)
        stop_block = -(-byte_range.stop // identity.block_bytes)
        ends_there = n_excess == 0 and stream.info.accepts_ranges
        self._receiver.receive_blocks(range_request, stream, stop_block if ends_there else None)


def _open_replica(replica: Replica, byte_range: ByteRange) -> ObjectStream:
    """Open a replica; convert other failures, such as a missing secret, to errors of this source."""
    try:
        return replica.source.open(replica.location, byte_range)
    except TransferError:
        raise
    except FailedError as error:
        raise TransferError(error.kind, error.detail, redact_url(replica.location.url)) from error


def run_workers(coordinator: FetchCoordinator) -> None:
    """Run the download until all blocks are in the block sink, or raise what prevented that."""
    sampler = _SnapshotSampler(coordinator)
    with keep_connections():
        try:
            while _poll_once(coordinator, sampler):
                coordinator.completion.wait()
            stats = coordinator.stats
            _logger.debug(
                "%s: %d bytes are complete; retries: %d, stalls: %d, wasted bytes: %d",
                coordinator.request.remote_file.name, stats.done_bytes, stats.retries, stats.stalls, stats.wasted_bytes,
            )  # fmt: skip
        finally:
            coordinator.completion.close()


def _poll_once(coordinator: FetchCoordinator, sampler: _SnapshotSampler) -> bool:
    """Start missing workers and report progress; return whether the download is incomplete."""
    coordinator.request.check_cancelled()
    n_missing_workers = coordinator.poll()
    for _ in range(n_missing_workers or 0):
        threading.Thread(target=DownloadWorker(coordinator).run, name="fetch-worker", daemon=True).start()
    size = coordinator.identity.size if coordinator.identity else None
    coordinator.request.on_progress(coordinator.stats.done_bytes, size)
    sampler.sample(coordinator.request.on_snapshot)
    return n_missing_workers is not None


class _SnapshotSampler:
    """Takes a snapshot of a running download twice a second."""

    def __init__(self, coordinator: FetchCoordinator) -> None:
        self._coordinator, self._sampled_at = coordinator, time.monotonic()
        self._previous_bytes: dict[str, int] = {}

    def sample(self, on_snapshot: SnapshotCallback | None) -> None:
        now = time.monotonic()
        if on_snapshot is None or now - self._sampled_at < _SNAPSHOT_INTERVAL_S:
            return
        snapshot = self._take_snapshot(now)
        self._sampled_at = now
        on_snapshot(snapshot)

    def _take_snapshot(self, now: float) -> TransferSnapshot:
        coordinator, duration_s = self._coordinator, now - self._sampled_at
        with coordinator.condition:
            sources = coordinator.sources.source_stats
            rates = [
                SourceRate(
                    source.replica.label,
                    (source.received_bytes - self._previous_bytes.get(source.replica.label, 0)) / duration_s,
                    source.connections,
                    source.is_backing_off(now),
                )
                for source in sources
            ]
            self._previous_bytes = {source.replica.label: source.received_bytes for source in sources}
            done, total = coordinator.stats.done_bytes, coordinator.identity.size if coordinator.identity else None
        return TransferSnapshot(
            done, total, sum(rate.bytes_per_s for rate in rates), tuple(rates), sum(rate.connections for rate in rates)
        )
