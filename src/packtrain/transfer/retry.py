"""Retry decisions: how long to keep trying an operation that fails.

An operation fails when it made no progress for the whole retry timeout, or at once when the server refused permanently.
`RetryTracker` is pure: the caller passes the events and the time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from packtrain.backoff import Backoff
from packtrain.errors import TransferError
from packtrain.transfer.tasks.cancellation import CancelCheck, time_limit

T = TypeVar("T")
PERMANENT_KINDS = frozenset({"secret_missing", "access_denied", "certificate_invalid", "unsupported"})
_BACKOFF = Backoff(0.25, 15.0)
MIN_TRY_S = 1.0
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


def try_ends_at(started_at: float, last_progress_at: float, retry_timeout_s: float) -> float:
    """Return when to abort one try: when the retry timeout expires, but the last try has a moment, too.

    A retry timeout of 0 limits the number of tries, not their duration.
    """
    if not retry_timeout_s:
        return math.inf
    return max(last_progress_at + retry_timeout_s, started_at + MIN_TRY_S)


class RetryTracker:
    """Decides how long to wait before an operation is tried again, and when to give up."""

    def __init__(self, retry_timeout_s: float, now: float) -> None:
        self._retry_timeout_s, self._last_progress_at, self._n_failures = retry_timeout_s, now, 0

    def record_progress(self, now: float) -> None:
        """Restart the retry timeout and the backoff, because new bytes arrived."""
        if now > self._last_progress_at:
            self._last_progress_at, self._n_failures = now, 0

    def try_ends_at(self, started_at: float) -> float:
        """Return when to abort a try that started at a time."""
        return try_ends_at(started_at, self._last_progress_at, self._retry_timeout_s)

    def next_wait_s(self, error: TransferError, now: float, *, is_transient: bool = False) -> float | None:
        """Return the seconds to wait after a failure, or None to give up.

        Args:
            error: The failure.
            now: The time.
            is_transient: The failure may pass although its kind is permanent, for example an expired token.
        """
        remaining_s = self._retry_timeout_s - (now - self._last_progress_at)
        if remaining_s <= 0 or (error.kind in PERMANENT_KINDS and not is_transient):
            return None
        self._n_failures += 1
        return min(max(_BACKOFF.delay_s(self._n_failures), error.retry_after_s or 0.0), remaining_s)


def combine_errors(errors: Iterable[TransferError]) -> TransferError:
    """Return one error with the most useful kind and the details of all errors."""
    by_priority = sorted(errors, key=lambda error: _KIND_PRIORITY.get(error.kind, 0))
    details = "; ".join(dict.fromkeys(error.detail for error in by_priority))
    return TransferError(by_priority[0].kind, details, by_priority[0].redacted_url, by_priority[0].retry_after_s)


def retry(
    operation: Callable[[], T],
    retry_timeout_s: float,
    check_cancelled: CancelCheck,
    only_kinds: Sequence[str] = (),
    except_kinds: Sequence[str] = (),
) -> T:
    """Return the result of `operation`, retried while its failure may pass.

    Args:
        operation: Raises TransferError on failure.
        retry_timeout_s: How long to retry before a failure is final.
        check_cancelled: Called several times a second while waiting; raises to cancel.
        only_kinds: Retry only failures of these kinds; empty means all that are not permanent.
        except_kinds: Do not retry failures of these kinds.
    """
    retry_tracker = RetryTracker(retry_timeout_s, time.monotonic())
    while True:
        check_cancelled()
        try:
            with time_limit(partial(retry_tracker.try_ends_at, time.monotonic())):
                return operation()
        except TransferError as error:
            wait_s = retry_tracker.next_wait_s(error, time.monotonic())
            if wait_s is None or (only_kinds and error.kind not in only_kinds) or error.kind in except_kinds:
                raise
        cancellable_sleep(wait_s, check_cancelled)


def cancellable_sleep(duration_s: float, check_cancelled: CancelCheck) -> None:
    """Sleep, and call `check_cancelled` several times a second."""
    ends_at = time.monotonic() + duration_s
    while time.monotonic() < ends_at:
        check_cancelled()
        time.sleep(max(0.0, min(_CANCEL_POLL_INTERVAL_S, ends_at - time.monotonic())))
