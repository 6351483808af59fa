"""How much one answer of a place may be asked for. Pure.

Some servers, and some boxes on the way to them, let every answer fall silent after so many bytes. Each silence costs
the time it takes to notice; shorter answers cost nearly nothing.
"""

from __future__ import annotations

_RAISE_AFTER_RESPONSES = 32  # answers without a silence, after which more is asked for again
_RAISE_AFTER_FACTOR = 4  # as many after each silence that this led to
_UNLIMITED_BYTES = 1 << 30


class ResponseLimit:
    def __init__(self) -> None:
        self.max_bytes: int | None = None  # no limit
        self._last_stall_bytes: int | None = None
        self._n_complete, self._n_complete_to_raise = 0, _RAISE_AFTER_RESPONSES

    def record_stall(self, received_bytes: int) -> None:
        """An answer did, after so many bytes. One is an accident; two in a row are a habit."""
        if not received_bytes:
            return
        if self.max_bytes is not None:
            self._n_complete_to_raise *= _RAISE_AFTER_FACTOR
        if self._last_stall_bytes is not None:
            self.max_bytes = min(received_bytes, self._last_stall_bytes)
        self._last_stall_bytes, self._n_complete = received_bytes, 0

    def record_cutoff(self, received_bytes: int) -> None:
        """Several answers at once have stopped after the very same number of bytes: no slow network does that."""
        if self.max_bytes is None or received_bytes < self.max_bytes:
            self.max_bytes = self._last_stall_bytes = received_bytes

    def record_complete(self, received_bytes: int) -> None:
        """An answer brought all that it was asked for."""
        if self.max_bytes is None:
            if self._last_stall_bytes is not None and received_bytes > self._last_stall_bytes:
                self._last_stall_bytes = None
            return
        self._n_complete += 1
        if self._n_complete >= self._n_complete_to_raise:
            self.max_bytes, self._n_complete = (2 * self.max_bytes if self.max_bytes < _UNLIMITED_BYTES else None), 0
