"""Receive the blocks of a response, verify them, and store them in the block sink."""

from __future__ import annotations

import time

from packtrain.errors import TransferError
from packtrain.formatting import format_duration, format_size
from packtrain.transfer.api import ObjectStream
from packtrain.transfer.engine.coordinator import MIN_UNSIZED_PROGRESS_BYTES, DirectWriter, FetchCoordinator
from packtrain.transfer.engine.fetch_request import RangeRequest
from packtrain.transfer.engine.response_monitor import RequestObsoleteError, ResponseMonitor
from packtrain.transfer.engine.scheduler import BlockSpan
from packtrain.transfer.integrity.content_checks import SNIFF_BYTES

_CHUNK_BYTES = 1 << 17  # fits into the CPU cache; for larger writes the kernel needs large pages, which are costly


class _WriteGuard:
    """A context in which the worker may write; an error in it ends the download, since no other source can fix it."""

    def __init__(self, coordinator: FetchCoordinator) -> None:
        self._coordinator = coordinator

    def __enter__(self) -> None:
        if not self._coordinator.completion.begin_write(self):
            raise RequestObsoleteError

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._coordinator.completion.fail(error)
        self._coordinator.completion.end_write(self)


class BlockReceiver:
    """The buffer of one worker, and how it is filled and emptied."""

    def __init__(self, coordinator: FetchCoordinator, monitor: ResponseMonitor) -> None:
        self._coordinator, self._monitor = coordinator, monitor
        self._block_bytes = coordinator.request.block_bytes
        self._buffer = memoryview(bytearray(self._block_bytes))
        self._write_guard = _WriteGuard(coordinator)
        self._direct_writer: DirectWriter | None = None  # set if the received part of the block is in the file already

    def receive_head(self, range_request: RangeRequest, stream: ObjectStream, max_bytes: int) -> bytes:
        """Read the first bytes, which stay in the buffer: at least SNIFF_BYTES, unless the object is smaller."""
        n_bytes = 0
        while n_bytes < SNIFF_BYTES and (n_read := stream.readinto(self._buffer[n_bytes:max_bytes])):
            self._monitor.record_bytes()
            n_bytes += n_read
            self._check_dripping(range_request)
        return bytes(self._buffer[:n_bytes])

    def skip(self, range_request: RangeRequest, stream: ObjectStream, n_bytes: int) -> None:
        """Read bytes that we have already, from a server that ignores ranges; the next bytes overwrite them."""
        span = range_request.span
        assert span is not None
        scratch = self._buffer[span.received_bytes :]
        while n_bytes:
            range_request.source_stats.max_connections = 1
            n_read = stream.readinto(scratch[:n_bytes])
            if not n_read:
                raise _truncated_error(range_request)
            self._monitor.record_bytes()
            n_bytes -= n_read
            self._monitor.check()

    def receive_blocks(self, range_request: RangeRequest, stream: ObjectStream, stop_block: int | None) -> None:
        """Receive blocks up to `stop_block` (exclusive); None: the response continues to the end of the object."""
        span, coordinator = range_request.span, self._coordinator
        assert span is not None and coordinator.identity is not None
        while self._has_next_block(span, stop_block):
            length = coordinator.identity.block_length(span.next_block)
            direct_writer = self._choose_direct_writer(span)
            if direct_writer is not None:
                self._write_directly(range_request, span, stream, direct_writer, length)
            else:
                while span.received_bytes < length:
                    n_read = stream.readinto(self._buffer[span.received_bytes : length])
                    self._record_received(range_request, span, n_read, length)
                self._verify_block(range_request, span.next_block, self._buffer[:length])
                self._store_block(range_request, span.next_block, length)
            if coordinator.completion.should_exit():
                raise RequestObsoleteError

    def _has_next_block(self, span: BlockSpan, stop_block: int | None) -> bool:
        if stop_block is not None:
            return span.next_block < min(span.stop_block, stop_block)
        if span.next_block < span.stop_block:
            return True
        assert self._coordinator.scheduler is not None
        with self._coordinator.condition:
            return self._coordinator.scheduler.extend(span)

    def _record_received(self, range_request: RangeRequest, span: BlockSpan, n_bytes: int, length: int) -> None:
        if not n_bytes:
            raise _truncated_error(range_request)
        span.received_bytes += n_bytes
        range_request.received_bytes += n_bytes
        self._monitor.record_bytes()
        if span.received_bytes < length:
            self._monitor.check_if_due()

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
        self,
        range_request: RangeRequest,
        span: BlockSpan,
        stream: ObjectStream,
        direct_writer: DirectWriter,
        length: int,
    ) -> None:
        """Write a block in chunks, which are still in the CPU cache after they were read."""
        while span.received_bytes < length:
            max_bytes = min(length - span.received_bytes, _CHUNK_BYTES - span.received_bytes % _CHUNK_BYTES)
            n_read = stream.readinto(self._buffer[:max_bytes])
            with self._write_guard:
                direct_writer.write_chunk(span.next_block, span.received_bytes, self._buffer[:n_read])
                if span.received_bytes + n_read == length:
                    direct_writer.finish_block(span.next_block)
            self._record_received(range_request, span, n_read, length)
        self._coordinator.record_direct_write(range_request, length)

    def _store_block(self, range_request: RangeRequest, index: int, length: int) -> None:
        """Store the current block if it is the first copy."""
        coordinator = self._coordinator
        if not coordinator.accept_block(range_request, length):
            return
        try:
            returned = coordinator.block_sink.write_block(index, self._buffer[:length])
            if len(returned) >= self._block_bytes:  # else it is our own, cut to the last block
                self._buffer = returned
        except BaseException as error:
            coordinator.completion.fail(error)
            raise
        finally:
            coordinator.record_stored(range_request, length)

    def receive_unsized(self, range_request: RangeRequest, stream: ObjectStream, n_bytes: int) -> None:
        """Receive a body of unknown length from its first byte to its last; it cannot be resumed.

        Args:
            range_request: The request.
            stream: Its response.
            n_bytes: Bytes that are in the buffer already.
        """
        coordinator, position = self._coordinator, 0
        try:
            while n_bytes:
                n_bytes = self._complete_unsized_block(range_request, stream, position, n_bytes)
                coordinator.request.check_unsized(range_request.url, position + n_bytes)
                write_started_at = time.monotonic()
                with self._write_guard:
                    coordinator.block_sink.append(position, self._buffer[:n_bytes])
                position += n_bytes
                write_s = time.monotonic() - write_started_at
                coordinator.record_unsized_progress(range_request, position, write_s=write_s)
                self._monitor.record_bytes()
                n_bytes = stream.readinto(self._buffer)
                self._check_dripping(range_request)
            coordinator.request.check_size(range_request.url, position)
            coordinator.record_unsized_progress(range_request, position, is_complete=True)
        except (TransferError, RequestObsoleteError):
            coordinator.reset_unsized()
            raise

    def _check_dripping(self, range_request: RangeRequest) -> None:
        """Raise if almost nothing has arrived for the whole retry timeout."""
        self._monitor.check()
        if time.monotonic() > self._coordinator.try_ends_at(range_request.started_at):
            detail = (
                f"{range_request.url}: the server sent less than {format_size(MIN_UNSIZED_PROGRESS_BYTES)} in "
                f"{format_duration(self._coordinator.request.retry_timeout_s)}"
            )
            raise TransferError("service_unavailable", detail, range_request.url)

    def _complete_unsized_block(
        self, range_request: RangeRequest, stream: ObjectStream, position: int, n_bytes: int
    ) -> int:
        """Complete and verify a block if there are checksums, and return its length."""
        request, n_read = self._coordinator.request, n_bytes
        if request.checksums is None:
            return n_bytes
        while n_read and n_bytes < self._block_bytes:
            n_read = stream.readinto(self._buffer[n_bytes:])
            n_bytes += n_read
            self._monitor.record_bytes()
            self._monitor.check()
        if n_bytes < self._block_bytes or position + n_bytes > request.checksums.size:
            request.check_size(range_request.url, position + n_bytes)
        self._verify_block(range_request, position // self._block_bytes, self._buffer[:n_bytes])
        return n_bytes

    def _verify_block(self, range_request: RangeRequest, index: int, block: memoryview) -> None:
        """Check the content of the first block, and the sha256 of every block that has one."""
        request, url = self._coordinator.request, range_request.url
        if index == 0:
            request.check_content(url, None, bytes(block[:SNIFF_BYTES]))
        if request.checksums is None:
            return
        from hashlib import sha256

        if sha256(block).hexdigest() != request.checksums.block_sha256[index]:
            self._coordinator.stats.wasted_bytes += len(block)
            if range_request.span is not None:
                range_request.span.received_bytes = 0
            raise TransferError("digest_mismatch", f"{url}: block {index} does not match its checksum", url)


def _truncated_error(range_request: RangeRequest) -> TransferError:
    url = range_request.url
    return TransferError("truncated", f"{url}: the body ended before its announced length", url)
