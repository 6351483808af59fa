"""The work of one connection: open a replica, check that it has our object, receive, verify and store blocks."""

from __future__ import annotations

import time

from packtrain.errors import FailedError, TransferError
from packtrain.transfer.api import FULL_RANGE, ByteRange, ObjectInfo, ObjectStream, Replica
from packtrain.transfer.cancellation import cancellation_scope
from packtrain.transfer.engine.coordinator import DirectWriter, FetchCoordinator
from packtrain.transfer.engine.fetch_request import RangeRequest
from packtrain.transfer.engine.resume_log import HIGH_LATENCY_BLOCK_BYTES
from packtrain.transfer.engine.scheduler import BlockSpan
from packtrain.transfer.integrity.content_checks import SNIFF_BYTES, detect_error_page, detect_wrong_format
from packtrain.transfer.urls import redact_url

_INITIAL_REQUEST_BYTES = 4 << 20  # first request while the size of the object is unknown
_LOST_RACE_TIMEOUT_S = 0.5  # without a byte, after another source sent the block
_POLL_INTERVAL_S = 0.02  # while bytes arrive
_PAUSE_AFTER_S = 0.2
_CHUNK_BYTES = 1 << 18  # fits into the CPU cache
SMALL_OBJECT_BYTES = 2 << 20  # requested completely, because the response then includes a digest


class _RequestObsoleteError(Exception):
    """The bytes of the request are not needed any more."""


class _DifferentObjectError(Exception):
    """The size or the ETag of a source differs from the object that is being downloaded."""


class _WriteGuard:
    """A context in which the worker may write; an error in it ends the download, since no other source can fix it."""

    def __init__(self, coordinator: FetchCoordinator) -> None:
        self._coordinator = coordinator

    def __enter__(self) -> None:
        if not self._coordinator.begin_write(self):
            raise _RequestObsoleteError

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._coordinator.fail(error)
        self._coordinator.end_write(self)


