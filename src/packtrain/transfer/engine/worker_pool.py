"""Hires workers for an engine, waits for the whole, and tells whoever wants to know how it stands."""

from __future__ import annotations

import threading

from packtrain.transfer.engine.coordinator import FetchCoordinator
from packtrain.transfer.engine.worker import DownloadWorker
from packtrain.transfer.http.pool import connection_pool
from packtrain.transfer.http.tls_process import TLS_PROCESS
from packtrain.transfer.speed_meter import SnapshotSampler


def run(coordinator: FetchCoordinator) -> None:
    """All is on the shelf, or an exception says why not."""
    rates = SnapshotSampler(coordinator)
    try:
        with connection_pool():
            while _poll_once(coordinator, rates):
                coordinator.wait()
    finally:
        coordinator.close()
        TLS_PROCESS.release(coordinator)


def _poll_once(coordinator: FetchCoordinator, sampler: SnapshotSampler) -> bool:
    coordinator.request.check_cancelled()
    wanted = coordinator.poll()
    for _ in range(wanted or 0):
        threading.Thread(target=DownloadWorker(coordinator).run, name="fetch", daemon=True).start()
    if coordinator.identity is not None:
        TLS_PROCESS.enable_for(coordinator, coordinator.identity.size)
    coordinator.request.on_progress(
        coordinator.stats.done_bytes, coordinator.identity.size if coordinator.identity else None
    )
    sampler.sample(coordinator.request.on_snapshot)
    return wanted is not None
