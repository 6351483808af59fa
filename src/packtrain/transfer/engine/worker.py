"""One connection's work: open, check whether it is our object, receive block after block, verify, hand over."""

from __future__ import annotations

import time

from packtrain.errors import FailedError, TransferError
from packtrain.transfer.api import FULL_RANGE, ObjectInfo, ObjectStream, Replica
from packtrain.transfer.api import ByteRange as Bytes
from packtrain.transfer.digests import SNIFF_BYTES, detect_error_page, detect_wrong_format
from packtrain.transfer.engine.block_sink import DirectWriter
from packtrain.transfer.engine.buffer_pool import allocate_page_aligned
from packtrain.transfer.engine.coordinator import FetchCoordinator, RangeRequest
from packtrain.transfer.engine.resume_log import HIGH_LATENCY_BLOCK_BYTES
from packtrain.transfer.engine.scheduler import BlockSpan
from packtrain.transfer.http.connection import cancellation_scope, last_round_trip_s
from packtrain.transfer.urls import redact_url

_INITIAL_REQUEST_BYTES = 4 << 20  # asked for when it is not known how many there are
_LOST_RACE_TIMEOUT_S = 0.5  # without a byte, when another place brought what was asked for
_POLL_INTERVAL_S = 0.02  # while bytes come
_PAUSE_AFTER_S = 0.2
_CHUNK_BYTES = 1 << 18  # fits into the cache of a processor
SMALL_OBJECT_BYTES = 2 << 20  # asked for whole: what is said of the whole comes with it


class _RequestObsoleteError(Exception):
    """Nobody waits for these bytes any more."""


class _DifferentObjectError(Exception):
    """A source whose size or ETag differs from those of the object begun."""


