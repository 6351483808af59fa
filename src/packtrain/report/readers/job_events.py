"""The events of one job of a run, by who told them. Takes them in any order, any number of times."""

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
    agent_events: dict[str, dict[int, Event]] = field(default_factory=dict)  # of agents, by emitter and seq
    pool_events: dict[str, dict[int, Event]] = field(
        default_factory=dict
    )  # of a pool, by decision and place in its log
    submit_decided_at: dict[str, float] = field(default_factory=dict)  # when it was decided to make an attempt
    gone_events: dict[str, Event] = field(default_factory=dict)
    result_at: float | None = None  # when it was given

    def add(self, event: Event) -> None:
        if event.kind in AGENT_EVENT_KINDS:
            self.agent_events.setdefault(event.emitter, {})[event.seq] = event
        elif event.kind in _POOL_EVENT_KINDS:
            self.pool_events.setdefault(str(event.data.get("attempt", "")), {})[event.seq] = event
        elif event.kind == kinds.ATTEMPT_GONE:
            self.gone_events[str(event.data.get("attempt", ""))] = event
        elif event.kind == kinds.DECISION_MADE and event.data.get("action") == "submit":
            self.submit_decided_at[str(event.data.get("attempt", ""))] = event.wall
        elif event.kind == kinds.JOB_ENDED:
            self.result_at = max(self.result_at or 0.0, event.wall)

    def agent_timeline(self, emitter: str) -> AgentTimeline:
        words = AgentTimeline(emitter)
        for _, event in sorted(self.agent_events.get(emitter, {}).items()):
            words.add_event(event)
        return words
