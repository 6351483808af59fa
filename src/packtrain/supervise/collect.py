"""Bringing events home: journals of agents, and what the engine sees from outside.

Needs no lease: an event is kept once, however often it is brought, so a view may collect too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from packtrain.engines.api import Sighting
from packtrain.events import Event, JournalReader, kinds
from packtrain.plan import RunFolder
from packtrain.state import RunState
from packtrain.store import SqliteStore


class Collector:
    def __init__(self, store: SqliteStore, run: str, folder: RunFolder) -> None:
        self._store, self._run, self._folder = store, run, folder
        self._cursors = store.cursors(run)

    def collect(self, state: RunState, sightings: Sequence[Sighting]) -> None:
        """Journals are read after the engine was asked: of a gone attempt nothing is missed."""
        speaking = {(job.id, a.decision) for job in state.jobs.values() for a in job.live}
        speaking |= {(s.job, s.decision) for s in sightings}
        events, moved = self._read(speaking)
        events += [self._gone(s) for s in sightings if s.status == "gone"]
        if events or moved:
            self._store.append(events, cursors={(self._run, path): offset for path, offset in moved.items()})
            self._cursors.update(moved)

    def _read(self, speaking: Iterable[tuple[str, str]]) -> tuple[list[Event], dict[str, int]]:
        events: list[Event] = []
        moved: dict[str, int] = {}
        for job, decision in sorted(speaking):
            path = self._folder.attempt(job, decision).journal
            reader = JournalReader(path, self._cursors.get(str(path), 0))
            events += reader.read()
            if reader.offset != self._cursors.get(str(path), 0):
                moved[str(path)] = reader.offset
        return events, moved

    def _gone(self, sighting: Sighting) -> Event:
        data = {"decision": sighting.decision, "exit_code": sighting.exit_code, "detail": sighting.detail}
        emitter = f"engine-{sighting.decision}"
        return Event(self._run, sighting.job, emitter, 1, kinds.ATTEMPT_GONE, time.time(), time.monotonic(), data)