class _WriteGuard:
    """Within, the file is ours; what goes wrong with it no other source can mend."""

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
    def __init__(self, coordinator: FetchCoordinator) -> None:
        self._coordinator = coordinator
        self._block_bytes = coordinator.request.block_bytes
        self._buffer = allocate_page_aligned(self._block_bytes)
        self._has_first_byte = False  # whether the first byte of this answer is here
        self._last_byte_at = 0.0  # when the last one came
        self._last_poll_at = 0.0
        self._write_guard = _WriteGuard(coordinator)
        self._direct_writer: DirectWriter | None = None  # what is here of the block stands in the file already

    def run(self) -> None:
        try:
            while True:
                attempt = self._coordinator.next_range_request()
                if attempt is None:
                    return
                self._fetch_span(attempt)
        except BaseException as error:
            self._coordinator.fail(error)

    def _fetch_span(self, range_request: RangeRequest | None) -> None:
        """A span to its end, from one place after the other."""
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
            asked = self._requested_range(range_request)
            stream = _open_replica(range_request.source_stats.replica, asked)
            self._coordinator.round_trip_s = last_round_trip_s()
            try:
                if range_request.span is None:
                    self._handle_first_response(range_request, stream, asked)
                else:
                    self._handle_later_response(range_request, stream, asked)
            finally:
                stream.close()

    def _requested_range(self, range_request: RangeRequest) -> Bytes:
        span, known, planned = (
            range_request.span,
            self._coordinator.identity,
            self._coordinator.request.remote_file.size,
        )
        if span is None or known is None:
            small = planned is not None and planned <= SMALL_OBJECT_BYTES
            return (
                FULL_RANGE
                if small or range_request.source_stats.needs_full_request
                else Bytes(0, _INITIAL_REQUEST_BYTES)
            )
        stop = min(span.stop_block, span.next_block + self._max_request_blocks(range_request))
        return Bytes(
            span.next_block * known.block_bytes + span.received_bytes, min(known.size, stop * known.block_bytes)
        )

    def _max_request_blocks(self, range_request: RangeRequest) -> int:
        """Blocks that may be asked for at once."""
        reach, span, known = (
            range_request.source_stats.response_limit.max_bytes,
            range_request.span,
            self._coordinator.identity,
        )
        assert span is not None and known is not None
        return span.stop_block - span.next_block if reach is None else max(1, reach // known.block_bytes)

    # The first answer

    def _handle_first_response(self, range_request: RangeRequest, stream: ObjectStream, byte_range: Bytes) -> None:
        """Nothing is begun before the first bytes look like the data."""
        head = self._read_head(range_request, stream)
        self._check_content(range_request, stream.info, bytes(self._buffer[: min(head, SNIFF_BYTES)]))
        if not self._coordinator.begin(range_request, stream.info, byte_range.stop):
            raise _RequestObsoleteError
        if stream.info.size is None:
            self._receive_unsized(range_request, stream, head)
        elif range_request.span is not None:
            range_request.span.received_bytes = range_request.received_bytes = head
            self._receive_blocks(
                range_request, stream, range_request.span.stop_block if stream.info.accepts_ranges else None
            )

    def _read_head(self, range_request: RangeRequest, stream: ObjectStream) -> int:
        count = 0
        while count < SNIFF_BYTES:
            more = stream.readinto(self._buffer[count:HIGH_LATENCY_BLOCK_BYTES])  # no more than is a block in any case
            if not more:
                break
            self._record_activity(range_request)
            count += more
        return count

    def _check_content(self, range_request: RangeRequest, info: ObjectInfo, head: bytes) -> None:
        wish = self._coordinator.request
        wrong = detect_error_page(wish.remote_file.name, head, info.content_type)
        wrong = wrong or detect_wrong_format(wish.remote_file.name, head, wish.has_trusted_digest)
        if wrong:
            url = redact_url(range_request.source_stats.replica.location.url)
            raise TransferError("unexpected_content", f"{url}: {wrong}", url)
        if info.size is not None:
            self._check_size(range_request, info.size)

    def _check_size(self, range_request: RangeRequest, size: int) -> None:
        wish, url = self._coordinator.request, redact_url(range_request.source_stats.replica.location.url)
        if wish.remote_file.size is not None and size != wish.remote_file.size:
            kind = "truncated" if size < wish.remote_file.size else "unexpected_content"
            words = f"{url} has {size} bytes, but had {wish.remote_file.size} when the run was planned"
            raise TransferError(kind, words, url)
        if wish.checksums is not None and size != wish.checksums.size:
            words = f"{url} has {size} bytes, but its checksums are of {wish.checksums.size}"
            raise TransferError("unexpected_content", words, url)

    def _receive_unsized(self, range_request: RangeRequest, stream: ObjectStream, n_bytes: int) -> None:
        """A body whose length nobody says: from its first byte to its last, or not at all."""
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
        """Where there are checksums, the block that begins with so many bytes: all of it, and right."""
        checksums, more = self._coordinator.request.checksums, n_bytes
        if checksums is None:
            return n_bytes
        while more and n_bytes < self._block_bytes:
            more = stream.readinto(self._buffer[n_bytes:])
            n_bytes += more
            self._record_activity(range_request)
            self._check_progress(range_request)
        if n_bytes < self._block_bytes or position + n_bytes > checksums.size:
            self._check_size(range_request, position + n_bytes)
        self._verify_block(range_request, position // self._block_bytes, self._buffer[:n_bytes])
        return n_bytes

    # Further answers

    def _handle_later_response(self, range_request: RangeRequest, stream: ObjectStream, byte_range: Bytes) -> None:
        engine = self._coordinator
        assert engine.identity is not None
        if not engine.identity.matches(stream.info, engine.request.has_trusted_digest):
            raise (
                self._different_object_error(range_request)
                if engine.has_served_object(range_request)
                else _DifferentObjectError()
            )
        behind = byte_range.start - stream.start
        self._skip_bytes(range_request, stream, behind)
        assert byte_range.stop is not None
        stop = -(-byte_range.stop // engine.identity.block_bytes)
        self._receive_blocks(range_request, stream, stop if behind == 0 and stream.info.accepts_ranges else None)

    def _skip_bytes(self, range_request: RangeRequest, stream: ObjectStream, n_bytes: int) -> None:
        """A server without ranges sends what we have; it goes where what comes next will overwrite it."""
        span = range_request.span
        assert span is not None
        room = self._buffer[span.received_bytes :]
        while n_bytes:
            range_request.source_stats.max_connections = 1
            more = stream.readinto(room[:n_bytes])
            if not more:
                raise self._truncated_error(range_request)
            self._record_activity(range_request)
            n_bytes -= more
            self._check_progress(range_request)

    def _receive_blocks(self, range_request: RangeRequest, stream: ObjectStream, stop_block: int | None) -> None:
        """Up to the block that the answer ends before; None: it goes on to the end of the object."""
        span, engine = range_request.span, self._coordinator
        assert span is not None and engine.identity is not None and engine.scheduler is not None
        while self._has_next_block(range_request, stop_block):
            length = engine.identity.block_length(span.next_block)
            mover = self._choose_direct_writer(span)
            if mover is None:
                self._read_block(range_request, stream, length)
                self._verify_block(range_request, span.next_block, self._buffer[:length])
                self._store_block(range_request, length)
            else:
                self._write_directly(range_request, stream, mover, length)
            if engine.should_exit():
                raise _RequestObsoleteError

    def _has_next_block(self, range_request: RangeRequest, stop_block: int | None) -> bool:
        span = range_request.span
        assert span is not None
        if stop_block is not None:
            return span.next_block < min(span.stop_block, stop_block)
        return span.next_block < span.stop_block or self._extend_span(range_request)

    def _read_block(self, range_request: RangeRequest, stream: ObjectStream, length: int) -> None:
        """What is missing of a block, into memory."""
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

    # Straight into the file

    def _choose_direct_writer(self, span: BlockSpan) -> DirectWriter | None:
        """For the block at hand, where its pieces may go straight into the file. The first one is looked at."""
        mover, begun = self._coordinator.block_sink.direct_writer, self._direct_writer if span.received_bytes else None
        fit = span.next_block > 0 and not span.is_hedge
        self._direct_writer = mover if fit and (begun or not span.received_bytes) else None
        if begun is not None and self._direct_writer is None:
            begun.read_back(span.next_block, self._buffer[: span.received_bytes])
        return self._direct_writer

    def _write_directly(
        self, range_request: RangeRequest, stream: ObjectStream, direct_writer: DirectWriter, length: int
    ) -> None:
        """Piece by piece: what was read is still in the processor's cache when it is written."""
        span = range_request.span
        assert span is not None
        while span.received_bytes < length:
            room = min(length - span.received_bytes, _CHUNK_BYTES - span.received_bytes % _CHUNK_BYTES)
            more = stream.readinto(self._buffer[:room])
            with self._write_guard:
                direct_writer.write_chunk(span.next_block, span.received_bytes, self._buffer[:more])
                if span.received_bytes + more == length:
                    direct_writer.finish_block(span.next_block)
            self._record_received(range_request, more, length)
        self._coordinator.record_direct_write(range_request, length)

    def _extend_span(self, range_request: RangeRequest) -> bool:
        span, schedule = range_request.span, self._coordinator.scheduler
        assert span is not None and schedule is not None
        with self._coordinator.condition:
            return schedule.extend(span)

    def _put_block(self, length: int, index: int) -> None:
        self._buffer = _full_size_buffer(
            self._coordinator.block_sink.write_block(index, self._buffer[:length]), self._buffer
        )

    def _store_block(self, range_request: RangeRequest, length: int) -> None:
        """The block at hand is here: if it is the first copy, it is to be stored."""
        assert range_request.span is not None
        engine, index = self._coordinator, range_request.span.next_block
        if engine.accept_block(range_request, length):
            try:
                self._put_block(length, index)
            except BaseException as error:
                engine.fail(error)
                raise
            finally:
                engine.record_stored(range_request, length)

    def _verify_block(self, range_request: RangeRequest, index: int, block: memoryview) -> None:
        """Before it is written."""
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
            raise TransferError("digest_mismatch", f"{url}: block {index} is not the one of the checksums", url)

    def _record_activity(self, range_request: RangeRequest) -> None:
        now, standing = time.monotonic(), range_request.source_stats
        if self._has_first_byte and now - self._last_byte_at > standing.max_gap_s:
            standing.max_gap_s = now - self._last_byte_at
        self._has_first_byte, self._last_byte_at = True, now

    def _check_progress(self, range_request: RangeRequest) -> None:
        """Asked while we wait: is it worth it?"""
        engine, span, standing, now = (
            self._coordinator,
            range_request.span,
            range_request.source_stats,
            time.monotonic(),
        )
        self._last_poll_at = now
        if engine.should_exit():
            raise _RequestObsoleteError
        if span is not None:
            span.last_byte_at = self._last_byte_at
            assert engine.scheduler is not None
            if (
                engine.scheduler.is_obsolete(span)
                and not self._has_first_byte
                and now - self._last_byte_at > _LOST_RACE_TIMEOUT_S
            ):
                engine.record_stall(range_request)
                raise self._slow_error(range_request, now - self._last_byte_at, is_slow=True)
            if engine.scheduler.is_obsolete(span):
                raise _RequestObsoleteError
        elif engine.scheduler is not None:
            raise _RequestObsoleteError  # another place answered before this one
        if range_request.received_bytes and now - self._last_byte_at > _PAUSE_AFTER_S:
            engine.record_pause(range_request)
        limit = (
            standing.stall_timeout_s(range_request.timeout_factor, range_request.received_bytes)
            if self._has_first_byte
            else standing.first_byte_timeout_s(range_request.timeout_factor)
        )
        slow = engine.is_slow(range_request, now)
        if now - self._last_byte_at > limit or slow:
            engine.record_stall(range_request)
            raise self._slow_error(range_request, now - self._last_byte_at, slow)

    def _slow_error(self, range_request: RangeRequest, silent_s: float, is_slow: bool) -> TransferError:
        url = redact_url(range_request.source_stats.replica.location.url)
        words = "is far slower than the other connections" if is_slow else f"sent nothing for {silent_s:.0f} s"
        return TransferError("service_unavailable", f"{url}: the server {words}", url)

    def _different_object_error(self, range_request: RangeRequest) -> TransferError:
        url = redact_url(range_request.source_stats.replica.location.url)
        return TransferError("unexpected_content", f"{url}: the answer is of another object than those before", url)

    def _truncated_error(self, range_request: RangeRequest) -> TransferError:
        url = redact_url(range_request.source_stats.replica.location.url)
        return TransferError("truncated", f"{url}: the body ended before its promised end", url)


def _open_replica(replica: Replica, byte_range: Bytes) -> ObjectStream:
    """What goes wrong here, a secret that cannot be read for example, concerns this place only."""
    try:
        return replica.source.open(replica.location, byte_range)
    except TransferError:
        raise
    except FailedError as error:
        raise TransferError(error.kind, error.detail, redact_url(replica.location.url)) from error


def _full_size_buffer(returned: memoryview, own: memoryview) -> memoryview:
    """The shelf gives our own buffer back, perhaps cut to the last block's length, or another one."""
    return own if len(returned) < len(own) else returned
