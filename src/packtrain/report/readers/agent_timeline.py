"""What an agent of packtrain did inside of its stay on a slot. Pure.

Its clock is the worker's, and is never compared with another: what it took is laid into the time that the engine's log
says the program ran. What no agent explains is setting up, and comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from packtrain.events import Event, kinds
from packtrain.report.history import ExecutionRecord, InputTransfer, Outcome, Phase, PhaseSpan
from packtrain.report.number_format import replace_control_chars
from packtrain.report.readers.values import parse_amount, parse_count
from packtrain.report.spans import merge_spans

# Looking at outputs is neither the program's work nor a transfer; it takes no time worth a colour of its own.
_PHASE_BY_STAGE = {
    "fetch": Phase.TRANSFER_IN,
    "unpack": Phase.UNPACK,
    "steps": Phase.EXECUTE,
    "sync": Phase.TRANSFER_OUT,
}
_REUSED_SOURCE_PREFIX = "kept by"  # begins the source of inputs that the attempt before had brought

_EPSILON_S = 1e-6

PhaseDuration = tuple[Phase, float]  # what, and how many seconds


@dataclass
class AgentTimeline:
    """What one agent said, as far as it tells of time. `mono` of its events is one clock."""

    emitter: str
    started_at: float | None = None
    ended_at: float | None = None
    last_event_at: float = 0.0
    stages: list[tuple[str, float, float | None, Mapping[str, Any]]] = field(default_factory=list)
    checkpoint_saved_at: dict[int, float] = field(
        default_factory=dict
    )  # by generation: when it was what the program had reached
    restored_checkpoint: Mapping[str, Any] = field(default_factory=dict)
    fetched_bytes: int = 0  # bytes of inputs, by the newest progress
    exit_data: Mapping[str, Any] = field(default_factory=dict)  # its last word
    started_wall_at: float = 0.0  # of its first event, for engines whose clock is the worker's

    def add_event(self, event: Event) -> None:
        """In the order of its seq."""
        self.last_event_at = max(self.last_event_at, event.mono)
        handler = _EVENT_HANDLERS.get(event.kind)
        if handler is not None:
            handler(self, event)

    def _on_started(self, event: Event) -> None:
        self.started_at, self.started_wall_at = event.mono, event.wall

    def _on_ended(self, event: Event) -> None:
        self.ended_at, self.exit_data = event.mono, event.data
        seconds = parse_amount(event.data.get("seconds"))
        if seconds is not None and self.started_at is not None:
            early = self.started_at - (event.mono - seconds)  # it woke before it could say so
            self.started_at, self.started_wall_at = (
                self.started_at - max(0.0, early),
                self.started_wall_at - max(0.0, early),
            )

    def _on_stage_started(self, event: Event) -> None:
        self.stages.append((str(event.data.get("stage", "")), event.mono, None, {}))

    def _on_stage_ended(self, event: Event) -> None:
        name, seconds = str(event.data.get("stage", "")), parse_amount(event.data.get("seconds")) or 0.0
        if self.stages and self.stages[-1][0] == name and self.stages[-1][2] is None:
            self.stages.pop()
        self.stages.append((name, event.mono - seconds, event.mono, event.data))

    def _on_checkpoint_saved(self, event: Event) -> None:
        generation = event.data.get("generation")
        if isinstance(generation, int):
            self.checkpoint_saved_at[generation] = event.mono - (parse_amount(event.data.get("seconds")) or 0.0)

    def _on_checkpoint_restored(self, event: Event) -> None:
        self.restored_checkpoint = event.data

    def _on_progress(self, event: Event) -> None:
        if event.data.get("stage") == "fetch":
            self.fetched_bytes = parse_count(event.data.get("done")) or self.fetched_bytes

    # What it was

    def phase_durations(self) -> Iterator[PhaseDuration]:
        """One behind the other, from its first to its last sign of life."""
        now = (
            self.started_at if self.started_at is not None else self.stages[0][1] if self.stages else self.last_event_at
        )
        for (name, start, _, data), until in zip(self.stages, self._stage_ends(), strict=True):
            if start > now:
                yield Phase.SETUP, start - now
            yield from self._stage_phases(name, max(0.0, until - max(start, now)), data)
            now = max(now, until)
        if self.last_event_at > now:
            yield Phase.SETUP, self.last_event_at - now

    def _stage_ends(self) -> list[float]:
        """Of the stages. Of an agent that was removed only live words came, which tell when stages began."""
        nexts = [*(start for _, start, _, _ in self.stages[1:]), self.last_event_at]
        return [
            following if end is None else end for (_, _, end, _), following in zip(self.stages, nexts, strict=False)
        ]

    @property
    def duration_s(self) -> float:
        """From its first to its last sign of life."""
        return sum(seconds for _, seconds in self.phase_durations())

    def _stage_phases(self, name: str, duration_s: float, data: Mapping[str, Any]) -> Iterator[PhaseDuration]:
        """The checkpoint is brought back at the end of the stage fetch."""
        restoring = 0.0
        if name == "fetch" and self.restored_checkpoint:
            restoring = min(duration_s, parse_amount(self.restored_checkpoint.get("seconds")) or 0.0)
            if not data.get("bytes"):
                restoring = duration_s
        yield _PHASE_BY_STAGE.get(name, Phase.SETUP), duration_s - restoring
        yield Phase.CHECKPOINT, restoring

    def executed_s_until(self, until: float) -> float:
        """Seconds of its program until then."""
        told = zip(self.stages, self._stage_ends(), strict=True)
        return sum(max(0.0, min(end, until) - start) for (name, start, _, _), end in told if name == "steps")

    @property
    def executed_s(self) -> float:
        return self.executed_s_until(self.last_event_at)

    @property
    def current_phase(self) -> Phase:
        """What it did when it was last heard of."""
        under_way = self.stages[-1] if self.stages and self.stages[-1][2] is None else None
        return _PHASE_BY_STAGE.get(under_way[0], Phase.SETUP) if under_way else Phase.SETUP

    def input_transfer(self) -> InputTransfer | None:
        """Of its inputs. One that was kept from the attempt before is none. Its times are durations since it began."""
        for name, start, end, data in self.stages:
            if name == "fetch" and not str(data.get("source", "")).startswith(_REUSED_SOURCE_PREFIX):
                size = parse_count(data.get("bytes")) or self.fetched_bytes
                seconds = max(0.0, (self.last_event_at if end is None else end) - start)
                whole = end is not None and not data.get("failure")
                if size:
                    return InputTransfer(start - (self.started_at or start), seconds, size, source_host(data), whole)
        return None

    def stage_count(self, stage: str, key: str) -> int | None:
        """Of a stage that ended."""
        found = [data.get(key) for name, _, end, data in self.stages if name == stage and end is not None]
        return parse_count(found[-1]) if found else None


_EVENT_HANDLERS = {
    kinds.AGENT_STARTED: AgentTimeline._on_started,
    kinds.AGENT_ENDED: AgentTimeline._on_ended,
    kinds.STAGE_STARTED: AgentTimeline._on_stage_started,
    kinds.STAGE_ENDED: AgentTimeline._on_stage_ended,
    kinds.CHECKPOINT_SAVED: AgentTimeline._on_checkpoint_saved,
    kinds.CHECKPOINT_RESTORED: AgentTimeline._on_checkpoint_restored,
    kinds.PROGRESS: AgentTimeline._on_progress,
}
AGENT_EVENT_KINDS = frozenset(_EVENT_HANDLERS)


def source_host(stage_data: Mapping[str, Any]) -> str:
    """Of the last source that gave bytes."""
    source = str(stage_data.get("source", ""))
    return replace_control_chars(urlsplit(source).netloc.rpartition("@")[2] or source)


def add_agent_timelines(execution: ExecutionRecord, agents: Sequence[AgentTimeline]) -> ExecutionRecord:
    """The attempt, with what its agents told of themselves."""
    if not agents:
        return execution
    filled = fit_agent_phases(execution, agents)
    return replace(
        filled,
        input_transfers=(*execution.input_transfers, *_agent_transfers(filled, _execute_started_at(execution), agents)),
        input_bytes=_sum_known(words.stage_count("fetch", "bytes") for words in agents),
        output_bytes=_sum_known(words.stage_count("sync", "bytes") for words in agents),
    )


def _execute_started_at(execution: ExecutionRecord) -> float:
    return next((span.start for span in execution.spans if span.phase is Phase.EXECUTE), execution.start)


def _agent_transfers(
    execution: ExecutionRecord, execute_started_at: float, agents: Sequence[AgentTimeline]
) -> Iterator[InputTransfer]:
    """The agents' own transfers, each where it was poured; what the pool transferred was before."""
    starts = [
        span.start for span in execution.spans if span.phase is Phase.TRANSFER_IN and span.start >= execute_started_at
    ]
    moves = [move for words in agents if (move := words.input_transfer()) is not None]
    for place, move in enumerate(moves):
        yield replace(move, start=starts[min(place, len(starts) - 1)] if starts else execute_started_at)


