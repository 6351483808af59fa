"""How much one answer of a place may be asked for. Pure.

Some servers, and some boxes on the way to them, let every answer fall silent after so many bytes. Each silence costs
the time it takes to notice; shorter answers cost nearly nothing.
"""

from __future__ import annotations

_ENOUGH = 32  # answers without a silence, after which more is asked for again
_ENOUGH_TIMES = 4  # as many after each silence that this led to
_ANY = 1 << 30


class Reach:
    def __init__(self) -> None:
        self.bytes: int | None = None  # no limit
        self._silent_after: int | None = None
        self._good, self._enough = 0, _ENOUGH

    def fell_silent(self, came: int) -> None:
        """An answer did, after so many bytes. One is an accident; two in a row are a habit."""
        if not came:
            return
        if self.bytes is not None:
            self._enough *= _ENOUGH_TIMES
        if self._silent_after is not None:
            self.bytes = min(came, self._silent_after)
        self._silent_after, self._good = came, 0

    def stops(self, came: int) -> None:
        """Several answers at once have stopped after the very same number of bytes: no slow network does that."""
        if self.bytes is None or came < self.bytes:
            self.bytes = self._silent_after = came

    def gave(self, came: int) -> None:
        """An answer brought all that it was asked for."""
        if self.bytes is None:
            if self._silent_after is not None and came > self._silent_after:
                self._silent_after = None
            return
        self._good += 1
        if self._good >= self._enough:
            self.bytes, self._good = (2 * self.bytes if self.bytes < _ANY else None), 0
