"""Emit the progress of a stage, at most twice a second."""

from __future__ import annotations

import time
from typing import Callable

from packtrain.events import Journal, kinds

_MIN_INTERVAL_S = 0.5


class StageProgress:
    """Count over all parts of a stage (files, archives), of which one is in progress at a time.

    Args:
        journal: Receives the events.
        stage: Name of the stage.
        total: Sum over all parts, or None if it is unknown.
        unit: Unit of the amounts.
    """

    def __init__(self, journal: Journal, stage: str, total: int | None, unit: str = "bytes") -> None:
        self._journal, self._stage, self._total, self._unit = journal, stage, total, unit
        self._finished_amount = 0
        self._emitted_at = float("-inf")

    def start_part(self, text: str) -> Callable[[int, int | None], None]:
        """Return the function that a transfer calls with (done, total) of its own part."""

        def report(done: int, total: int | None) -> None:
            stage_total = self._total if self._total is not None else total
            self._emit(self._finished_amount + done, stage_total, text)

        return report

    def finish_part(self, amount: int) -> None:
        self._finished_amount += amount

    def finish(self) -> None:
        """Emit the final progress of the stage, regardless of the interval."""
        self._emitted_at = float("-inf")
        self._emit(self._finished_amount, self._finished_amount, "")

    def _emit(self, done: int, total: int | None, text: str) -> None:
        now = time.monotonic()
        if now - self._emitted_at >= _MIN_INTERVAL_S:
            self._emitted_at = now
            self._journal.emit(kinds.PROGRESS, stage=self._stage, done=done, total=total, unit=self._unit, text=text)
