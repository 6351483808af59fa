"""The times at which the events of a job reached the store.

The store's clock is the only one that these times use, because the clocks of workers cannot be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from packtrain.events import Event, kinds
from packtrain.state.execution import Execution

_PROGRESS_KINDS = frozenset({kinds.METRIC, kinds.PROGRESS})
_START_KINDS = frozenset({kinds.EXECUTION_STARTED, kinds.AGENT_STARTED, kinds.STAGE_STARTED})
_END_KINDS = frozenset({kinds.AGENT_ENDED, kinds.ATTEMPT_GONE, kinds.EXECUTION_INTERRUPTED, kinds.ATTEMPT_HELD})


@dataclass(slots=True)
class ArrivalTimes:
    """When the events of one job arrived: the first time of each start and end, the last of each progress report."""

    _progress_at: dict[str, float] = field(default_factory=dict)  # by emitter or attempt id
    _started_at: dict[str, float] = field(default_factory=dict)  # by `_start_key`
    _ended_at: dict[str, float] = field(default_factory=dict)  # by `_end_key`

    def apply(self, event: Event, received_at: float) -> None:
        """Record when an event arrived."""
        if event.kind in _PROGRESS_KINDS:
            self._progress_at[event.emitter] = max(received_at, self._progress_at.get(event.emitter, received_at))
        if event.kind in _START_KINDS:
            key = _start_key(event)
            self._started_at[key] = min(received_at, self._started_at.get(key, received_at))
        if event.kind in _END_KINDS and not _precedes_execution(event):
            key = _end_key(event)
            self._ended_at[key] = min(received_at, self._ended_at.get(key, received_at))

    def record_progress(self, attempt_id: str, now: float) -> None:
        """Record that the engine reported progress of an attempt."""
        self._progress_at[attempt_id] = now

    def progress_at(self, source_id: str) -> float:
        """Return when an agent or an attempt last reported progress, 0 if never.

        Args:
            source_id: The emitter id of an agent, or the id of an attempt whose engine reports progress.
        """
        return self._progress_at.get(source_id, 0.0)

    def times_of(self, execution: Execution, stage: str) -> dict[str, Any]:
        """Return the time fields of an execution that is in the given stage; 0 if not known."""
        start_key = f"{execution.attempt_id}/{execution.execution_number}"
        return {
            "started_at": self._started_at.get(start_key) or self._started_at.get(execution.emitter, 0.0),
            "stage_started_at": self._started_at.get(f"{execution.emitter}/{stage}", 0.0),
            "progress_at": max(self.progress_at(execution.emitter), self.progress_at(execution.attempt_id)),
            "ended_at": self._end_time(execution),
        }

    def _end_time(self, execution: Execution) -> float:
        if execution.is_live:
            return 0.0
        ends, start_key = self._ended_at, f"{execution.attempt_id}/{execution.execution_number}"
        return ends.get(execution.emitter) or ends.get(start_key) or ends.get(execution.attempt_id, 0.0)


def _precedes_execution(event: Event) -> bool:
    """Return whether the pool interrupted the attempt while it transferred inputs, before the execution started."""
    return event.kind == kinds.EXECUTION_INTERRUPTED and not event.data.get("execution")


def _start_key(event: Event) -> str:
    """Return the key of an agent, of a stage of an agent, or of an execution in the pool."""
    if event.kind == kinds.EXECUTION_STARTED:
        return f"{event.data['attempt']}/{event.data.get('execution')}"
    return event.emitter if event.kind == kinds.AGENT_STARTED else f"{event.emitter}/{event.data.get('stage')}"


def _end_key(event: Event) -> str:
    """Return the key of an agent, of an execution in the pool, or of an attempt."""
    if event.kind == kinds.AGENT_ENDED:
        return event.emitter
    number = event.data.get("execution") if event.kind != kinds.ATTEMPT_GONE else None
    return f"{event.data['attempt']}/{number}" if number else str(event.data["attempt"])
