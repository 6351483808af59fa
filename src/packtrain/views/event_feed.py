"""Follows a run: new rows only, and only when something was written."""

from __future__ import annotations

from packtrain.events import Event
from packtrain.state import RunState
from packtrain.store import SqliteStore


class EventFeed:
    def __init__(self, store: SqliteStore, run_id: str) -> None:
        self._store, self._last_event_id, self._store_version = store, 0, -1
        self.state = RunState(run_id)

    def poll(self) -> list[Event]:
        """The events since the last look; the state has them already."""
        version = self._store.data_version()
        if version == self._store_version:
            return []
        self._store_version = version
        new = self._store.events(self.state.run, self._last_event_id)
        for stored in new:
            self.state.apply(stored.event, stored.received_at)
            self._last_event_id = stored.id
        self.state.update_progress(self._store.progress(self.state.run))
        return [stored.event for stored in new]
