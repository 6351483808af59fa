"""The phases that packtrain's agent recorded inside a slot session.

The agent uses the clock of the worker, which is never compared with another clock. The durations of its stages are
fitted into the time that the engine's log records as executing. Time that no agent accounts for counts as setup and
comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from packtrain.events import Event, kinds
from packtrain.formatting import replace_control_chars
from packtrain.report.history import ExecutionRecord, InputTransfer, Outcome
from packtrain.report.readers.end_status import RUNNING, EndStatus
from packtrain.state.slot_time import Phase, PhaseSpan, SlotSession, merge_spans

# The stages `install` (of a Pixi environment) and `check` count as setup: they are neither compute nor input transfer.
_PHASE_BY_STAGE = {
    "fetch": Phase.TRANSFER_IN,
    "unpack": Phase.UNPACK,
    "steps": Phase.EXECUTE,
    "sync": Phase.TRANSFER_OUT,
}
_REUSED_SOURCE_PREFIX = "reused"  # of the `source` of inputs that the previous attempt had fetched

_EPSILON_S = 1e-6
_MAX_AMOUNT = 1e18  # seconds, bytes or GPUs; larger values are invalid, and sums of these stay finite

PhaseDuration = tuple[Phase, float]  # (phase, seconds)


def parse_amount(value: object) -> float | None:
    """Return a finite number >= 0, or None for anything else (text, booleans, NaN, negative numbers)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MAX_AMOUNT:
        return None
    return float(value)


def parse_count(value: object) -> int | None:
    """Return a number >= 0 rounded down to an integer, or None for anything else."""
    amount = parse_amount(value)
    return None if amount is None else math.floor(amount)


@dataclass
class AgentTimeline:
    """The timing of one agent, from its events. All times are `mono` of its events unless noted otherwise."""

    emitter: str
    started_at: float | None = None
    ended_at: float | None = None
    last_event_at: float = 0.0
    # (name, start, end or None, data of the stage.ended event)
    stages: list[tuple[str, float, float | None, Mapping[str, Any]]] = field(default_factory=list)
    checkpoint_saved_at: dict[int, float] = field(default_factory=dict)  # by generation: when saving it began
    restored_checkpoint: Mapping[str, Any] = field(default_factory=dict)
    fetched_bytes: int = 0  # according to the latest progress event
    exit_data: Mapping[str, Any] = field(default_factory=dict)  # data of the agent.ended event
    started_wall_at: float = 0.0  # `wall` of the first event; valid if the engine runs on the same machine

    def add_event(self, event: Event) -> None:
        """Add an event. Events must be added in the order of their seq."""
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
            # The process starts a moment before it can write its first event.
            delay_s = max(0.0, self.started_at - (event.mono - seconds))
            self.started_at -= delay_s
            self.started_wall_at -= delay_s

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

    # Results

    def phase_durations(self) -> Iterator[PhaseDuration]:
        """Yield its phases in order, from the first to the last event."""
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
        """Return the end of each stage. If the agent was killed, a stage ends where the next starts."""
        next_starts = [*(start for _, start, _, _ in self.stages[1:]), self.last_event_at]
        return [
            next_start if end is None else end
            for (_, _, end, _), next_start in zip(self.stages, next_starts, strict=False)
        ]

    @property
    def duration_s(self) -> float:
        """The time from the first to the last event."""
        return sum(seconds for _, seconds in self.phase_durations())

    def _stage_phases(self, name: str, duration_s: float, data: Mapping[str, Any]) -> Iterator[PhaseDuration]:
        """Split a stage into phases: a checkpoint is restored at the end of the stage `fetch`."""
        restore_s = 0.0
        if name == "fetch" and self.restored_checkpoint:
            restore_s = min(duration_s, parse_amount(self.restored_checkpoint.get("seconds")) or 0.0)
            if not data.get("bytes"):
                restore_s = duration_s
        yield _PHASE_BY_STAGE.get(name, Phase.SETUP), duration_s - restore_s
        yield Phase.CHECKPOINT, restore_s

    def executed_s_until(self, until: float) -> float:
        """Return the execution time of the program before `until`."""
        stages = zip(self.stages, self._stage_ends(), strict=True)
        return sum(max(0.0, min(end, until) - start) for (name, start, _, _), end in stages if name == "steps")

    @property
    def executed_s(self) -> float:
        return self.executed_s_until(self.last_event_at)

    @property
    def current_phase(self) -> Phase:
        """The phase at the last event."""
        open_stage = self.stages[-1] if self.stages and self.stages[-1][2] is None else None
        return _PHASE_BY_STAGE.get(open_stage[0], Phase.SETUP) if open_stage else Phase.SETUP

    def input_transfer(self) -> InputTransfer | None:
        """Return the agent's transfer of inputs; None if they were reused. Its start is relative to the agent's."""
        for name, start, end, data in self.stages:
            if name == "fetch" and not str(data.get("source", "")).startswith(_REUSED_SOURCE_PREFIX):
                size_bytes = parse_count(data.get("bytes")) or self.fetched_bytes
                duration_s = max(0.0, (self.last_event_at if end is None else end) - start)
                complete = end is not None and not data.get("failure")
                if size_bytes:
                    start_s = start - (self.started_at or start)
                    return InputTransfer(start_s, duration_s, size_bytes, source_host(data), complete)
        return None

    def stage_count(self, stage: str, key: str) -> int | None:
        """Return a count from the data of an ended stage."""
        values = [data.get(key) for name, _, end, data in self.stages if name == stage and end is not None]
        return parse_count(values[-1]) if values else None


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
    """Return the host of the last source that delivered bytes."""
    source = str(stage_data.get("source", ""))
    return replace_control_chars(urlsplit(source).netloc.rpartition("@")[2] or source)


