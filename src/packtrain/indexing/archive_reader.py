"""Read byte ranges of an archive, from the server that performs best, or from a local file."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from packtrain.errors import TransferError
from packtrain.formatting import format_duration
from packtrain.plan import Location
from packtrain.transfer.api import ByteRange, ObjectInfo, ObjectStream, SecretResolver
from packtrain.transfer.backends.file import FileBackend
from packtrain.transfer.engine.source_stats import SourceSelector, SourceStats
from packtrain.transfer.registry import find_replicas
from packtrain.transfer.retry import cancellable_sleep, combine_errors
from packtrain.transfer.tasks.cancellation import cancellation_scope
from packtrain.transfer.urls import is_federated, path_from_file_url, redact_url, url_scheme

CancelCheck = Callable[[], None]
_POLL_INTERVAL_S = 0.05
_REDISCOVERY_INTERVAL_S = 1.0


def open_archive(
    locations: Sequence[Location], resolve_secret: SecretResolver, retry_timeout_s: float, check_cancelled: CancelCheck
) -> ArchiveReader:
    """Return a reader for the URLs of one archive: a LocalArchiveReader for a single file:// URL."""
    is_local = len(locations) == 1 and url_scheme(locations[0].url) == "file"
    reader_type = LocalArchiveReader if is_local else ArchiveReader
    return reader_type(locations, resolve_secret, retry_timeout_s, check_cancelled)


