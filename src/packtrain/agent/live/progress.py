"""How far a stage has come, told at most twice a second."""

from __future__ import annotations

import time
from typing import Callable

from packtrain.events import Journal, kinds

_PAUSE_S = 0.5


class Progress:
    """Counts over all parts of a stage (files, archives); one part is under way at a time."""

    def __init__(self, journal: Journal, stage: str, total: int | None, unit: str = "bytes") -> None:
        self._journal, self._stage, self._total, self._unit = journal, stage, total, unit
        self._finished = 0
        self._told_at = float("-inf")

    def part(self, text: str) -> Callable[[int, int | None], None]:
        """What a transfer calls with (done, total) of its own part."""

        def tell(done: int, total: int | None) -> None:
            known = self._total if self._total is not None else total
            self._tell(self._finished + done, known, text)

        return tell

    def finish_part(self, amount: int) -> None:
        self._finished += amount

    def finish(self) -> None:
        """The last word of the stage, whatever the pause."""
        self._told_at = float("-inf")
        self._tell(self._finished, self._finished, "")

    def _tell(self, done: int, total: int | None, text: str) -> None:
        now = time.monotonic()
        if now - self._told_at >= _PAUSE_S:
            self._told_at = now
            self._journal.emit(kinds.PROGRESS, stage=self._stage, done=done, total=total, unit=self._unit, text=text)
