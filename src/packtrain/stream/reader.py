"""Reads one piece: from the disk if it was kept, else by one request, watched all the while."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from packtrain.errors import TransferError
from packtrain.plan import Location
from packtrain.stream.index import Index, IndexedArchive
from packtrain.stream.read_groups import ReadGroup
from packtrain.transfer.api import ByteRange, ObjectStream, Replica
from packtrain.transfer.block_checksums import BlockChecksums
from packtrain.transfer.buffer_pool import allocate_page_aligned
from packtrain.transfer.engine.source_stats import SourceStats
from packtrain.transfer.cancellation import cancellation_scope
from packtrain.transfer.urls import redact_url

_CHECK_INTERVAL_S = 0.05  # while bytes come


class ReadAbandoned(Exception):
    """Nobody waits for these bytes any more."""


@dataclass(eq=False)
class InFlightRead:
    """To read a piece at a place."""

    group_number: int  # of the piece
    group: ReadGroup
    source_stats: SourceStats
    replica: Replica
    started_at: float
    timeout_factor: float
    is_hedge: bool = False
    is_inline: bool = False  # by the one who takes
    received_bytes: int = 0
    last_byte_at: float = field(default=0.0)  # when the last bytes came

    def __post_init__(self) -> None:
        self.last_byte_at = self.started_at

    def is_stalled(self, now: float) -> bool:
        standing = self.source_stats
        limit = (
            standing.stall_timeout_s(self.timeout_factor, self.received_bytes)
            if self.received_bytes
            else standing.first_byte_timeout_s(self.timeout_factor)
        )
        return now - self.last_byte_at > limit

    def stall_error(self, now: float) -> TransferError:
        url = redact_url(self.replica.location.url)
        return TransferError(
            "service_unavailable", f"{url}: the server sent nothing for {now - self.last_byte_at:.0f} s", url
        )


class GroupReader:
    """One connection's memory, used again and again. `look` is asked all the while, and may raise."""

    def __init__(self, check_progress: Callable[[InFlightRead], None]) -> None:
        self._check_progress = check_progress
        self._buffer = allocate_page_aligned(1)

    def read(
        self, in_flight: InFlightRead, location: Location, expected: IndexedArchive, check_etag: bool
    ) -> memoryview:
        """The piece's bytes, in memory that the next call overwrites. `expected`: what the object should be."""
        piece = in_flight.group
        if len(self._buffer) < piece.size:
            self._buffer = allocate_page_aligned(piece.size)
        with cancellation_scope(lambda: self._check_progress(in_flight), handles_read_timeout=True):
            stream = in_flight.replica.source.open(location, ByteRange(piece.start, piece.stop))
            try:
                _check_response(stream, location, piece.start, expected, check_etag)
                self._read_body(in_flight, stream, location)
            finally:
                stream.close()
        return self._buffer[: piece.size]

    def _read_body(self, in_flight: InFlightRead, stream: ObjectStream, location: Location) -> None:
        size, buffer, looked = in_flight.group.size, self._buffer, in_flight.last_byte_at
        while in_flight.received_bytes < size:
            count = stream.readinto(buffer[in_flight.received_bytes : size])
            if not count:
                raise TransferError(
                    "truncated", f"{redact_url(location.url)}: the body ended before its promised end", location.url
                )
            now = time.monotonic()
            if in_flight.received_bytes:
                in_flight.source_stats.max_gap_s = max(in_flight.source_stats.max_gap_s, now - in_flight.last_byte_at)
            in_flight.received_bytes, in_flight.last_byte_at = in_flight.received_bytes + count, now
            if in_flight.received_bytes < size and now - looked > _CHECK_INTERVAL_S:
                looked = now
                self._check_progress(in_flight)


def _check_response(
    stream: ObjectStream, location: Location, start: int, expected: IndexedArchive, check_etag: bool
) -> None:
    """Whether this is the object that was indexed, and the bytes that were asked for."""
    url = redact_url(location.url)
    changed = expected.describe_change(stream.info) if check_etag else _describe_size_change(expected, stream.info.size)
    if changed:
        what = "archive" if expected.url else "file"
        words = f"{url} is not the {what} that was indexed: {changed}; make the index anew with `packtrain index`"
        raise TransferError("unexpected_content", words, url)
    if stream.start != start:
        words = f"{url}: the server gives whole files only, and streaming needs parts of them: stage the data instead"
        raise TransferError("unsupported", words, url)


def _describe_size_change(expected: IndexedArchive, size: int | None) -> str | None:
    return f"it had {expected.size} bytes and now has {size}" if size not in (None, expected.size) else None


def split_samples(index: Index, group: ReadGroup, data: memoryview) -> list[bytes]:
    """Each on its own, so that memory is freed sample by sample."""
    offsets, sizes, start = index.offsets, index.sizes, group.start
    found: list[bytes] = []
    for number in group.samples:
        at = offsets[number] - start
        found.append(bytes(data[at : at + sizes[number]]))
    return found


def verify_blocks(group: ReadGroup, data: memoryview, checksums: BlockChecksums, url: str) -> None:
    """Raises TransferError if a block is not the one of the checksums. The piece has whole blocks."""
    from hashlib import sha256

    for start in range(group.start, group.stop, checksums.block_bytes):
        at = start - group.start
        block = start // checksums.block_bytes
        if sha256(data[at : at + checksums.block_bytes]).hexdigest() != checksums.block_sha256[block]:
            raise TransferError("digest_mismatch", f"{url}: block {block} is not the one of the checksums", url)
