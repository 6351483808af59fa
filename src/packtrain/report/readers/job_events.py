"""Groups the stored events of one job by emitter and attempt. Order and duplicates do not matter."""

from __future__ import annotations

from dataclasses import dataclass, field

from packtrain.events import Event, kinds
from packtrain.report.readers.agent_timeline import AGENT_EVENT_KINDS, AgentTimeline

_POOL_EVENT_KINDS = frozenset(
    {
        kinds.EXECUTION_STARTED,
        kinds.EXECUTION_INTERRUPTED,
        kinds.ATTEMPT_HELD,
        kinds.ATTEMPT_RELEASED,
        kinds.ATTEMPT_TRANSFER,
    }
)


@dataclass
class JobEvents:
    """The events of one job that a report needs."""

    agent_events: dict[str, dict[int, Event]] = field(default_factory=dict)  # by emitter and seq
    pool_events: dict[str, dict[int, Event]] = field(default_factory=dict)  # by attempt id and seq
    submit_decided_at: dict[str, float] = field(default_factory=dict)  # by attempt id
    gone_events: dict[str, Event] = field(default_factory=dict)  # by attempt id
    result_at: float | None = None  # when the job got its result

    def add(self, event: Event) -> None:
        attempt_id = str(event.data.get("attempt", ""))
        if event.kind in AGENT_EVENT_KINDS:
            self.agent_events.setdefault(event.emitter, {})[event.seq] = event
        elif event.kind in _POOL_EVENT_KINDS:
            self.pool_events.setdefault(attempt_id, {})[event.seq] = event
        elif event.kind == kinds.ATTEMPT_GONE:
            self.gone_events[attempt_id] = event
        elif event.kind == kinds.DECISION_MADE and event.data.get("action") == "submit":
            self.submit_decided_at[attempt_id] = event.wall
        elif event.kind == kinds.JOB_ENDED:
            self.result_at = max(self.result_at or 0.0, event.wall)

    def agent_timeline(self, emitter: str) -> AgentTimeline:
        timeline = AgentTimeline(emitter)
        for _, event in sorted(self.agent_events.get(emitter, {}).items()):
            timeline.add_event(event)
        return timeline
