"""The events of one job of a run, by who told them. Takes them in any order, any number of times."""

from __future__ import annotations

from dataclasses import dataclass, field

from packtrain.events import Event, kinds
from packtrain.report.readers.agent_timeline import HEARD, Words

_FROM_LOG = frozenset(
    {
        kinds.ATTEMPT_PLACED,
        kinds.ATTEMPT_STOPPED,
        kinds.ATTEMPT_HELD,
        kinds.ATTEMPT_RELEASED,
        kinds.ATTEMPT_TRANSFER,
    }
)


@dataclass
class Told:
    words: dict[str, dict[int, Event]] = field(default_factory=dict)  # of agents, by emitter and seq
    log: dict[str, dict[int, Event]] = field(default_factory=dict)  # of a pool, by decision and place in its log
    decided: dict[str, float] = field(default_factory=dict)  # when it was decided to make an attempt
    gone: dict[str, Event] = field(default_factory=dict)
    verdict: float | None = None  # when it was given

    def take(self, event: Event) -> None:
        if event.kind in HEARD:
            self.words.setdefault(event.emitter, {})[event.seq] = event
        elif event.kind in _FROM_LOG:
            self.log.setdefault(str(event.data.get("decision", "")), {})[event.seq] = event
        elif event.kind == kinds.ATTEMPT_GONE:
            self.gone[str(event.data.get("decision", ""))] = event
        elif event.kind == kinds.DECIDED and event.data.get("action") == "submit":
            self.decided[str(event.data.get("id", ""))] = event.wall
        elif event.kind == kinds.JOB_ENDED:
            self.verdict = max(self.verdict or 0.0, event.wall)

    def agent(self, emitter: str) -> Words:
        words = Words(emitter)
        for _, event in sorted(self.words.get(emitter, {}).items()):
            words.hear(event)
        return words
