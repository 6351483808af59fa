"""How far a stage has come, told at most twice a second."""

from __future__ import annotations

import time
from typing import Callable

from packtrain.events import Journal, kinds

_MIN_INTERVAL_S = 0.5


class StageProgress:
    """Counts over all parts of a stage (files, archives); one part is under way at a time."""

    def __init__(self, journal: Journal, stage: str, total: int | None, unit: str = "bytes") -> None:
        self._journal, self._stage, self._total, self._unit = journal, stage, total, unit
        self._finished_amount = 0
        self._emitted_at = float("-inf")

    def start_part(self, text: str) -> Callable[[int, int | None], None]:
        """What a transfer calls with (done, total) of its own part."""

        def report(done: int, total: int | None) -> None:
            known = self._total if self._total is not None else total
            self._emit(self._finished_amount + done, known, text)

        return report

    def finish_part(self, amount: int) -> None:
        self._finished_amount += amount

    def finish(self) -> None:
        """The last word of the stage, whatever the pause."""
        self._emitted_at = float("-inf")
        self._emit(self._finished_amount, self._finished_amount, "")

    def _emit(self, done: int, total: int | None, text: str) -> None:
        now = time.monotonic()
        if now - self._emitted_at >= _MIN_INTERVAL_S:
            self._emitted_at = now
            self._journal.emit(kinds.PROGRESS, stage=self._stage, done=done, total=total, unit=self._unit, text=text)
