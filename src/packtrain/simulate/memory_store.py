"""A run store in memory, for the single thread of a simulated run."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from packtrain.errors import LeaseLostError, UnavailableError
from packtrain.events import Event
from packtrain.state.site_history import SiteObservation
from packtrain.store.api import JournalCursor, Lease, StoredEvent


class MemoryEventStore:
    """Implements `store.api.Store`.

    Args:
        clock: Returns the current time.
        keep_events: False drops events once they are read, for runs of a hundred thousand jobs with one reader; then
            duplicate events are read twice, and progress is not stored.
    """

    def __init__(self, clock: Callable[[], float], keep_events: bool = True) -> None:
        self._clock, self._keep_events = clock, keep_events
        self._rows: defaultdict[str, list[StoredEvent]] = defaultdict(list)
        self._seen_keys: set[tuple[str, str, str, int]] = set()
        self._last_id = 0
        self._cursors: dict[JournalCursor, int] = {}
        self._progress: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        self._leases: dict[str, Lease] = {}

    def append(
        self,
        events: Iterable[Event],
        lease: Lease | None = None,
        cursors: Mapping[JournalCursor, int] | None = None,
        progress: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
    ) -> None:
        if lease:
            self._check_lease(lease)
        now = self._clock()
        for event in events:
            self._add(event, now)
        for cursor, offset in (cursors or {}).items():
            self._cursors[cursor] = max(offset, self._cursors.get(cursor, 0))
        for (run, attempt), snapshot in (progress or {}).items() if self._keep_events else ():
            self._progress[run][attempt] = snapshot

    def _add(self, event: Event, now: float) -> None:
        if self._keep_events:
            if event.key in self._seen_keys:
                return
            self._seen_keys.add(event.key)
        self._last_id += 1
        self._rows[event.run].append(StoredEvent(self._last_id, now, event))

    def events(self, run: str, after_id: int = 0, kind: str | None = None) -> Sequence[StoredEvent]:
        rows = self._rows[run]
        new_rows = rows[bisect_right(rows, after_id, key=lambda row: row.id) :]
        if not self._keep_events:
            self._rows[run] = []
        return new_rows if kind is None else [row for row in new_rows if row.event.kind == kind]

    def progress(self, run: str) -> Mapping[str, Mapping[str, Any]]:
        return dict(self._progress[run])

    def add_observations(self, observations: Iterable[SiteObservation]) -> None:
        """Do nothing: no later run reads them."""

    def cursors(self, run: str) -> dict[str, int]:
        return {path: offset for (owner, path), offset in self._cursors.items() if owner == run}

    # Leases

    def get_lease(self, run: str) -> Lease | None:
        return self._leases.get(run)

    def acquire_lease(
        self, run: str, holder: str, host: str, pid: int, ttl_s: float, is_alive: Callable[[Lease], bool]
    ) -> Lease:
        current = self._leases.get(run)
        if current and not current.is_released and current.expires_at > self._clock() and is_alive(current):
            raise UnavailableError(f"the run {run} already has a supervisor (process {current.pid} on {current.host})")
        self._leases[run] = Lease(run, current.epoch + 1 if current else 1, holder, host, pid, self._clock() + ttl_s)
        return self._leases[run]

    def renew_lease(self, lease: Lease, ttl_s: float) -> None:
        self._check_lease(lease)
        self._leases[lease.run] = replace(lease, expires_at=self._clock() + ttl_s)

    def release_lease(self, lease: Lease) -> None:
        if self._leases.get(lease.run, lease).epoch == lease.epoch:
            self._leases[lease.run] = replace(lease, is_released=True)

    def _check_lease(self, lease: Lease) -> None:
        current = self._leases.get(lease.run)
        if current is None or current.epoch != lease.epoch:
            raise LeaseLostError(f"another supervisor has taken over the run {lease.run}; this one stops")
