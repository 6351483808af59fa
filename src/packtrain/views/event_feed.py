"""A feed of the new events of a run. The only view that reads the store."""

from __future__ import annotations

from packtrain.events import Event
from packtrain.state import RunState
from packtrain.store import SqliteStore


class EventFeed:
    """Reads the new events of a run and keeps its state up to date."""

    def __init__(self, store: SqliteStore, run_id: str) -> None:
        self._store, self._last_event_id, self._store_version = store, 0, -1
        self.state = RunState(run_id)

    def poll(self) -> list[Event]:
        """Return the events since the last call. They are already applied to the state.

        If the store has not been written since, no row is read.
        """
        version = self._store.data_version()
        if version == self._store_version:
            return []
        self._store_version = version
        return self.read()

    def read(self) -> list[Event]:
        """Do the same as `poll`, also after this process itself wrote to the store, which `poll` does not notice."""
        new_events = self._store.events(self.state.run, self._last_event_id)
        for stored in new_events:
            self.state.apply(stored.event, stored.received_at)
            self._last_event_id = stored.id
        self.state.update_progress(self._store.progress(self.state.run))
        return [stored.event for stored in new_events]
