"""A store in memory, for one process and one thread: what a simulated run needs, and nothing that outlives it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from packtrain.errors import LeaseLostError, RefusedError
from packtrain.events import Event
from packtrain.state.site_history import Visit
from packtrain.store.api import Cursor, Lease, Stored


class MemoryStore:
    """`keep=False`: an event that was read is let go, for runs of a hundred thousand jobs with one reader. Then events
    that are told twice are read twice, and glimpses are not kept."""

    def __init__(self, clock: Callable[[], float], keep: bool = True) -> None:
        self._clock, self._keep = clock, keep
        self._rows: defaultdict[str, list[Stored]] = defaultdict(list)
        self._known: set[tuple[str, str, str, int]] = set()
        self._last = 0
        self._cursors: dict[Cursor, int] = {}
        self._glimpses: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        self._leases: dict[str, Lease] = {}

    def append(
        self,
        events: Iterable[Event],
        lease: Lease | None = None,
        cursors: Mapping[Cursor, int] | None = None,
        glimpses: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
    ) -> None:
        if lease:
            self._check(lease)
        now = self._clock()
        for event in events:
            self._add(event, now)
        for cursor, offset in (cursors or {}).items():
            self._cursors[cursor] = max(offset, self._cursors.get(cursor, 0))
        for (run, decision), glimpse in (glimpses or {}).items() if self._keep else ():
            self._glimpses[run][decision] = glimpse

    def _add(self, event: Event, now: float) -> None:
        if self._keep:
            if event.key in self._known:
                return
            self._known.add(event.key)
        self._last += 1
        self._rows[event.run].append(Stored(self._last, now, event))

    def events(self, run: str, after: int = 0, kind: str | None = None) -> Sequence[Stored]:
        rows = self._rows[run]
        found = rows[bisect_right(rows, after, key=lambda row: row.id) :]
        if not self._keep:
            self._rows[run] = []
        return found if kind is None else [row for row in found if row.event.kind == kind]

    def glimpses(self, run: str) -> Mapping[str, Mapping[str, Any]]:
        return dict(self._glimpses[run])

    def note(self, visits: Iterable[Visit]) -> None:
        """No run follows."""

    def cursors(self, run: str) -> dict[str, int]:
        return {path: offset for (known, path), offset in self._cursors.items() if known == run}

    # Leases

    def lease(self, run: str) -> Lease | None:
        return self._leases.get(run)

    def acquire(
        self, run: str, holder: str, host: str, pid: int, ttl: float, is_alive: Callable[[Lease], bool]
    ) -> Lease:
        known = self._leases.get(run)
        if known and not known.released and known.expires > self._clock() and is_alive(known):
            raise RefusedError(f"the run {run} already has a supervisor (process {known.pid} on {known.host})")
        self._leases[run] = Lease(run, known.epoch + 1 if known else 1, holder, host, pid, self._clock() + ttl)
        return self._leases[run]

    def renew(self, lease: Lease, ttl: float) -> None:
        self._check(lease)
        self._leases[lease.run] = replace(lease, expires=self._clock() + ttl)

    def release(self, lease: Lease) -> None:
        if self._leases.get(lease.run, lease).epoch == lease.epoch:
            self._leases[lease.run] = replace(lease, released=True)

    def _check(self, lease: Lease) -> None:
        known = self._leases.get(lease.run)
        if known is None or known.epoch != lease.epoch:
            raise LeaseLostError(f"another supervisor has taken over the run {lease.run}; this one stops")
