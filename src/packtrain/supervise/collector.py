"""The collector stores the events of agents and of the engine.

It needs no lease. An event is stored once, no matter how often it is collected, so a view may collect, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from packtrain.engines.api import AttemptUpdate
from packtrain.events import Event, JournalReader, kinds
from packtrain.plan import RunFolder
from packtrain.state import RunState
from packtrain.store import Store

_ENGINE_LOG_EMITTER = "engine-log"  # emitter of events from the engine's log; their seq is the position in that log
_KIND_BY_STATUS = {
    "started": kinds.EXECUTION_STARTED,
    "interrupted": kinds.EXECUTION_INTERRUPTED,
    "held": kinds.ATTEMPT_HELD,
    "released": kinds.ATTEMPT_RELEASED,
    "transfer": kinds.ATTEMPT_TRANSFER,
}


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
        progress = {(self._run, update.attempt_id): update.progress for update in updates if update.progress}
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
            return {(update.job_id, update.attempt_id) for update in updates if update.status == "gone"}
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
        yield from (event for event in update.agent_events if event.run == self._run)
        if update.status == "gone":
            data: dict[str, object] = {
                "exit_code": update.exit_code,
                "detail": update.detail,
                "kind": update.failure_kind,
            }
            yield self._make_event(update, f"engine-{update.attempt_id}", 1, kinds.ATTEMPT_GONE, data)
        elif update.status in _KIND_BY_STATUS and update.seq:
            kind = _KIND_BY_STATUS[update.status]
            yield self._make_event(update, _ENGINE_LOG_EMITTER, update.seq, kind, _update_data(update))

    def _make_event(self, update: AttemptUpdate, emitter: str, seq: int, kind: str, data: dict[str, object]) -> Event:
        wall = update.occurred_at or self._clock()
        event_data = {"attempt": update.attempt_id, **data}
        return Event(self._run, update.job_id, emitter, seq, kind, wall, self._monotonic(), event_data)


def _update_data(update: AttemptUpdate) -> dict[str, object]:
    """Return the event data of an update, without empty values."""
    code, subcode = update.hold_code
    data: dict[str, object] = {
        "execution": update.execution,
        "native_id": update.native_id,
        "site": update.site,
        "host": update.host,
        "detail": update.detail,
        "kind": update.failure_kind,
        "action": update.hold_action,
        "code": code,
        "subcode": subcode,
        "emitters": list(update.emitters),
        "direction": update.transfer_direction,
        "phase": update.transfer_state,
    }
    return {name: value for name, value in data.items() if value}
