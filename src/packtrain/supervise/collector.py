"""The collector stores the events of agents and of the engine.

It needs no lease. An event is stored once, no matter how often it is collected, so a view may collect, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from packtrain.engines.updates import (
    AgentEventsReceived,
    AttemptUpdate,
    ExecutionInterrupted,
    ExecutionStarted,
    Gone,
    Held,
    ProgressReported,
    Queued,
    Released,
    TransferChanged,
)
from packtrain.events import Event, JournalReader, kinds
from packtrain.plan import RunFolder
from packtrain.state import RunState
from packtrain.store import Store

_ENGINE_LOG_EMITTER = "engine-log"  # emitter of events from the engine's log; their seq is the position in that log
_KIND_BY_UPDATE: Mapping[type[AttemptUpdate], str] = {
    ExecutionStarted: kinds.EXECUTION_STARTED,
    ExecutionInterrupted: kinds.EXECUTION_INTERRUPTED,
    Held: kinds.ATTEMPT_HELD,
    Released: kinds.ATTEMPT_RELEASED,
    TransferChanged: kinds.ATTEMPT_TRANSFER,
}
# The data of these events has the same names as the fields of updates, except for:
_KEY_BY_FIELD = {"failure_kind": "kind", "state": "phase"}
_IDENTITY_FIELDS = ("attempt_id", "job_id", "seq", "occurred_at")


class Collector:
    """Collects the events of one run.

    Args:
        store: The store to write to.
        run: The run id.
        folder: The run folder, where the journals are.
        shares_folder: Agents write their journals into the run folder. If not, a journal arrives when its attempt ends.
        writes_journals: Agents write journals. If not, all their events come through the engine.
        clock: Returns the Unix time.
        monotonic: Returns the monotonic time in seconds.
    """

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
        """Store the engine's updates and the new entries of the journals.

        Journals are read after the engine was polled, so that nothing of a gone attempt is missed.

        Args:
            state: The state of the run. Only its live progress is updated here.
            updates: What the engine reported.
        """
        events, new_cursors = self._read_journals(self._attempts_with_journals(state, updates))
        events += [event for update in updates for event in self._events_from_update(update)]
        progress = {(self._run, u.attempt_id): snapshot for u in updates if (snapshot := _progress_snapshot(u))}
        if events or new_cursors or progress:
            cursors = {(self._run, path): offset for path, offset in new_cursors.items()}
            self._store.append(events, cursors=cursors, progress=progress)
            self._cursors.update(new_cursors)
            state.update_progress({attempt_id: data for (_, attempt_id), data in progress.items()}, self._clock())

    def _attempts_with_journals(self, state: RunState, updates: Sequence[AttemptUpdate]) -> set[tuple[str, str]]:
        """Return the job and attempt ids whose journals may have new entries."""
        if not self._writes_journals:
            return set()
        if not self._shares_folder:
            return {(update.job_id, update.attempt_id) for update in updates if isinstance(update, Gone)}
        live = {(job.id, execution.attempt_id) for job in state.jobs.values() for execution in job.live_executions}
        return live | {(update.job_id, update.attempt_id) for update in updates}

    def _read_journals(self, attempts: Iterable[tuple[str, str]]) -> tuple[list[Event], dict[str, int]]:
        """Return new events, and the new read positions by path."""
        events: list[Event] = []
        new_cursors: dict[str, int] = {}
        for job_id, attempt_id in sorted(attempts):
            path = self._folder.attempt_folder(job_id, attempt_id).journal
            reader = JournalReader(path, self._cursors.get(str(path), 0))
            events += reader.read()
            if reader.offset != self._cursors.get(str(path), 0):
                new_cursors[str(path)] = reader.offset
        return events, new_cursors

    def _events_from_update(self, update: AttemptUpdate) -> Iterator[Event]:
        if isinstance(update, AgentEventsReceived):
            yield from (event for event in update.events if event.run == self._run)
        elif isinstance(update, Gone):
            data = {"exit_code": update.exit_code, "detail": update.detail, "kind": update.failure_kind}
            yield self._make_event(update, f"engine-{update.attempt_id}", 1, kinds.ATTEMPT_GONE, data)
        elif update.seq and (kind := _KIND_BY_UPDATE.get(type(update))):
            yield self._make_event(update, _ENGINE_LOG_EMITTER, update.seq, kind, _log_event_data(update))

    def _make_event(self, update: AttemptUpdate, emitter: str, seq: int, kind: str, data: dict[str, Any]) -> Event:
        wall = update.occurred_at or self._clock()
        event_data = {"attempt": update.attempt_id, **data}
        return Event(self._run, update.job_id, emitter, seq, kind, wall, self._monotonic(), event_data)


def _progress_snapshot(update: AttemptUpdate) -> dict[str, Any] | None:
    """Return the snapshot that replaces the one before, or None if the update has none."""
    if isinstance(update, ProgressReported):
        return {"attempt": update.attempt_id, **update.progress}
    if isinstance(update, Queued) and update.reason is not None:
        return {"attempt": update.attempt_id, "wait_reason": update.reason}
    return None


def _log_event_data(update: AttemptUpdate) -> dict[str, Any]:
    """Return the data of the event for an update from the engine's log, without empty values."""
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(update).items()}
    return {_KEY_BY_FIELD.get(n, n): value for n, value in values.items() if value and n not in _IDENTITY_FIELDS}
