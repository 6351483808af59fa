"""Bringing events home: journals of agents, and what the engine sees from outside.

Needs no lease: an event is kept once, however often it is brought, so a view may collect too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from packtrain.engines.api import AttemptUpdate
from packtrain.events import Event, JournalReader, kinds
from packtrain.plan import RunFolder
from packtrain.state import RunState
from packtrain.store import Store

_ENGINE_LOG_EMITTER = "engine-log"  # the emitter of what an engine's own log tells; seq is the place in that log
_KIND_BY_STATUS = {
    "started": kinds.EXECUTION_STARTED,
    "interrupted": kinds.EXECUTION_INTERRUPTED,
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
        writes_journals: bool = True,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._run, self._folder, self._shares_folder = store, run, folder, shares_folder
        self._writes_journals, self._clock, self._monotonic = writes_journals, clock, monotonic
        self._cursors = store.cursors(run)

    def collect(self, state: RunState, updates: Sequence[AttemptUpdate]) -> None:
        """Journals are read after the engine was asked: of a gone attempt nothing is missed."""
        events, moved = self._read_journals(self._attempts_with_journals(state, updates))
        events += [event for sighting in updates for event in self._events_from_update(sighting)]
        glimpses = {(self._run, s.attempt_id): s.progress for s in updates if s.progress}
        if events or moved or glimpses:
            cursors = {(self._run, path): offset for path, offset in moved.items()}
            self._store.append(events, cursors=cursors, progress=glimpses)
            self._cursors.update(moved)
            state.update_progress({decision: glimpse for (_, decision), glimpse in glimpses.items()}, self._clock())

    def _attempts_with_journals(self, state: RunState, updates: Sequence[AttemptUpdate]) -> set[tuple[str, str]]:
        if not self._writes_journals:
            return set()
        if not self._shares_folder:
            return {(s.job_id, s.attempt_id) for s in updates if s.status == "gone"}
        living = {(job.id, a.attempt_id) for job in state.jobs.values() for a in job.live_executions}
        return living | {(s.job_id, s.attempt_id) for s in updates}

    def _read_journals(self, attempts: Iterable[tuple[str, str]]) -> tuple[list[Event], dict[str, int]]:
        events: list[Event] = []
        moved: dict[str, int] = {}
        for job, decision in sorted(attempts):
            path = self._folder.attempt_folder(job, decision).journal
            reader = JournalReader(path, self._cursors.get(str(path), 0))
            events += reader.read()
            if reader.offset != self._cursors.get(str(path), 0):
                moved[str(path)] = reader.offset
        return events, moved

    def _events_from_update(self, update: AttemptUpdate) -> Iterator[Event]:
        yield from (event for event in update.agent_events if event.run == self._run)
        if update.status == "gone":
            data: dict[str, object] = {
                "exit_code": update.exit_code,
                "detail": update.detail,
                "kind": update.failure_kind,
            }
            yield self._make_event(update, f"engine-{update.attempt_id}", 1, kinds.ATTEMPT_GONE, data)
        elif update.status in _KIND_BY_STATUS and update.seq:
            yield self._make_event(
                update, _ENGINE_LOG_EMITTER, update.seq, _KIND_BY_STATUS[update.status], _update_data(update)
            )

    def _make_event(self, update: AttemptUpdate, emitter: str, seq: int, kind: str, data: dict[str, object]) -> Event:
        wall = update.occurred_at or self._clock()
        more = {"attempt": update.attempt_id, **data}
        return Event(self._run, update.job_id, emitter, seq, kind, wall, self._monotonic(), more)


def _update_data(update: AttemptUpdate) -> dict[str, object]:
    """What there is to say, without what is empty."""
    code, subcode = update.hold_code
    data: dict[str, object] = {
        "execution": update.execution,
        "native": update.native_id,
        "site": update.site,
        "host": update.host,
        "detail": update.detail,
        "kind": update.failure_kind,
        "action": update.hold_action,
        "code": code,
        "subcode": subcode,
        "emitters": list(update.emitters),
        "direction": update.transfer_direction,
        "what": update.transfer_state,
    }
    return {name: value for name, value in data.items() if value}
