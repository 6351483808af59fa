"""Bringing events home: journals of agents, and what the engine sees from outside.

Needs no lease: an event is kept once, however often it is brought, so a view may collect too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from packtrain.engines.api import Sighting
from packtrain.events import Event, JournalReader, kinds
from packtrain.plan import RunFolder
from packtrain.state import RunState
from packtrain.store import Store

_LOG = "engine-log"  # the emitter of what an engine's own log tells; seq is the place in that log
_KINDS = {
    "placed": kinds.ATTEMPT_PLACED,
    "stopped": kinds.ATTEMPT_STOPPED,
    "held": kinds.ATTEMPT_HELD,
    "released": kinds.ATTEMPT_RELEASED,
    "transfer": kinds.ATTEMPT_TRANSFER,
}


class Collector:
    """`shares_folder`: agents write their journals into the run's folder; else they come home when an attempt ends."""

    def __init__(
        self,
        store: Store,
        run: str,
        folder: RunFolder,
        shares_folder: bool = True,
        journals: bool = True,
        clock: Callable[[], float] = time.time,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._run, self._folder, self._shares_folder = store, run, folder, shares_folder
        self._journals, self._clock, self._mono = journals, clock, mono
        self._cursors = store.cursors(run)

    def collect(self, state: RunState, sightings: Sequence[Sighting]) -> None:
        """Journals are read after the engine was asked: of a gone attempt nothing is missed."""
        events, moved = self._read(self._speaking(state, sightings))
        events += [event for sighting in sightings for event in self._told(sighting)]
        glimpses = {(self._run, s.decision): s.glimpse for s in sightings if s.glimpse}
        if events or moved or glimpses:
            cursors = {(self._run, path): offset for path, offset in moved.items()}
            self._store.append(events, cursors=cursors, glimpses=glimpses)
            self._cursors.update(moved)
            state.see({decision: glimpse for (_, decision), glimpse in glimpses.items()}, self._clock())

    def _speaking(self, state: RunState, sightings: Sequence[Sighting]) -> set[tuple[str, str]]:
        if not self._journals:
            return set()
        if not self._shares_folder:
            return {(s.job, s.decision) for s in sightings if s.status == "gone"}
        living = {(job.id, a.decision) for job in state.jobs.values() for a in job.live}
        return living | {(s.job, s.decision) for s in sightings}

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

    def _told(self, sighting: Sighting) -> Iterator[Event]:
        yield from (event for event in sighting.events if event.run == self._run)
        if sighting.status == "gone":
            data: dict[str, object] = {
                "exit_code": sighting.exit_code,
                "detail": sighting.detail,
                "kind": sighting.kind,
            }
            yield self._event(sighting, f"engine-{sighting.decision}", 1, kinds.ATTEMPT_GONE, data)
        elif sighting.status in _KINDS and sighting.serial:
            yield self._event(sighting, _LOG, sighting.serial, _KINDS[sighting.status], _about(sighting))

    def _event(self, sighting: Sighting, emitter: str, seq: int, kind: str, data: dict[str, object]) -> Event:
        wall = sighting.when or self._clock()
        more = {"decision": sighting.decision, **data}
        return Event(self._run, sighting.job, emitter, seq, kind, wall, self._mono(), more)


def _about(sighting: Sighting) -> dict[str, object]:
    """What there is to say, without what is empty."""
    code, subcode = sighting.code
    data: dict[str, object] = {
        "start": sighting.start,
        "native": sighting.native,
        "site": sighting.site,
        "host": sighting.host,
        "detail": sighting.detail,
        "kind": sighting.kind,
        "action": sighting.action,
        "code": code,
        "subcode": subcode,
        "emitters": list(sighting.emitters),
        "direction": sighting.direction,
        "what": sighting.what,
    }
    return {name: value for name, value in data.items() if value}
