"""When the events of a job reached the store, by its clock: whatever the clocks of machines say."""

from __future__ import annotations

from dataclasses import dataclass, field

from packtrain.events import Event, kinds
from packtrain.state.execution import Execution

_PROGRESS_KINDS = frozenset({kinds.METRIC, kinds.PROGRESS})
_START_KINDS = frozenset({kinds.EXECUTION_STARTED, kinds.AGENT_STARTED, kinds.STAGE_STARTED})
_END_KINDS = frozenset({kinds.AGENT_ENDED, kinds.ATTEMPT_GONE, kinds.EXECUTION_INTERRUPTED, kinds.ATTEMPT_HELD})
_EMPTY: dict[str, float] = {}  # of what was shed; never changed


@dataclass(slots=True)
class ArrivalTimes:
    """The first moment of each beginning and end, the last of each word about how far an attempt is."""

    _progress_at: dict[str, float] = field(default_factory=dict)  # by agent or decision
    _started_at: dict[str, float] = field(default_factory=dict)  # see `_begin_key`
    _ended_at: dict[str, float] = field(default_factory=dict)  # see `_end_key`

    def apply(self, event: Event, received_at: float) -> None:
        if event.kind in _PROGRESS_KINDS:
            self._progress_at[event.emitter] = max(received_at, self._progress_at.get(event.emitter, received_at))
        if event.kind in _START_KINDS:
            key = _start_key(event)
            self._started_at[key] = min(received_at, self._started_at.get(key, received_at))
        if event.kind in _END_KINDS and not _precedes_execution(event):
            key = _end_key(event)
            self._ended_at[key] = min(received_at, self._ended_at.get(key, received_at))

    def record_progress(self, attempt_id: str, now: float) -> None:
        self._progress_at[attempt_id] = now

    def progress_at(self, source_id: str) -> float:
        """Of an agent, or of a decision by its engine; 0: never."""
        return self._progress_at.get(source_id, 0.0)

    def times_of(self, execution: Execution, stage: str) -> dict[str, float]:
        """Those of an attempt that is in a stage; 0 where there is none yet."""
        began = self._started_at.get(f"{execution.attempt_id}/{execution.execution_number}") or self._started_at.get(
            execution.emitter, 0.0
        )
        told = max(self.progress_at(execution.emitter), self.progress_at(execution.attempt_id))
        in_stage = self._started_at.get(f"{execution.emitter}/{stage}", 0.0)
        return {"started_at": began, "stage_started_at": in_stage, "progress_at": told, "ended_at": self._end_time(execution)}

    def _end_time(self, execution: Execution) -> float:
        if execution.is_live:
            return 0.0
        ends, start = self._ended_at, f"{execution.attempt_id}/{execution.execution_number}"
        return ends.get(execution.emitter) or ends.get(start) or ends.get(execution.attempt_id, 0.0)

    def clear(self) -> None:
        self._progress_at = self._started_at = self._ended_at = _EMPTY


def _precedes_execution(event: Event) -> bool:
    """A pool took back what it was still moving files for: there was no start yet."""
    return event.kind == kinds.EXECUTION_INTERRUPTED and not event.data.get("execution")


def _start_key(event: Event) -> str:
    """Of an agent, of its stage, or of a start."""
    if event.kind == kinds.EXECUTION_STARTED:
        return f"{event.data['attempt']}/{event.data.get('execution')}"
    return event.emitter if event.kind == kinds.AGENT_STARTED else f"{event.emitter}/{event.data.get('stage')}"


def _end_key(event: Event) -> str:
    """Of an agent, of a start, or of a whole decision."""
    if event.kind == kinds.AGENT_ENDED:
        return event.emitter
    start = event.data.get("execution") if event.kind != kinds.ATTEMPT_GONE else None
    return f"{event.data['attempt']}/{start}" if start else str(event.data["attempt"])