class ArchiveReader:
    """Reads one archive. Any number of threads may read at the same time.

    Args:
        locations: URLs of the archive, all with the same content.
        resolve_secret: Returns the value of a secret.
        retry_timeout_s: How long to retry a failing read, in seconds.
        check_cancelled: Raises an exception to stop a read.
    """

    def __init__(
        self,
        locations: Sequence[Location],
        resolve_secret: SecretResolver,
        retry_timeout_s: float,
        check_cancelled: CancelCheck,
    ) -> None:
        self.locations, self._resolve_secret = tuple(locations), resolve_secret
        self._retry_timeout_s, self._check_cancelled = retry_timeout_s, check_cancelled
        self._source_set, self._lock = SourceSelector(), threading.Lock()
        self._discovered_at = float("-inf")
        self._discovery_errors: list[TransferError] = []
        self.info: ObjectInfo | None = None  # the metadata of the first response
        self._info_source: SourceStats | None = None

    @property
    def redacted_url(self) -> str:
        """The first URL, for messages."""
        return redact_url(self.locations[0].url)

    @property
    def size(self) -> int:
        """The size of the archive in bytes; known after the first read."""
        assert self.info is not None and self.info.size is not None
        return self.info.size

    @property
    def is_info_from_first_location(self) -> bool:
        """Whether `info` came from the first URL. Each server has its own ETags and times."""
        return self._info_source is None or self._info_source.rank == 0

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop`; fewer only at the end of the archive.

        Raises TransferError if no server delivers them within the retry timeout.
        """
        if start >= stop:
            return b""
        deadline_at = time.monotonic() + self._retry_timeout_s
        errors: dict[int, TransferError] = {}
        while True:
            self._check_cancelled()
            source_stats = self._acquire_source()
            if source_stats is not None:
                try:
                    return self._read_from(source_stats, ByteRange(start, stop), deadline_at)
                except TransferError as error:
                    errors[id(source_stats)] = error
            if self._is_exhausted(deadline_at):
                raise combine_errors([*errors.values(), *self._discovery_errors] or self._source_errors())
            if source_stats is None:
                cancellable_sleep(_POLL_INTERVAL_S, self._check_cancelled)

    def _is_exhausted(self, deadline_at: float) -> bool:
        """Return whether all servers refused, or the retry timeout expired and no server is usable."""
        servers, now = self._source_set.source_stats, time.monotonic()
        if servers and all(stats.is_refused or stats.has_different_object for stats in servers):
            return True
        return now > deadline_at and not any(stats.is_usable(now) for stats in servers)

    def _source_errors(self) -> list[TransferError]:
        unknown = TransferError("service_unavailable", f"no server delivers {self.redacted_url}", self.redacted_url)
        return [stats.last_error for stats in self._source_set.source_stats if stats.last_error] or [unknown]

    def _acquire_source(self) -> SourceStats | None:
        with self._lock:
            now = time.monotonic()
            is_any_usable = any(stats.is_usable(now) for stats in self._source_set.source_stats)
            if not is_any_usable and now > self._discovered_at + _REDISCOVERY_INTERVAL_S:
                self._discovered_at = now
                self._discover_sources()
            source_stats = self._source_set.choose(time.monotonic())
            if source_stats is not None:
                source_stats.connections += 1
            return source_stats

    def _discover_sources(self) -> None:
        """Find servers: before the first read, and when all known ones fail. Caches of a federation are a fallback."""
        is_first, self._discovery_errors = not self._source_set.source_stats, []
        self._add_sources(0, bypass_caches(self.locations), last_resort=False)
        if not is_first or not self._source_set.source_stats:
            federated = [location for location in self.locations if is_federated(location.url)]
            self._add_sources(len(self.locations), federated, last_resort=True)

    def _add_sources(self, first_rank: int, locations: Sequence[Location], last_resort: bool) -> None:
        for rank, location in enumerate(locations, first_rank):
            try:
                replicas = find_replicas(location, self._resolve_secret)
                self._source_set.add(rank, [replace(replica, is_fallback=last_resort) for replica in replicas])
            except TransferError as error:
                self._discovery_errors.append(error)

    def _read_from(self, source_stats: SourceStats, span: ByteRange, deadline_at: float) -> bytes:
        range_read = _RangeRead(source_stats, self._check_cancelled)
        try:
            with cancellation_scope(range_read.check_progress, handles_read_timeout=True):
                stream = source_stats.replica.source.open(source_stats.replica.location, span)
                try:
                    self._check_response(source_stats, stream, span)
                    data = range_read.read_body(stream, span)
                finally:
                    stream.close()
        except TransferError as error:
            self._record_failure(range_read, error, deadline_at)
            raise
        finally:
            with self._lock:
                source_stats.connections -= 1
        with self._lock:
            now = time.monotonic()
            source_stats.record_block(len(data), now - range_read.started_at, now)
        return data

    def _record_failure(self, range_read: _RangeRead, error: TransferError, deadline_at: float) -> None:
        with self._lock:
            now, source_stats = time.monotonic(), range_read.source_stats
            is_only = self._source_set.is_only_usable(source_stats, now)
            if range_read.is_stalled:
                source_stats.record_stall(now, is_only, range_read.timeout_factor, range_read.received_bytes)
            source_stats.record_failure(
                error, range_read.started_at, now, is_only, max(deadline_at, now + self._retry_timeout_s / 2)
            )

    def _check_response(self, source_stats: SourceStats, stream: ObjectStream, span: ByteRange) -> None:
        """Raise TransferError if the response is not a range of the object that the first response came from."""
        url = redact_url(source_stats.replica.location.url)
        info = stream.info
        assert span.stop is not None
        is_whole_object = info.size is not None and span.start == 0 and info.size <= span.stop
        if info.size is None or stream.start != span.start or not (info.accepts_ranges or is_whole_object):
            raise TransferError(
                "unsupported", f"{url}: the server only sends whole files; samples cannot be read from it", url
            )
        with self._lock:
            if self.info is None:
                self.info, self._info_source = info, source_stats
            is_same_source = source_stats is self._info_source
            if info.size != self.info.size or (is_same_source and info.etag != self.info.etag):
                source_stats.has_different_object = True
                reason = "changed while it was indexed" if is_same_source else f"differs from {self.redacted_url}"
                raise TransferError("unexpected_content", f"{url} {reason}", url)


class LocalArchiveReader(ArchiveReader):
    """Reads an archive on a local disk."""

    def __init__(
        self,
        locations: Sequence[Location],
        resolve_secret: SecretResolver,
        retry_timeout_s: float,
        check_cancelled: CancelCheck,
    ) -> None:
        super().__init__(locations, resolve_secret, retry_timeout_s, check_cancelled)
        self.info = FileBackend().stat(self.locations[0])
        path = path_from_file_url(self.locations[0].url)
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed with the reader
        self._mtime_ns = os.fstat(self._file.fileno()).st_mtime_ns

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop`. Raises TransferError if the file has changed."""
        self._check_cancelled()
        fd, chunks = self._file.fileno(), []
        if os.fstat(fd).st_mtime_ns != self._mtime_ns:
            raise TransferError(
                "unexpected_content", f"{self.redacted_url} changed while it was indexed", self.redacted_url
            )
        while start < stop:
            chunk = os.pread(fd, stop - start, start)
            if not chunk:
                break
            chunks.append(chunk)
            start += len(chunk)
        return b"".join(chunks)


def bypass_caches(locations: Sequence[Location]) -> list[Location]:
    """Return URLs that read from the origin of a federation: a cache would fetch a whole block for every header."""
    return [
        replace(location, url=f"{location.url}{'&' if '?' in location.url else '?'}directread")
        if is_federated(location.url)
        else location
        for location in locations
    ]


class _RangeRead:
    """One request in progress. Fails if the server stalls."""

    def __init__(self, source_stats: SourceStats, check_cancelled: CancelCheck) -> None:
        self.source_stats, self.timeout_factor = source_stats, source_stats.timeout_factor
        self._check_cancelled = check_cancelled
        self.started_at = self._last_byte_at = time.monotonic()
        self.received_bytes, self.is_stalled = 0, False

    def read_body(self, stream: ObjectStream, span: ByteRange) -> bytes:
        assert span.stop is not None and stream.info.size is not None
        data = bytearray(max(0, min(span.stop, stream.info.size) - span.start))
        view = memoryview(data)
        while self.received_bytes < len(data):
            count = stream.readinto(view[self.received_bytes :])
            if not count:
                url = redact_url(self.source_stats.replica.location.url)
                raise TransferError("truncated", f"{url}: the response ended before its announced end", url)
            self.received_bytes, self._last_byte_at = self.received_bytes + count, time.monotonic()
        stream.readinto(memoryview(bytearray(1)))  # read to the end, so that the connection can be reused
        return bytes(data)

    def check_progress(self) -> None:
        """Raise an exception if the read was cancelled, or the server sent nothing for too long."""
        self._check_cancelled()
        now, stats = time.monotonic(), self.source_stats
        limit_s = (
            stats.stall_timeout_s(self.timeout_factor, self.received_bytes)
            if self.received_bytes
            else stats.first_byte_timeout_s(self.timeout_factor)
        )
        silent_s = now - self._last_byte_at
        if silent_s > limit_s:
            self.is_stalled = True
            url = redact_url(stats.replica.location.url)
            detail = f"{url}: the server sent nothing for {format_duration(silent_s)}"
            raise TransferError("service_unavailable", detail, url)