class DownloadWorker:
    """One connection at a time; runs in a thread of its own."""

    def __init__(self, coordinator: FetchCoordinator) -> None:
        self._coordinator = coordinator
        self._block_bytes = coordinator.request.block_bytes
        self._buffer = memoryview(bytearray(self._block_bytes))
        self._has_first_byte = False  # of the current response
        self._last_byte_at = 0.0
        self._last_poll_at = 0.0
        self._write_guard = _WriteGuard(coordinator)
        self._direct_writer: DirectWriter | None = None  # set if the received part of the block is in the file already

    def run(self) -> None:
        """Process range requests until the coordinator has no more."""
        try:
            while True:
                range_request = self._coordinator.next_range_request()
                if range_request is None:
                    return
                self._fetch_span(range_request)
        except BaseException as error:
            self._coordinator.fail(error)

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
        except _RequestObsoleteError:
            pass
        except _DifferentObjectError:
            self._coordinator.record_different_object(range_request)
        except TransferError as error:
            self._coordinator.record_failure(range_request, error)
        finally:
            self._coordinator.end_request(range_request)

    def _receive(self, range_request: RangeRequest) -> None:
        self._has_first_byte, self._last_byte_at = False, time.monotonic()
        with cancellation_scope(lambda: self._check_progress(range_request), handles_read_timeout=True):
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
        span, identity = range_request.span, self._coordinator.identity
        if span is None or identity is None:
            planned_size = self._coordinator.request.remote_file.size
            is_small = planned_size is not None and planned_size <= SMALL_OBJECT_BYTES
            needs_full_request = is_small or range_request.source_stats.needs_full_request
            return FULL_RANGE if needs_full_request else ByteRange(0, _INITIAL_REQUEST_BYTES)
        stop = min(span.stop_block, span.next_block + self._max_request_blocks(range_request))
        return ByteRange(
            span.next_block * identity.block_bytes + span.received_bytes,
            min(identity.size, stop * identity.block_bytes),
        )

    def _max_request_blocks(self, range_request: RangeRequest) -> int:
        """Return the number of blocks that one request may cover."""
        span, identity = range_request.span, self._coordinator.identity
        assert span is not None and identity is not None
        max_bytes = range_request.source_stats.response_limit.max_bytes
        return span.stop_block - span.next_block if max_bytes is None else max(1, max_bytes // identity.block_bytes)

    # The first response

    def _handle_first_response(self, range_request: RangeRequest, stream: ObjectStream, byte_range: ByteRange) -> None:
        """Start the download, once the first bytes look like the file."""
        head_bytes = self._read_head(range_request, stream)
        self._check_content(range_request, stream.info, bytes(self._buffer[: min(head_bytes, SNIFF_BYTES)]))
        if not self._coordinator.begin(range_request, stream.info, byte_range.stop):
            raise _RequestObsoleteError
        if stream.info.size is None:
            self._receive_unsized(range_request, stream, head_bytes)
        elif range_request.span is not None:
            range_request.span.received_bytes = range_request.received_bytes = head_bytes
            self._receive_blocks(
                range_request, stream, range_request.span.stop_block if stream.info.accepts_ranges else None
            )

    def _read_head(self, range_request: RangeRequest, stream: ObjectStream) -> int:
        """Read the first bytes, at most the smallest possible block, and return their number."""
        n_bytes = 0
        while n_bytes < SNIFF_BYTES:
            n_read = stream.readinto(self._buffer[n_bytes:HIGH_LATENCY_BLOCK_BYTES])
            if not n_read:
                break
            self._record_activity(range_request)
            n_bytes += n_read
        return n_bytes

    def _check_content(self, range_request: RangeRequest, info: ObjectInfo, head: bytes) -> None:
        request = self._coordinator.request
        problem = detect_error_page(request.remote_file.name, head, info.content_type)
        problem = problem or detect_wrong_format(request.remote_file.name, head, request.has_trusted_digest)
        if problem:
            url = redact_url(range_request.source_stats.replica.location.url)
            raise TransferError("unexpected_content", f"{url}: {problem}", url)
        if info.size is not None:
            self._check_size(range_request, info.size)

    def _check_size(self, range_request: RangeRequest, size: int) -> None:
        request, url = self._coordinator.request, redact_url(range_request.source_stats.replica.location.url)
        planned_size, checksums = request.remote_file.size, request.checksums
        if planned_size is not None and size != planned_size:
            kind = "truncated" if size < planned_size else "unexpected_content"
            raise TransferError(kind, f"{url} has {size} bytes, but had {planned_size} when the run was planned", url)
        if checksums is not None and size != checksums.size:
            detail = f"{url} has {size} bytes, but its checksums file describes {checksums.size}"
            raise TransferError("unexpected_content", detail, url)

    def _receive_unsized(self, range_request: RangeRequest, stream: ObjectStream, n_bytes: int) -> None:
        """Receive a body of unknown length from its first byte to its last; it cannot be resumed."""
        position = 0
        try:
            while n_bytes:
                n_bytes = self._read_and_verify_block(range_request, stream, position, n_bytes)
                with self._write_guard:
                    self._coordinator.block_sink.append(position, self._buffer[:n_bytes])
                position += n_bytes
                self._coordinator.record_unsized_progress(range_request, position, is_complete=False)
                self._record_activity(range_request)
                n_bytes = stream.readinto(self._buffer)
                self._check_progress(range_request)
            self._check_size(range_request, position)
            self._coordinator.record_unsized_progress(range_request, position, is_complete=True)
        except (TransferError, _RequestObsoleteError):
            self._coordinator.reset_unsized()
            raise

    def _read_and_verify_block(
        self, range_request: RangeRequest, stream: ObjectStream, position: int, n_bytes: int
    ) -> int:
        """Complete and verify a block if there are checksums, and return its length.

        Args:
            range_request: The request.
            stream: Its response.
            position: The start of the block in the object.
            n_bytes: Bytes of the block that are in the buffer already.
        """
        checksums, n_read = self._coordinator.request.checksums, n_bytes
        if checksums is None:
            return n_bytes
        while n_read and n_bytes < self._block_bytes:
            n_read = stream.readinto(self._buffer[n_bytes:])
            n_bytes += n_read
            self._record_activity(range_request)
            self._check_progress(range_request)
        if n_bytes < self._block_bytes or position + n_bytes > checksums.size:
            self._check_size(range_request, position + n_bytes)
        self._verify_block(range_request, position // self._block_bytes, self._buffer[:n_bytes])
        return n_bytes

    # Later responses

    def _handle_later_response(self, range_request: RangeRequest, stream: ObjectStream, byte_range: ByteRange) -> None:
        coordinator = self._coordinator
        assert coordinator.identity is not None
        if not coordinator.identity.matches(stream.info, coordinator.request.has_trusted_digest):
            if coordinator.has_served_object(range_request):
                raise self._different_object_error(range_request)
            raise _DifferentObjectError
        n_excess = byte_range.start - stream.start
        self._skip_bytes(range_request, stream, n_excess)
        assert byte_range.stop is not None
        stop = -(-byte_range.stop // coordinator.identity.block_bytes)
        self._receive_blocks(range_request, stream, stop if n_excess == 0 and stream.info.accepts_ranges else None)

    def _skip_bytes(self, range_request: RangeRequest, stream: ObjectStream, n_bytes: int) -> None:
        """Read bytes that we have already, from a server that ignores ranges; the next bytes overwrite them."""
        span = range_request.span
        assert span is not None
        scratch = self._buffer[span.received_bytes :]
        while n_bytes:
            range_request.source_stats.max_connections = 1
            n_read = stream.readinto(scratch[:n_bytes])
            if not n_read:
                raise self._truncated_error(range_request)
            self._record_activity(range_request)
            n_bytes -= n_read
            self._check_progress(range_request)

    def _receive_blocks(self, range_request: RangeRequest, stream: ObjectStream, stop_block: int | None) -> None:
        """Receive blocks up to `stop_block` (exclusive); None: the response continues to the end of the object."""
        span, coordinator = range_request.span, self._coordinator
        assert span is not None and coordinator.identity is not None and coordinator.scheduler is not None
        while self._has_next_block(range_request, stop_block):
            length = coordinator.identity.block_length(span.next_block)
            direct_writer = self._choose_direct_writer(span)
            if direct_writer is None:
                self._read_block(range_request, stream, length)
                self._verify_block(range_request, span.next_block, self._buffer[:length])
                self._store_block(range_request, length)
            else:
                self._write_directly(range_request, stream, direct_writer, length)
            if coordinator.should_exit():
                raise _RequestObsoleteError

    def _has_next_block(self, range_request: RangeRequest, stop_block: int | None) -> bool:
        span = range_request.span
        assert span is not None
        if stop_block is not None:
            return span.next_block < min(span.stop_block, stop_block)
        return span.next_block < span.stop_block or self._extend_span(range_request)

    def _read_block(self, range_request: RangeRequest, stream: ObjectStream, length: int) -> None:
        """Receive the rest of a block into memory."""
        span = range_request.span
        assert span is not None
        while span.received_bytes < length:
            self._record_received(range_request, stream.readinto(self._buffer[span.received_bytes : length]), length)

    def _record_received(self, range_request: RangeRequest, n_bytes: int, length: int) -> None:
        span = range_request.span
        assert span is not None
        if not n_bytes:
            raise self._truncated_error(range_request)
        span.received_bytes += n_bytes
        range_request.received_bytes += n_bytes
        self._record_activity(range_request)
        if span.received_bytes < length and self._last_byte_at - self._last_poll_at > _POLL_INTERVAL_S:
            self._check_progress(range_request)

    # Direct writes to the file

    def _choose_direct_writer(self, span: BlockSpan) -> DirectWriter | None:
        """Return the writer for the chunks of the current block, or None if the block is received into memory.

        The first block is always received into memory, because its content is checked. If the sink stopped accepting
        chunks, the part of the block that is in the file is read back.
        """
        available, previous = self._coordinator.block_sink.direct_writer, self._direct_writer
        started_with = previous if span.received_bytes else None
        is_eligible = span.next_block > 0 and not span.is_hedge
        self._direct_writer = available if is_eligible and (started_with or not span.received_bytes) else None
        if started_with is not None and self._direct_writer is None:
            started_with.read_back(span.next_block, self._buffer[: span.received_bytes])
        return self._direct_writer

    def _write_directly(
        self, range_request: RangeRequest, stream: ObjectStream, direct_writer: DirectWriter, length: int
    ) -> None:
        """Write a block in chunks, which are still in the CPU cache after they were read."""
        span = range_request.span
        assert span is not None
        while span.received_bytes < length:
            max_bytes = min(length - span.received_bytes, _CHUNK_BYTES - span.received_bytes % _CHUNK_BYTES)
            n_read = stream.readinto(self._buffer[:max_bytes])
            with self._write_guard:
                direct_writer.write_chunk(span.next_block, span.received_bytes, self._buffer[:n_read])
                if span.received_bytes + n_read == length:
                    direct_writer.finish_block(span.next_block)
            self._record_received(range_request, n_read, length)
        self._coordinator.record_direct_write(range_request, length)

    def _extend_span(self, range_request: RangeRequest) -> bool:
        span, scheduler = range_request.span, self._coordinator.scheduler
        assert span is not None and scheduler is not None
        with self._coordinator.condition:
            return scheduler.extend(span)

    def _put_block(self, length: int, index: int) -> None:
        self._buffer = _full_size_buffer(
            self._coordinator.block_sink.write_block(index, self._buffer[:length]), self._buffer
        )

    def _store_block(self, range_request: RangeRequest, length: int) -> None:
        """Store the current block if it is the first copy."""
        assert range_request.span is not None
        coordinator, index = self._coordinator, range_request.span.next_block
        if coordinator.accept_block(range_request, length):
            try:
                self._put_block(length, index)
            except BaseException as error:
                coordinator.fail(error)
                raise
            finally:
                coordinator.record_stored(range_request, length)

    def _verify_block(self, range_request: RangeRequest, index: int, block: memoryview) -> None:
        """Check the content of the first block, and the sha256 of every block that has one."""
        if index == 0:
            self._check_content(range_request, ObjectInfo(), bytes(block[:SNIFF_BYTES]))
        checksums = self._coordinator.request.checksums
        if checksums is None:
            return
        from hashlib import sha256

        if sha256(block).hexdigest() != checksums.block_sha256[index]:
            self._coordinator.stats.wasted_bytes += len(block)
            if range_request.span is not None:
                range_request.span.received_bytes = 0
            url = redact_url(range_request.source_stats.replica.location.url)
            raise TransferError("digest_mismatch", f"{url}: block {index} does not match its checksum", url)

    def _record_activity(self, range_request: RangeRequest) -> None:
        now, source = time.monotonic(), range_request.source_stats
        if self._has_first_byte and now - self._last_byte_at > source.max_gap_s:
            source.max_gap_s = now - self._last_byte_at
        self._has_first_byte, self._last_byte_at = True, now

    def _check_progress(self, range_request: RangeRequest) -> None:
        """Raise if the request is obsolete, stalled or too slow. Called while waiting for bytes."""
        coordinator, source, now = self._coordinator, range_request.source_stats, time.monotonic()
        silent_s = now - self._last_byte_at
        self._last_poll_at = now
        if coordinator.should_exit():
            raise _RequestObsoleteError
        self._check_obsolete(range_request, silent_s)
        if range_request.received_bytes and silent_s > _PAUSE_AFTER_S:
            coordinator.record_pause(range_request)
        timeout_s = (
            source.stall_timeout_s(range_request.timeout_factor, range_request.received_bytes)
            if self._has_first_byte
            else source.first_byte_timeout_s(range_request.timeout_factor)
        )
        is_slow = coordinator.is_slow(range_request, now)
        if silent_s > timeout_s or is_slow:
            coordinator.record_stall(range_request)
            raise self._slow_error(range_request, silent_s, is_slow)

    def _check_obsolete(self, range_request: RangeRequest, silent_s: float) -> None:
        """Raise if another source sent the block; a source that sent nothing at all counts as slow."""
        scheduler, span = self._coordinator.scheduler, range_request.span
        if span is None:
            if scheduler is not None:
                raise _RequestObsoleteError  # another source responded first
            return
        span.last_byte_at = self._last_byte_at
        assert scheduler is not None
        if not scheduler.is_obsolete(span):
            return
        if not self._has_first_byte and silent_s > _LOST_RACE_TIMEOUT_S:
            self._coordinator.record_stall(range_request)
            raise self._slow_error(range_request, silent_s, is_slow=True)
        raise _RequestObsoleteError

    def _slow_error(self, range_request: RangeRequest, silent_s: float, is_slow: bool) -> TransferError:
        url = redact_url(range_request.source_stats.replica.location.url)
        problem = "is much slower than the other connections" if is_slow else f"sent nothing for {silent_s:.0f} s"
        return TransferError("service_unavailable", f"{url}: the server {problem}", url)

    def _different_object_error(self, range_request: RangeRequest) -> TransferError:
        url = redact_url(range_request.source_stats.replica.location.url)
        return TransferError(
            "unexpected_content", f"{url}: the response is for a different object than earlier responses", url
        )

    def _truncated_error(self, range_request: RangeRequest) -> TransferError:
        url = redact_url(range_request.source_stats.replica.location.url)
        return TransferError("truncated", f"{url}: the body ended before its announced length", url)


def _open_replica(replica: Replica, byte_range: ByteRange) -> ObjectStream:
    """Open a replica; convert other failures, such as a missing secret, to errors of this source."""
    try:
        return replica.source.open(replica.location, byte_range)
    except TransferError:
        raise
    except FailedError as error:
        raise TransferError(error.kind, error.detail, redact_url(replica.location.url)) from error


def _full_size_buffer(returned: memoryview, own: memoryview) -> memoryview:
    """Return the buffer for the next block: a new one, or our own, which the sink may return cut to the last block."""
    return own if len(returned) < len(own) else returned
