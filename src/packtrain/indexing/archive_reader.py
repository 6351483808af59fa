"""An object read in places: each read goes to whichever of its servers does best, and to another one if that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from packtrain.errors import TransferError
from packtrain.plan import Location
from packtrain.transfer.api import ByteRange, ObjectInfo, ObjectStream, SecretResolver
from packtrain.transfer.engine.source_selector import SourceSelector
from packtrain.transfer.engine.source_stats import SourceStats
from packtrain.transfer.cancellation import cancellation_scope
from packtrain.transfer.registry import find_replicas
from packtrain.transfer.retry import cancellable_sleep, combine_errors
from packtrain.transfer.urls import redact_url, url_scheme

CancelCheck = Callable[[], None]
_FEDERATED_SCHEMES = ("osdf", "pelican")
_POLL_INTERVAL_S = 0.05
_REDISCOVERY_INTERVAL_S = 1.0


class ArchiveReader:
    """Of one archive. `refs` are its addresses, each as good as the other. Any number of threads may read."""

    def __init__(
        self,
        locations: Sequence[Location],
        resolve_secret: SecretResolver,
        retry_timeout_s: float,
        check_cancelled: CancelCheck,
    ) -> None:
        self.locations, self._resolve_secret, self._retry_timeout_s, self._check_cancelled = (
            tuple(locations),
            resolve_secret,
            retry_timeout_s,
            check_cancelled,
        )
        self._source_set, self._lock = SourceSelector(), threading.Lock()
        self._discovered_at = float("-inf")
        self._discovery_errors: list[TransferError] = []
        self.info: ObjectInfo | None = None  # as the first answer said
        self._info_source: SourceStats | None = None

    @property
    def redacted_url(self) -> str:
        return redact_url(self.locations[0].url)

    @property
    def size(self) -> int:
        assert self.info is not None and self.info.size is not None
        return self.info.size

    @property
    def is_info_from_first_location(self) -> bool:
        """Whether `info` is of the first address; each server has ETags and times of its own."""
        return self._info_source is None or self._info_source.rank == 0

    def read(self, start: int, stop: int) -> bytes:
        """These bytes; fewer only where the object ends. Raises TransferError when nobody gives them."""
        if start >= stop:
            return b""
        ends = time.monotonic() + self._retry_timeout_s
        errors: dict[int, TransferError] = {}
        while True:
            self._check_cancelled()
            standing = self._acquire_source()
            if standing is not None:
                try:
                    return self._read_from(standing, ByteRange(start, stop), ends)
                except TransferError as error:
                    errors[id(standing)] = error
            if self._is_exhausted(ends):
                raise combine_errors([*errors.values(), *self._discovery_errors] or self._source_errors())
            if standing is None:
                cancellable_sleep(_POLL_INTERVAL_S, self._check_cancelled)

    def _is_exhausted(self, deadline_at: float) -> bool:
        refused = all(s.is_refused or s.has_different_object for s in self._source_set.source_stats)
        if self._source_set.source_stats and refused:
            return True
        return time.monotonic() > deadline_at and not any(
            s.is_usable(time.monotonic()) for s in self._source_set.source_stats
        )

    def _source_errors(self) -> list[TransferError]:
        unknown = TransferError("service_unavailable", f"nobody gives {self.redacted_url}", self.redacted_url)
        return [s.last_error for s in self._source_set.source_stats if s.last_error] or [unknown]

    def _acquire_source(self) -> SourceStats | None:
        with self._lock:
            now = time.monotonic()
            if (
                not any(s.is_usable(now) for s in self._source_set.source_stats)
                and now > self._discovered_at + _REDISCOVERY_INTERVAL_S
            ):
                self._discovered_at = now
                self._discover_sources()
            standing = self._source_set.choose(time.monotonic())
            if standing is not None:
                standing.connections += 1
            return standing

    def _discover_sources(self) -> None:
        """Called when nobody can be asked: at first, and when all fail."""
        first, self._discovery_errors = not self._source_set.source_stats, []
        self._add_sources(0, bypass_caches(self.locations), last_resort=False)
        if not first or not self._source_set.source_stats:
            caches = [ref for ref in self.locations if url_scheme(ref.url) in _FEDERATED_SCHEMES]
            self._add_sources(len(self.locations), caches, last_resort=True)

    def _add_sources(self, rank: int, locations: Sequence[Location], last_resort: bool) -> None:
        for at, ref in enumerate(locations, rank):
            try:
                found = find_replicas(ref, self._resolve_secret)
                self._source_set.add(at, [replace(place, is_fallback=last_resort) for place in found])
            except TransferError as error:
                self._discovery_errors.append(error)

    def _read_from(self, source_stats: SourceStats, span: ByteRange, deadline_at: float) -> bytes:
        reading = _RangeRead(source_stats, self._check_cancelled)
        try:
            with cancellation_scope(reading.check_progress, handles_read_timeout=True):
                stream = source_stats.replica.source.open(source_stats.replica.location, span)
                try:
                    self._check_response(source_stats, stream, span)
                    data = reading.read_body(stream, span)
                finally:
                    stream.close()
        except TransferError as error:
            self._record_failure(reading, error, deadline_at)
            raise
        finally:
            with self._lock:
                source_stats.connections -= 1
        with self._lock:
            now = time.monotonic()
            source_stats.record_block(len(data), now - reading.started_at, now)
        return data

    def _record_failure(self, range_read: _RangeRead, error: TransferError, deadline_at: float) -> None:
        with self._lock:
            now, standing = time.monotonic(), range_read.source_stats
            alone = self._source_set.is_only_usable(standing, now)
            if range_read.is_stalled:
                standing.record_stall(now, alone, range_read.timeout_factor, range_read.received_bytes)
            standing.record_failure(
                error, range_read.started_at, now, alone, max(deadline_at, now + self._retry_timeout_s / 2)
            )

    def _check_response(self, source_stats: SourceStats, stream: ObjectStream, span: ByteRange) -> None:
        """Whether this is a part of the object that the first answer was of."""
        url = redact_url(source_stats.replica.location.url)
        info = stream.info
        assert span.stop is not None
        whole = info.size is not None and span.start == 0 and info.size <= span.stop
        if info.size is None or stream.start != span.start or not (info.accepts_ranges or whole):
            raise TransferError(
                "unsupported", f"{url}: the server gives whole files only; samples cannot be read out of it", url
            )
        with self._lock:
            if self.info is None:
                self.info, self._info_source = info, source_stats
            same = source_stats is self._info_source
            if info.size != self.info.size or (same and info.etag != self.info.etag):
                source_stats.has_different_object = True
                words = "changed while it was indexed" if same else f"is another file than {self.redacted_url}"
                raise TransferError("unexpected_content", f"{url} {words}", url)


def bypass_caches(locations: Sequence[Location]) -> list[Location]:
    """Of a federation the origin: a cache would fetch a whole block of the file for every header."""
    return [
        replace(ref, url=f"{ref.url}{'&' if '?' in ref.url else '?'}directread")
        if url_scheme(ref.url) in _FEDERATED_SCHEMES
        else ref
        for ref in locations
    ]


class _RangeRead:
    """One answer on its way; a server that falls silent is left."""

    def __init__(self, source_stats: SourceStats, check_cancelled: CancelCheck) -> None:
        self.source_stats, self.timeout_factor, self._check_cancelled = (
            source_stats,
            source_stats.timeout_factor,
            check_cancelled,
        )
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
                raise TransferError("truncated", f"{url}: the body ended before its promised end", url)
            self.received_bytes, self._last_byte_at = self.received_bytes + count, time.monotonic()
        stream.readinto(memoryview(bytearray(1)))  # a connection read to its end serves the next request
        return bytes(data)

    def check_progress(self) -> None:
        self._check_cancelled()
        now, standing = time.monotonic(), self.source_stats
        limit = (
            standing.stall_timeout_s(self.timeout_factor, self.received_bytes)
            if self.received_bytes
            else standing.first_byte_timeout_s(self.timeout_factor)
        )
        if now - self._last_byte_at > limit:
            self.is_stalled = True
            url = redact_url(standing.replica.location.url)
            words = f"{url}: the server sent nothing for {now - self._last_byte_at:.0f} s"
            raise TransferError("service_unavailable", words, url)
