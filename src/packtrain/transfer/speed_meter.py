"""Snapshots of a running engine, twice a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from packtrain.transfer.progress import Observe, Snapshot, SourceRate

if TYPE_CHECKING:
    from packtrain.transfer.engine.coordinator import Engine

_EVERY_S = 0.5


class Rates:
    def __init__(self, engine: Engine) -> None:
        self._engine, self._at = engine, time.monotonic()
        self._before: dict[str, int] = {}

    def observe(self, observe: Observe | None) -> None:
        now = time.monotonic()
        if observe is None or now - self._at < _EVERY_S:
            return
        snapshot = self._snapshot(now)
        self._at = now
        observe(snapshot)

    def _snapshot(self, now: float) -> Snapshot:
        engine, seconds = self._engine, now - self._at
        with engine.changed:
            rows = [
                SourceRate(
                    s.place.label,
                    (s.bytes - self._before.get(s.place.label, 0)) / seconds,
                    s.connections,
                    s.resting(now),
                )
                for s in engine.sources.standings
            ]
            self._before = {s.place.label: s.bytes for s in engine.sources.standings}
            done, total = engine.counts.bytes, engine.known.size if engine.known else None
        return Snapshot(done, total, sum(row.rate for row in rows), tuple(rows), sum(row.connections for row in rows))