def record_from_session(
    session: SlotSession,
    number: int,
    now: float,
    status: EndStatus,
    received_bytes: int | None = None,
    sent_bytes: int | None = None,
) -> ExecutionRecord:
    """Build the record of a slot session.

    Args:
        session: The session.
        number: The number of the execution within the job.
        now: The end of a session that has not ended.
        status: How it ended, if it has.
        received_bytes: The size of its inputs according to the pool.
        sent_bytes: The size of its outputs according to the pool.
    """
    status = status if session.ended_at is not None else RUNNING
    if session.has_reconnected:
        received_bytes = sent_bytes = None  # these count only what was transferred since
    spans = session.spans(now)
    executed_s = sum(span.duration_s for span in spans if span.phase is Phase.EXECUTE)
    succeeded = status.outcome is Outcome.SUCCEEDED
    return ExecutionRecord(
        number,
        spans,
        status.outcome,
        reason=status.reason,
        category=status.category,
        input_transfers=tuple(_pool_transfers(session, now, received_bytes)),
        input_bytes=received_bytes,
        output_bytes=sent_bytes,
        retained_compute_s=executed_s if succeeded else min(session.checkpointed_s, executed_s),
    )


def _pool_transfers(session: SlotSession, now: float, received_bytes: int | None) -> Iterator[InputTransfer]:
    """Yield the pool's own transfers of inputs. The last one completed if the program started after it."""
    until, n_transfers = now if session.ended_at is None else session.ended_at, len(session.input_times)
    for index, (start, finished_at) in enumerate(session.input_times):
        is_last = index == n_transfers - 1
        complete = is_last and (session.has_executed or (session.ended_at is None and finished_at is not None))
        size_bytes = received_bytes if n_transfers == 1 else None
        duration_s = max(0.0, session.input_end(index, until) - start)
        yield InputTransfer(start, duration_s, size_bytes, complete=complete)


def add_agent_timelines(execution: ExecutionRecord, agents: Sequence[AgentTimeline]) -> ExecutionRecord:
    """Add the phases, transfers and byte counts of the agents to an execution."""
    if not agents:
        return execution
    fitted = fit_agent_phases(execution, agents)
    return replace(
        fitted,
        input_transfers=(*execution.input_transfers, *_agent_transfers(fitted, _execute_started_at(execution), agents)),
        input_bytes=_sum_known(agent.stage_count("fetch", "bytes") for agent in agents),
        output_bytes=_sum_known(agent.stage_count("sync", "bytes") for agent in agents),
    )


