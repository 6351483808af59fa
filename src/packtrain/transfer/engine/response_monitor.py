"""Watch the response of one connection: end it when it is obsolete, stalled or too slow."""

from __future__ import annotations

import time

from packtrain.errors import TransferError
from packtrain.formatting import format_duration
from packtrain.transfer.engine.coordinator import FetchCoordinator
from packtrain.transfer.engine.fetch_request import RangeRequest

_LOST_RACE_TIMEOUT_S = 0.5  # without a byte, after another source sent the block
_POLL_INTERVAL_S = 0.02  # while bytes arrive
_PAUSE_AFTER_S = 0.2


class RequestObsoleteError(Exception):
    """The bytes of the request are not needed any more."""


class ResponseMonitor:
    """Measures the silence of the current response of a worker."""

    def __init__(self, coordinator: FetchCoordinator) -> None:
        self._coordinator = coordinator
        self._has_first_byte = False
        self._last_byte_at = self._last_poll_at = 0.0

    def start(self, range_request: RangeRequest) -> None:
        """Watch another request from now on."""
        self._range_request = range_request
        self._has_first_byte, self._last_byte_at = False, time.monotonic()

    def record_bytes(self) -> None:
        """Record that bytes arrived."""
        now, source = time.monotonic(), self._range_request.source_stats
        if self._has_first_byte and now - self._last_byte_at > source.max_gap_s:
            source.max_gap_s = now - self._last_byte_at
        self._has_first_byte, self._last_byte_at = True, now

    def check_if_due(self) -> None:
        """Call `check` unless it was called a moment ago."""
        if self._last_byte_at - self._last_poll_at > _POLL_INTERVAL_S:
            self.check()

    def check(self) -> None:
        """Raise if the request is obsolete, stalled or too slow. Called several times a second while waiting."""
        coordinator, range_request, now = self._coordinator, self._range_request, time.monotonic()
        source, silent_s = range_request.source_stats, now - self._last_byte_at
        self._last_poll_at = now
        if coordinator.completion.should_exit():
            raise RequestObsoleteError
        self._check_obsolete(silent_s)
        if range_request.received_bytes and silent_s > _PAUSE_AFTER_S:
            coordinator.record_pause(range_request)
        timeout_s = (
            source.stall_timeout_s(range_request.timeout_factor, range_request.received_bytes)
            if self._has_first_byte
            else source.first_byte_timeout_s(range_request.timeout_factor)
        )
        timeout_s = min(timeout_s, coordinator.try_ends_at(self._last_byte_at) - self._last_byte_at)
        is_slow = coordinator.is_slow(range_request, now)
        if silent_s > timeout_s or is_slow:
            raise self._record_stall(silent_s, is_slow)

    def _check_obsolete(self, silent_s: float) -> None:
        """Raise if another source sent the block; a source that sent nothing at all counts as slow."""
        scheduler, span = self._coordinator.scheduler, self._range_request.span
        if span is None:
            if scheduler is not None:
                raise RequestObsoleteError  # another source responded first
            return
        span.last_byte_at = self._last_byte_at
        assert scheduler is not None
        if not scheduler.is_obsolete(span):
            return
        if not self._has_first_byte and silent_s > _LOST_RACE_TIMEOUT_S:
            raise self._record_stall(silent_s, is_slow=True)
        raise RequestObsoleteError

    def _record_stall(self, silent_s: float, is_slow: bool) -> TransferError:
        self._coordinator.record_stall(self._range_request)
        problem = (
            "is much slower than the other connections" if is_slow else f"sent no data for {format_duration(silent_s)}"
        )
        url = self._range_request.url
        return TransferError("service_unavailable", f"{url}: the server {problem}", url)
