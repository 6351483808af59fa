"""Retry decisions: how long to keep trying sources that fail.

The failure of one source is not final. A transfer fails when every source has failed and no byte has arrived for the
whole retry timeout, or at once when every source has refused permanently. `RetryTracker` is pure: the caller passes
the events and the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from packtrain.errors import TransferError
from packtrain.transfer.cancellation import CancelCheck

T = TypeVar("T")
PERMANENT_KINDS = frozenset({"secret_missing", "access_denied", "certificate_invalid", "unsupported"})
_INITIAL_BACKOFF_S = 0.25
_MAX_BACKOFF_S = 15.0
_CANCEL_POLL_INTERVAL_S = 0.1
# The kind of several failures together is the first of these: the one that a person can do most about. An object counts
# as missing only if no source failed otherwise.
_KINDS_BY_PRIORITY = (
    "secret_missing",
    "access_denied",
    "certificate_invalid",
    "unsupported",
    "unexpected_content",
    "digest_mismatch",
    "truncated",
    "service_unavailable",
    "network_unreachable",
    "host_unknown",
    "object_missing",
)
_KIND_PRIORITY = {kind: rank for rank, kind in enumerate(_KINDS_BY_PRIORITY)}


class RetryTracker:
    """Decides how long to wait before all sources are tried again, and when to give up."""

    def __init__(self, retry_timeout_s: float, n_sources: int, now: float) -> None:
        self._retry_timeout_s, self._last_progress_at = retry_timeout_s, now
        self._usable_sources: list[int] = list(range(n_sources))
        self._errors: dict[int, TransferError] = {}
        self._backoff_s = _INITIAL_BACKOFF_S

    def usable_sources(self) -> Sequence[int]:
        """Return the sources that have not refused permanently."""
        return tuple(self._usable_sources)

    def record_failure(self, source: int, error: TransferError, *, is_transient: bool = False) -> None:
        """Record the failure of a source.

        Args:
            source: The number of the source.
            error: The failure.
            is_transient: The failure may pass although its kind is permanent, for example an expired token.
        """
        self._errors[source] = error
        if error.kind in PERMANENT_KINDS and not is_transient:
            self._usable_sources.remove(source)

    def record_progress(self, now: float) -> None:
        """Restart the retry timeout and the backoff, because new bytes arrived."""
        if now > self._last_progress_at:
            self._last_progress_at, self._backoff_s = now, _INITIAL_BACKOFF_S

    def next_wait_s(self, now: float) -> float | None:
        """Return the seconds to wait before the sources are tried again, or None to give up."""
        remaining_s = self._retry_timeout_s - (now - self._last_progress_at)
        if not self._usable_sources or remaining_s <= 0:
            return None
        wait_s, self._backoff_s = self._backoff_s, min(2 * self._backoff_s, _MAX_BACKOFF_S)
        return min(max(wait_s, self._min_retry_after_s()), remaining_s)

    def _min_retry_after_s(self) -> float:
        """Return the smallest Retry-After of the servers, since all sources are tried again together."""
        return min(
            (self._errors[source].retry_after_s or 0.0 for source in self._usable_sources if source in self._errors),
            default=0.0,
        )

    def final_error(self) -> TransferError:
        """Return one error for all sources together."""
        return combine_errors(self._errors.values())


def combine_errors(errors: Iterable[TransferError]) -> TransferError:
    """Return one error with the most useful kind and the details of all errors."""
    by_priority = sorted(errors, key=lambda error: _KIND_PRIORITY.get(error.kind, 0))
    details = "; ".join(dict.fromkeys(error.detail for error in by_priority))
    return TransferError(by_priority[0].kind, details, by_priority[0].redacted_url, by_priority[0].retry_after_s)


def retry(
    operation: Callable[[], T], retry_timeout_s: float, check_cancelled: CancelCheck, only_kinds: Sequence[str] = ()
) -> T:
    """Return the result of `operation`, retried while its failure may pass.

    Args:
        operation: Raises TransferError on failure.
        retry_timeout_s: How long to retry before a failure is final.
        check_cancelled: Called several times a second while waiting; raises to cancel.
        only_kinds: Retry only failures of these kinds; empty means all that are not permanent.
    """
    retry_tracker = RetryTracker(retry_timeout_s, 1, time.monotonic())
    while True:
        check_cancelled()
        try:
            return operation()
        except TransferError as error:
            retry_tracker.record_failure(0, error)
            wait_s = retry_tracker.next_wait_s(time.monotonic())
            if wait_s is None or (only_kinds and error.kind not in only_kinds):
                raise
        cancellable_sleep(wait_s, check_cancelled)


def cancellable_sleep(duration_s: float, check_cancelled: CancelCheck) -> None:
    """Sleep, and call `check_cancelled` several times a second."""
    ends_at = time.monotonic() + duration_s
    while time.monotonic() < ends_at:
        check_cancelled()
        time.sleep(max(0.0, min(_CANCEL_POLL_INTERVAL_S, ends_at - time.monotonic())))
