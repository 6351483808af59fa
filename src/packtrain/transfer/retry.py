"""How long to believe in sources that fail. `Patience` is pure: it is told what happened and when.

A failure of one source is news, not a verdict. It becomes one when every source has failed, and
nothing has arrived, for the whole patience; or at once, when every source refused for good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from packtrain.errors import TransferError

T = TypeVar("T")
PERMANENT_KINDS = frozenset({"secret_missing", "access_denied", "certificate_invalid", "unsupported"})
_INITIAL_BACKOFF_S = 0.25
_MAX_BACKOFF_S = 15.0
_CANCEL_POLL_INTERVAL_S = 0.1
# Which of several failures to report: the one that a person can do most about. That an object is
# missing counts only if all say so.
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
    def __init__(self, retry_timeout_s: float, n_sources: int, now: float) -> None:
        self._retry_timeout_s, self._last_progress_at = retry_timeout_s, now
        self._usable_sources: list[int] = list(range(n_sources))
        self._errors: dict[int, TransferError] = {}
        self._backoff_s = _INITIAL_BACKOFF_S

    def usable_sources(self) -> Sequence[int]:
        """The sources that have not refused for good."""
        return tuple(self._usable_sources)

    def record_failure(self, source: int, error: TransferError, *, is_transient: bool = False) -> None:
        """`passes`: a refusal that is not for good."""
        self._errors[source] = error
        if error.kind in PERMANENT_KINDS and not is_transient:
            self._usable_sources.remove(source)

    def record_progress(self, now: float) -> None:
        """Something new has arrived: all begins anew, except that a refusal stays one."""
        if now > self._last_progress_at:
            self._last_progress_at, self._backoff_s = now, _INITIAL_BACKOFF_S

    def next_wait_s(self, now: float) -> float | None:
        """How long to wait before all are asked again; None: no longer."""
        left = self._retry_timeout_s - (now - self._last_progress_at)
        if not self._usable_sources or left <= 0:
            return None
        wait, self._backoff_s = self._backoff_s, min(2 * self._backoff_s, _MAX_BACKOFF_S)
        return min(max(wait, self._min_retry_after_s()), left)

    def _min_retry_after_s(self) -> float:
        """What the servers ask for; the least, since all are asked again together."""
        return min(
            (self._errors[one].retry_after_s or 0.0 for one in self._usable_sources if one in self._errors), default=0.0
        )

    def final_error(self) -> TransferError:
        """Of all sources together."""
        return combine_errors(self._errors.values())


def combine_errors(errors: Iterable[TransferError]) -> TransferError:
    """The most telling failure, and the others behind it."""
    told = sorted(errors, key=lambda error: _KIND_PRIORITY.get(error.kind, 0))
    words = "; ".join(dict.fromkeys(error.detail for error in told))
    return TransferError(told[0].kind, words, told[0].redacted_url)


def retry(
    operation: Callable[[], T],
    retry_timeout_s: float,
    check_cancelled: Callable[[], None],
    only_kinds: Sequence[str] = (),
) -> T:
    """What `act` gives, asked again and again while its failure may pass; or while it is `only` one of these kinds."""
    patience = RetryTracker(retry_timeout_s, 1, time.monotonic())
    while True:
        check_cancelled()
        try:
            return operation()
        except TransferError as error:
            patience.record_failure(0, error)
            wait = patience.next_wait_s(time.monotonic())
            if wait is None or (only_kinds and error.kind not in only_kinds):
                raise
        cancellable_sleep(wait, check_cancelled)


def cancellable_sleep(duration_s: float, check_cancelled: Callable[[], None]) -> None:
    """Wait, but ask all the while whether to stop."""
    until = time.monotonic() + duration_s
    while time.monotonic() < until:
        check_cancelled()
        time.sleep(max(0.0, min(_CANCEL_POLL_INTERVAL_S, until - time.monotonic())))
