"""Follows a run: new rows only, and only when something was written."""

from __future__ import annotations

from packtrain.events import Event
from packtrain.state import RunState
from packtrain.store import SqliteStore


class Feed:
    def __init__(self, store: SqliteStore, run: str) -> None:
        self._store, self._seen, self._version = store, 0, -1
        self.state = RunState(run)

    def poll(self) -> list[Event]:
        """The events since the last look; the state has them already."""
        version = self._store.version()
        if version == self._version:
            return []
        self._version = version
        new = self._store.events(self.state.run, self._seen)
        for stored in new:
            self.state.apply(stored.event, stored.arrived)
            self._seen = stored.id
        self.state.see(self._store.glimpses(self.state.run))
        return [stored.event for stored in new]
