"""Read the bytes of one group with one request, and check that they belong to the indexed archive."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from packtrain.errors import TransferError
from packtrain.formatting import format_duration
from packtrain.plan import Location
from packtrain.stream.index import Index, IndexedArchive
from packtrain.stream.read_groups import ReadGroup
from packtrain.transfer.api import ByteRange, ObjectStream, Replica
from packtrain.transfer.engine.source_stats import SourceStats
from packtrain.transfer.integrity.block_checksums import BlockChecksums
from packtrain.transfer.tasks.cancellation import cancellation_scope
from packtrain.transfer.urls import redact_url

_CHECK_INTERVAL_S = 0.05  # how often to check the progress while bytes arrive


class ReadAbandoned(Exception):
    """The bytes are no longer needed."""


@dataclass(eq=False)
class InFlightRead:
    """A request for a group that is in progress.

    Attributes:
        group_number: The position of the group in the order of the prefetcher.
        group: The group.
        source_stats: The statistics of the source.
        replica: The source and its URL.
        started_at: When the request started, by time.monotonic.
        timeout_factor: By how much the timeouts of the source are extended.
        is_inline: Whether the training thread itself reads.
        received_bytes: Number of bytes received.
        last_byte_at: When the last bytes arrived, by time.monotonic.
    """

    group_number: int
    group: ReadGroup
    source_stats: SourceStats
    replica: Replica
    started_at: float
    timeout_factor: float
    is_inline: bool = False
    received_bytes: int = 0
    last_byte_at: float = field(default=0.0)

    def __post_init__(self) -> None:
        self.last_byte_at = self.started_at

    def is_stalled(self, now: float) -> bool:
        """Return whether the server has sent nothing for too long."""
        stats = self.source_stats
        limit_s = (
            stats.stall_timeout_s(self.timeout_factor, self.received_bytes)
            if self.received_bytes
            else stats.first_byte_timeout_s(self.timeout_factor)
        )
        return now - self.last_byte_at > limit_s

    def stall_error(self, now: float) -> TransferError:
        """Return the error of a stalled request."""
        url = redact_url(self.replica.location.url)
        return TransferError(
            "service_unavailable", f"{url}: the server sent nothing for {format_duration(now - self.last_byte_at)}", url
        )


class GroupReader:
    """Reads groups one after the other, into the same buffer.

    Args:
        check_progress: Called repeatedly during a read; raises an exception to abandon it.
    """

    def __init__(self, check_progress: Callable[[InFlightRead], None]) -> None:
        self._check_progress = check_progress
        self._buffer = memoryview(bytearray(1))

    def read(
        self, in_flight: InFlightRead, location: Location, expected: IndexedArchive, check_etag: bool
    ) -> memoryview:
        """Return the bytes of a group, in memory that the next call overwrites.

        Args:
            in_flight: The request.
            location: The URL to read, with credentials.
            expected: The archive as it was indexed.
            check_etag: Whether ETag and modification time must match, in addition to the size.

        Raises:
            TransferError: The request failed, or the archive has changed.
        """
        group = in_flight.group
        if len(self._buffer) < group.size:
            self._buffer = memoryview(bytearray(group.size))
        with cancellation_scope(lambda: self._check_progress(in_flight), handles_read_timeout=True):
            stream = in_flight.replica.source.open(location, ByteRange(group.start, group.stop))
            try:
                _check_response(stream, location, group.start, expected, check_etag)
                self._read_body(in_flight, stream, location)
            finally:
                stream.close()
        return self._buffer[: group.size]

    def _read_body(self, in_flight: InFlightRead, stream: ObjectStream, location: Location) -> None:
        size, buffer, checked_at = in_flight.group.size, self._buffer, in_flight.last_byte_at
        while in_flight.received_bytes < size:
            count = stream.readinto(buffer[in_flight.received_bytes : size])
            if not count:
                raise TransferError(
                    "truncated",
                    f"{redact_url(location.url)}: the response ended before its announced end",
                    location.url,
                )
            now = time.monotonic()
            if in_flight.received_bytes:
                in_flight.source_stats.max_gap_s = max(in_flight.source_stats.max_gap_s, now - in_flight.last_byte_at)
            in_flight.received_bytes, in_flight.last_byte_at = in_flight.received_bytes + count, now
            if in_flight.received_bytes < size and now - checked_at > _CHECK_INTERVAL_S:
                checked_at = now
                self._check_progress(in_flight)


def _check_response(
    stream: ObjectStream, location: Location, start: int, expected: IndexedArchive, check_etag: bool
) -> None:
    """Raise TransferError if the object has changed since it was indexed, or the range is not the requested one."""
    url = redact_url(location.url)
    change = expected.describe_change(stream.info) if check_etag else _describe_size_change(expected, stream.info.size)
    if change:
        noun = "archive" if expected.url else "file"
        raise TransferError(
            "unexpected_content",
            f"{url} is not the {noun} that was indexed: {change}; build the index again with `packtrain index`",
            url,
        )
    if stream.start != start:
        raise TransferError(
            "unsupported",
            f"{url}: the server only sends whole files, and streaming needs byte ranges: stage the data instead",
            url,
        )


def _describe_size_change(expected: IndexedArchive, size: int | None) -> str | None:
    return f"it had {expected.size} bytes and now has {size}" if size not in (None, expected.size) else None


def split_samples(index: Index, group: ReadGroup, data: memoryview) -> list[bytes]:
    """Return a copy of each sample of a group, so that memory is freed sample by sample."""
    offsets, sizes, start = index.offsets, index.sizes, group.start
    contents: list[bytes] = []
    for number in group.samples:
        offset = offsets[number] - start
        contents.append(bytes(data[offset : offset + sizes[number]]))
    return contents


def verify_blocks(group: ReadGroup, data: memoryview, checksums: BlockChecksums, url: str) -> None:
    """Verify the checksum of each block of a group.

    Args:
        group: The group; its range consists of whole blocks.
        data: The bytes of its range.
        checksums: The checksums of its archive.
        url: The URL for the error message.

    Raises:
        TransferError: A checksum is wrong.
    """
    from hashlib import sha256

    for start in range(group.start, group.stop, checksums.block_bytes):
        offset = start - group.start
        block = start // checksums.block_bytes
        if sha256(data[offset : offset + checksums.block_bytes]).hexdigest() != checksums.block_sha256[block]:
            raise TransferError("digest_mismatch", f"{url}: the checksum of block {block} is wrong", url)
