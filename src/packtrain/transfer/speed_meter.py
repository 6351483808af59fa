"""Snapshots of a running engine, twice a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from packtrain.transfer.progress import SnapshotCallback, SourceRate, TransferSnapshot

if TYPE_CHECKING:
    from packtrain.transfer.engine.coordinator import FetchCoordinator

_SNAPSHOT_INTERVAL_S = 0.5


class SnapshotSampler:
    def __init__(self, coordinator: FetchCoordinator) -> None:
        self._coordinator, self._sampled_at = coordinator, time.monotonic()
        self._previous_bytes: dict[str, int] = {}

    def sample(self, on_snapshot: SnapshotCallback | None) -> None:
        now = time.monotonic()
        if on_snapshot is None or now - self._sampled_at < _SNAPSHOT_INTERVAL_S:
            return
        snapshot = self._take_snapshot(now)
        self._sampled_at = now
        on_snapshot(snapshot)

    def _take_snapshot(self, now: float) -> TransferSnapshot:
        engine, seconds = self._coordinator, now - self._sampled_at
        with engine.condition:
            rows = [
                SourceRate(
                    s.replica.label,
                    (s.received_bytes - self._previous_bytes.get(s.replica.label, 0)) / seconds,
                    s.connections,
                    s.is_backing_off(now),
                )
                for s in engine.sources.source_stats
            ]
            self._previous_bytes = {s.replica.label: s.received_bytes for s in engine.sources.source_stats}
            done, total = engine.stats.done_bytes, engine.identity.size if engine.identity else None
        return TransferSnapshot(
            done, total, sum(row.bytes_per_s for row in rows), tuple(rows), sum(row.connections for row in rows)
        )
