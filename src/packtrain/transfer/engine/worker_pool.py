"""The main loop of a download: start workers, wait for completion, report progress."""

from __future__ import annotations

import threading
import time

from packtrain.transfer.engine.coordinator import FetchCoordinator
from packtrain.transfer.engine.worker import DownloadWorker
from packtrain.transfer.progress import SnapshotCallback, SourceRate, TransferSnapshot
from packtrain.transfer.registry import keep_connections

_SNAPSHOT_INTERVAL_S = 0.5


def run(coordinator: FetchCoordinator) -> None:
    """Run the download until all blocks are in the block sink, or raise what prevented that."""
    sampler = _SnapshotSampler(coordinator)
    with keep_connections():
        try:
            while _poll_once(coordinator, sampler):
                coordinator.wait()
        finally:
            coordinator.close()


def _poll_once(coordinator: FetchCoordinator, sampler: _SnapshotSampler) -> bool:
    """Start missing workers and report progress; return whether the download is incomplete."""
    coordinator.request.check_cancelled()
    n_missing_workers = coordinator.poll()
    for _ in range(n_missing_workers or 0):
        threading.Thread(target=DownloadWorker(coordinator).run, name="fetch-worker", daemon=True).start()
    size = coordinator.identity.size if coordinator.identity else None
    coordinator.request.on_progress(coordinator.stats.done_bytes, size)
    sampler.sample(coordinator.request.on_snapshot)
    return n_missing_workers is not None


class _SnapshotSampler:
    """Takes a snapshot of a running download twice a second."""

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
        coordinator, duration_s = self._coordinator, now - self._sampled_at
        with coordinator.condition:
            sources = coordinator.sources.source_stats
            rates = [
                SourceRate(
                    source.replica.label,
                    (source.received_bytes - self._previous_bytes.get(source.replica.label, 0)) / duration_s,
                    source.connections,
                    source.is_backing_off(now),
                )
                for source in sources
            ]
            self._previous_bytes = {source.replica.label: source.received_bytes for source in sources}
            done, total = coordinator.stats.done_bytes, coordinator.identity.size if coordinator.identity else None
        return TransferSnapshot(
            done, total, sum(rate.bytes_per_s for rate in rates), tuple(rates), sum(rate.connections for rate in rates)
        )
