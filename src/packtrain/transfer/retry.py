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
FOR_GOOD = frozenset({"secret_missing", "token_refused", "certificate_refused", "unsupported"})
_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 15.0
_PAUSE_STEP_S = 0.1
# Which of several failures to report: the one that a person can do most about. That an object is
# missing counts only if all say so.
_MOST_TELLING_FIRST = (
    "secret_missing",
    "token_refused",
    "certificate_refused",
    "unsupported",
    "not_the_data",
    "digest_mismatch",
    "truncated",
    "service_unavailable",
    "network_unreachable",
    "host_unknown",
    "object_missing",
)
_RANK = {kind: rank for rank, kind in enumerate(_MOST_TELLING_FIRST)}


class Patience:
    def __init__(self, patience_s: float, sources: int, now: float) -> None:
        self._patience_s, self._since = patience_s, now
        self._asked: list[int] = list(range(sources))
        self._errors: dict[int, TransferError] = {}
        self._wait_s = _FIRST_WAIT_S

    def asked(self) -> Sequence[int]:
        """The sources that have not refused for good."""
        return tuple(self._asked)

    def failed(self, source: int, error: TransferError, *, passes: bool = False) -> None:
        """`passes`: a refusal that is not for good."""
        self._errors[source] = error
        if error.kind in FOR_GOOD and not passes:
            self._asked.remove(source)

    def progressed(self, when: float) -> None:
        """Something new has arrived: all begins anew, except that a refusal stays one."""
        if when > self._since:
            self._since, self._wait_s = when, _FIRST_WAIT_S

    def wait_s(self, now: float) -> float | None:
        """How long to wait before all are asked again; None: no longer."""
        left = self._patience_s - (now - self._since)
        if not self._asked or left <= 0:
            return None
        wait, self._wait_s = self._wait_s, min(2 * self._wait_s, _LONGEST_WAIT_S)
        return min(max(wait, self._left_alone_s()), left)

    def _left_alone_s(self) -> float:
        """What the servers ask for; the least, since all are asked again together."""
        return min((self._errors[one].retry_after_s or 0.0 for one in self._asked if one in self._errors), default=0.0)

    def verdict(self) -> TransferError:
        """Of all sources together."""
        return verdict_of(self._errors.values())


def verdict_of(errors: Iterable[TransferError]) -> TransferError:
    """The most telling failure, and the others behind it."""
    told = sorted(errors, key=lambda error: _RANK.get(error.kind, 0))
    words = "; ".join(dict.fromkeys(error.detail for error in told))
    return TransferError(told[0].kind, words, told[0].source)


def insisted(act: Callable[[], T], patience_s: float, stop: Callable[[], None], only: Sequence[str] = ()) -> T:
    """What `act` gives, asked again and again while its failure may pass; or while it is `only` one of these kinds."""
    patience = Patience(patience_s, 1, time.monotonic())
    while True:
        stop()
        try:
            return act()
        except TransferError as error:
            patience.failed(0, error)
            wait = patience.wait_s(time.monotonic())
            if wait is None or (only and error.kind not in only):
                raise
        pause(wait, stop)


def pause(seconds: float, stop: Callable[[], None]) -> None:
    """Wait, but ask all the while whether to stop."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        stop()
        time.sleep(max(0.0, min(_PAUSE_STEP_S, until - time.monotonic())))