def _sum_known(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def retained_compute_by_emitter(agents: Iterable[AgentTimeline]) -> dict[str, float]:
    """Computing that another agent went on from: until the checkpoint that it took was saved."""
    known = {words.emitter: words for words in agents}
    kept: dict[str, float] = {}
    for words in known.values():
        source = known.get(str(words.restored_checkpoint.get("emitter", "")))
        saved = source.checkpoint_saved_at.get(words.restored_checkpoint.get("generation", -1)) if source else None
        if source is not None and saved is not None:
            kept[source.emitter] = max(kept.get(source.emitter, 0.0), source.executed_s_until(saved))
    return kept


def with_retained_compute(
    execution: ExecutionRecord, agents: Sequence[AgentTimeline], retained_s: Mapping[str, float]
) -> ExecutionRecord:
    """Of several agents in one stay: all before the one that was last gone on from, and its own."""
    executed, total, before = execution.seconds_in(Phase.EXECUTE), 0.0, 0.0
    for words in agents:
        if words.emitter in retained_s:
            total = before + retained_s[words.emitter]
        before += words.executed_s
    whole = execution.outcome is Outcome.SUCCEEDED
    return replace(execution, retained_compute_s=executed if whole else min(executed, total))


def fit_agent_phases(execution: ExecutionRecord, agents: Sequence[AgentTimeline]) -> ExecutionRecord:
    """The attempt, with what its agents did where the engine's log only knows that the program ran."""
    pieces = [piece for words in agents for piece in words.phase_durations() if piece[1] > 0]
    room = execution.seconds_in(Phase.EXECUTE)
    if not agents or not room:
        return execution
    taken = sum(seconds for _, seconds in pieces)
    if taken > room:
        fitted = [(phase, seconds * room / taken) for phase, seconds in pieces]
    elif agents[-1].ended_at is None:  # it had no time to say more: what it did last, it did until its end
        fitted = [*pieces, (agents[-1].current_phase, room - taken)]
    else:
        fitted = [(Phase.SETUP, room - taken), *pieces]
    return replace(execution, spans=merge_spans(_fill_execute_spans(execution.spans, fitted)))


def _fill_execute_spans(spans: Iterable[PhaseSpan], durations: Sequence[PhaseDuration]) -> Iterator[PhaseSpan]:
    """The pieces one behind the other in the spans of EXECUTE; other spans stay where they are."""
    left = list(reversed([piece for piece in durations if piece[1] > 0]))
    for span in spans:
        if span.phase is not Phase.EXECUTE:
            yield span
            continue
        now = span.start
        while now < span.end and left:
            phase, seconds = left.pop()
            until = min(span.end, now + seconds)
            if now + seconds - until > _EPSILON_S:
                left.append((phase, now + seconds - until))
            elif span.end - until < _EPSILON_S:
                until = span.end  # of rounding, nothing is left over
            if until > now:
                yield PhaseSpan(phase, now, until)
            now = until
        if now < span.end:
            yield PhaseSpan(Phase.SETUP, now, span.end)
