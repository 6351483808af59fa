"""When the events of a job reached the store, by its clock: whatever the clocks of machines say."""

from __future__ import annotations

from dataclasses import dataclass, field

from packtrain.events import Event, kinds
from packtrain.state.execution import Attempt

_FAR_KINDS = frozenset({kinds.METRIC, kinds.PROGRESS})
_BEGIN_KINDS = frozenset({kinds.ATTEMPT_PLACED, kinds.ATTEMPT_STARTED, kinds.STAGE_STARTED})
_END_KINDS = frozenset({kinds.ATTEMPT_ENDED, kinds.ATTEMPT_GONE, kinds.ATTEMPT_STOPPED, kinds.ATTEMPT_HELD})
_NOTHING: dict[str, float] = {}  # of what was shed; never changed


@dataclass(slots=True)
class Dates:
    """The first moment of each beginning and end, the last of each word about how far an attempt is."""

    _told: dict[str, float] = field(default_factory=dict)  # by agent or decision
    _begins: dict[str, float] = field(default_factory=dict)  # see `_begin_key`
    _ends: dict[str, float] = field(default_factory=dict)  # see `_end_key`

    def apply(self, event: Event, arrived: float) -> None:
        if event.kind in _FAR_KINDS:
            self._told[event.emitter] = max(arrived, self._told.get(event.emitter, arrived))
        if event.kind in _BEGIN_KINDS:
            key = _begin_key(event)
            self._begins[key] = min(arrived, self._begins.get(key, arrived))
        if event.kind in _END_KINDS and not _ended_nothing(event):
            key = _end_key(event)
            self._ends[key] = min(arrived, self._ends.get(key, arrived))

    def glimpsed(self, decision: str, now: float) -> None:
        self._told[decision] = now

    def told_at(self, who: str) -> float:
        """Of an agent, or of a decision by its engine; 0: never."""
        return self._told.get(who, 0.0)

    def of(self, attempt: Attempt, stage: str) -> dict[str, float]:
        """Those of an attempt that is in a stage; 0 where there is none yet."""
        began = self._begins.get(f"{attempt.decision}/{attempt.start}") or self._begins.get(attempt.emitter, 0.0)
        told = max(self.told_at(attempt.emitter), self.told_at(attempt.decision))
        in_stage = self._begins.get(f"{attempt.emitter}/{stage}", 0.0)
        return {"began_at": began, "stage_at": in_stage, "told_at": told, "over_at": self._over_at(attempt)}

    def _over_at(self, attempt: Attempt) -> float:
        if attempt.live:
            return 0.0
        ends, start = self._ends, f"{attempt.decision}/{attempt.start}"
        return ends.get(attempt.emitter) or ends.get(start) or ends.get(attempt.decision, 0.0)

    def shed(self) -> None:
        self._told = self._begins = self._ends = _NOTHING


def _ended_nothing(event: Event) -> bool:
    """A pool took back what it was still moving files for: there was no start yet."""
    return event.kind == kinds.ATTEMPT_STOPPED and not event.data.get("start")


def _begin_key(event: Event) -> str:
    """Of an agent, of its stage, or of a start."""
    if event.kind == kinds.ATTEMPT_PLACED:
        return f"{event.data['decision']}/{event.data.get('start')}"
    return event.emitter if event.kind == kinds.ATTEMPT_STARTED else f"{event.emitter}/{event.data.get('stage')}"


def _end_key(event: Event) -> str:
    """Of an agent, of a start, or of a whole decision."""
    if event.kind == kinds.ATTEMPT_ENDED:
        return event.emitter
    start = event.data.get("start") if event.kind != kinds.ATTEMPT_GONE else None
    return f"{event.data['decision']}/{start}" if start else str(event.data["decision"])