def _execute_started_at(execution: ExecutionRecord) -> float:
    return next((span.start for span in execution.spans if span.phase is Phase.EXECUTE), execution.start)


def _agent_transfers(
    execution: ExecutionRecord, execute_started_at: float, agents: Sequence[AgentTimeline]
) -> Iterator[InputTransfer]:
    """Yield the agents' own transfers at the times they were fitted to. The pool's transfers are earlier."""
    starts = [
        span.start for span in execution.spans if span.phase is Phase.TRANSFER_IN and span.start >= execute_started_at
    ]
    transfers = [transfer for agent in agents if (transfer := agent.input_transfer()) is not None]
    for index, transfer in enumerate(transfers):
        yield replace(transfer, start=starts[min(index, len(starts) - 1)] if starts else execute_started_at)


def _sum_known(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def retained_compute_by_emitter(agents: Iterable[AgentTimeline]) -> dict[str, float]:
    """Return the execution time before the checkpoint that another agent restored, by emitter."""
    by_emitter = {agent.emitter: agent for agent in agents}
    retained_s: dict[str, float] = {}
    for agent in by_emitter.values():
        checkpoint = agent.restored_checkpoint
        source = by_emitter.get(str(checkpoint.get("emitter", "")))
        saved_at = source.checkpoint_saved_at.get(checkpoint.get("generation", -1)) if source else None
        if source is not None and saved_at is not None:
            retained_s[source.emitter] = max(retained_s.get(source.emitter, 0.0), source.executed_s_until(saved_at))
    return retained_s


def with_retained_compute(
    execution: ExecutionRecord, agents: Sequence[AgentTimeline], retained_s: Mapping[str, float]
) -> ExecutionRecord:
    """Set the retained compute of an execution.

    With several agents in one session, it is that of the last agent that was resumed from, plus all compute before it.
    """
    executed_s, total_s, before_s = execution.seconds_in(Phase.EXECUTE), 0.0, 0.0
    for agent in agents:
        if agent.emitter in retained_s:
            total_s = before_s + retained_s[agent.emitter]
        before_s += agent.executed_s
    succeeded = execution.outcome is Outcome.SUCCEEDED
    return replace(execution, retained_compute_s=executed_s if succeeded else min(executed_s, total_s))


def fit_agent_phases(execution: ExecutionRecord, agents: Sequence[AgentTimeline]) -> ExecutionRecord:
    """Replace the EXECUTE spans of the engine's log with the phases of the agents."""
    durations = [duration for agent in agents for duration in agent.phase_durations() if duration[1] > 0]
    available_s = execution.seconds_in(Phase.EXECUTE)
    if not agents or not available_s:
        return execution
    recorded_s = sum(seconds for _, seconds in durations)
    if recorded_s > available_s:
        fitted = [(phase, seconds * available_s / recorded_s) for phase, seconds in durations]
    elif agents[-1].ended_at is None:  # it was killed: its last phase continued until the end
        fitted = [*durations, (agents[-1].current_phase, available_s - recorded_s)]
    else:
        fitted = [(Phase.SETUP, available_s - recorded_s), *durations]
    return replace(execution, spans=merge_spans(_fill_execute_spans(execution.spans, fitted)))


def _fill_execute_spans(spans: Iterable[PhaseSpan], durations: Sequence[PhaseDuration]) -> Iterator[PhaseSpan]:
    """Place the durations one after another into the EXECUTE spans. Other spans are unchanged."""
    remaining = list(reversed([duration for duration in durations if duration[1] > 0]))
    for span in spans:
        if span.phase is not Phase.EXECUTE:
            yield span
            continue
        now = span.start
        while now < span.end and remaining:
            phase, seconds = remaining.pop()
            until = min(span.end, now + seconds)
            if now + seconds - until > _EPSILON_S:
                remaining.append((phase, now + seconds - until))
            elif span.end - until < _EPSILON_S:
                until = span.end  # absorb rounding errors
            if until > now:
                yield PhaseSpan(phase, now, until)
            now = until
        if now < span.end:
            yield PhaseSpan(Phase.SETUP, now, span.end)
