"""One attempt, as its events tell it. `Heard` collects in any order; `attempt_of` draws the picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from packtrain.events import FAILURE_KINDS, Event, Failure, kinds
from packtrain.state.pool_events import Hold, PoolExecution
from packtrain.state.training_progress import TrainingProgress
from packtrain.state.transitions import EXECUTION_TRANSITIONS, LIVE_STATUSES, ExecutionStatus, Trigger

STAGES = ("probe", "fetch", "unpack", "steps", "check", "sync", "clean")
_KIND_BY_EXIT_CODE = {row.exit_code: kind for kind, row in FAILURE_KINDS.items()}
_COALESCED_KINDS = frozenset({kinds.PROGRESS, kinds.STEP_STARTED, kinds.CHECKPOINT_SAVED})
_TERMINATED = "terminated"
_OUTCOME_TRIGGERS = {"succeeded": Trigger.AGENT_SUCCEEDED, "requeued": Trigger.AGENT_REQUEUED}


class Stage(NamedTuple):
    name: str
    duration_s: float | None = None  # None while it lasts
    data: Mapping[str, Any] = MappingProxyType({})  # what it counted: bytes, files, source, …


@dataclass(frozen=True)
class Execution:
    attempt_id: str
    emitter: str  # "" while no agent has spoken
    status: ExecutionStatus
    number: int = 0  # 1, 2, … within the job
    host: str = ""  # as the machine calls itself
    node: str = ""  # as the pool calls it
    site: str = ""
    native_id: str = ""
    worker_started_at: float | None = None  # the worker's clock, for people
    stages: tuple[Stage, ...] = ()
    progress: Mapping[str, Any] = field(default_factory=dict)  # of the current stage
    training: TrainingProgress = field(default_factory=TrainingProgress)  # what the program reported
    step_name: str = ""  # the newest that was started
    checkpoint: Mapping[str, Any] = field(default_factory=dict)  # the newest that stands at the destination
    restored_checkpoint: Mapping[str, Any] = field(default_factory=dict)  # the one that it went on from
    notices: tuple[str, ...] = ()
    failure: Failure | None = None
    exit_code: int | None = None
    agent_result: Mapping[str, Any] = field(default_factory=dict)  # the agent's last word
    execution_number: int = 0  # which start of its decision, in a pool that starts again by itself
    hold: Hold | None = None  # why the engine keeps it back
    overrides: Mapping[str, Any] = field(default_factory=dict)  # what it was given otherwise than planned
    copy_of: str = ""  # the decision whose attempt was late, when this one was started beside it
    # When these reached the store, by its clock:
    started_at: float = field(default=0.0, compare=False)  # that it is on a machine; 0: it is not, or nobody said so
    stage_started_at: float = field(default=0.0, compare=False)  # the beginning of its stage; 0: nobody told it
    progress_at: float = field(default=0.0, compare=False)  # how far it is; 0: nobody told it
    ended_at: float = field(default=0.0, compare=False)  # its end; 0: it lives

    @property
    def is_live(self) -> bool:
        return self.status in LIVE_STATUSES

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The newest value of every name that the program reported."""
        return self.training.values

    @property
    def stage(self) -> str:
        return self.stages[-1].name if self.stages else ""

    @property
    def checkpoint_step(self) -> int:
        """The training step that its successor can go on from; -1 if it saved nothing."""
        step = self.checkpoint.get("step")
        return step if isinstance(step, int) else -1

    @property
    def agent_duration_s(self) -> float:
        """The worker's own count; what has ended, while it runs."""
        return float(self.agent_result.get("seconds") or sum(s.duration_s or 0.0 for s in self.stages))


def stage_fraction(execution: Execution) -> float | None:
    """How far the current stage is, where somebody said it: 0 to 1."""
    if execution.stage == "steps":
        return execution.training.fraction
    done, total = execution.progress.get("done"), execution.progress.get("total")
    if not isinstance(done, (int, float)) or not isinstance(total, (int, float)) or total <= 0:
        return None
    return min(1.0, done / total)


@dataclass(slots=True)
class AgentEvents:
    """An agent's words. Progress, step and checkpoint keep only the newest by seq: there are many."""

    emitter: str
    lifecycle: dict[int, Event] = field(default_factory=dict)
    latest: dict[str, Event] = field(default_factory=dict)
    training: TrainingProgress = field(default_factory=TrainingProgress)
    attempt_id: str = ""
    worker_started_at: float = 0.0  # by its own clock

    def add(self, event: Event) -> None:
        if event.kind == kinds.AGENT_STARTED:
            self.attempt_id, self.worker_started_at = str(event.data.get("attempt", "")), event.wall
        if event.kind == kinds.METRIC:
            self.training.add(event)
        elif event.kind in _COALESCED_KINDS:
            known = self.latest.get(event.kind)
            if known is None or known.seq < event.seq:
                self.latest[event.kind] = event
        else:
            self.lifecycle[event.seq] = event

    def sorted_lifecycle(self) -> list[Event]:
        return [self.lifecycle[seq] for seq in sorted(self.lifecycle)]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A decision to make an attempt."""

    id: str
    order: tuple[int, int]  # (epoch, seq) of the decision
    overrides: Mapping[str, Any] = field(default_factory=dict)
    copy_of: str = ""
    reason: str = ""


class EngineEvents(NamedTuple):
    """What the engine said of a submission."""

    submitted_event: Event | None = None
    gone_event: Event | None = None
    hold: Hold | None = None  # one that lasts


def copy_with(execution: Execution, **changes: Any) -> Execution:
    """As `dataclasses.replace`, which takes ten times as long: this is done for every event of every job."""
    made = object.__new__(Execution)
    made.__dict__.update(execution.__dict__)
    made.__dict__.update(changes)
    return made


_BLANK_EXECUTION = Execution("", "", ExecutionStatus.SUBMITTING)


def build_execution(
    attempt: Attempt,
    engine_events: EngineEvents,
    agent_events: AgentEvents | None,
    pool_execution: PoolExecution | None = None,
) -> Execution:
    """The attempt of a decision, by one agent or by none yet; in a pool, during one of its starts."""
    life = agent_events.sorted_lifecycle() if agent_events else []
    status = ExecutionStatus.SUBMITTING
    for trigger in _find_triggers(engine_events, life, pool_execution):
        status = EXECUTION_TRANSITIONS[status].get(trigger, status)
    said = {event.kind: event.data for event in life}
    started, ended = said.get(kinds.AGENT_STARTED, {}), said.get(kinds.AGENT_ENDED, {})
    confirmed = engine_events.submitted_event.data if engine_events.submitted_event else {}
    placed = pool_execution.start_event.data if pool_execution and pool_execution.start_event else {}
    stages = _build_stages(life)
    return copy_with(
        _BLANK_EXECUTION,
        attempt_id=attempt.id,
        emitter=agent_events.emitter if agent_events else "",
        status=status,
        host=started.get("host", "") or placed.get("host", ""),
        node=str(placed.get("host", "") or started.get("host", "")).rpartition("@")[2],
        site=started.get("site", "") or placed.get("site", "") or confirmed.get("site", ""),
        native_id=confirmed.get("native_id", ""),
        worker_started_at=agent_events.worker_started_at if agent_events and started else None,
        stages=stages,
        notices=tuple(e.data.get("text", "") for e in life if e.kind == kinds.NOTICE),
        failure=_find_failure(status, stages, ended, _pool_end_data(engine_events, pool_execution)),
        exit_code=_find_exit_code(ended, engine_events.gone_event),
        agent_result=ended,
        restored_checkpoint=said.get(kinds.CHECKPOINT_RESTORED, {}),
        execution_number=pool_execution.number if pool_execution else 0,
        hold=engine_events.hold if status is ExecutionStatus.HELD else None,
        overrides=attempt.overrides,
        copy_of=attempt.copy_of,
        **_latest_fields(agent_events, stages),
    )


def _find_triggers(
    engine_events: EngineEvents, lifecycle: list[Event], pool_execution: PoolExecution | None
) -> Iterator[Trigger]:
    """An agent's success does not count if the pool ended that start before the outputs were home."""
    stopped = pool_execution is not None and pool_execution.end_event is not None
    if engine_events.submitted_event:
        yield Trigger.SUBMITTED
    if pool_execution and pool_execution.start_event:
        yield Trigger.EXECUTION_STARTED
    for event in lifecycle:
        if event.kind == kinds.AGENT_STARTED:
            yield Trigger.AGENT_STARTED
        elif event.kind == kinds.AGENT_ENDED and not (stopped and event.data.get("outcome") == "succeeded"):
            yield _OUTCOME_TRIGGERS.get(event.data.get("outcome", ""), Trigger.AGENT_FAILED)
    if stopped:
        yield Trigger.EXECUTION_INTERRUPTED
    if engine_events.hold:
        yield Trigger.HELD
    if engine_events.gone_event:
        yield Trigger.GONE


def _pool_end_data(engine_events: EngineEvents, pool_execution: PoolExecution | None) -> Mapping[str, Any]:
    """What the engine said of its end. That it was removed for a reason counts most, then why it was kept back, then
    how this start ended."""
    gone = engine_events.gone_event.data if engine_events.gone_event else {}
    if not gone.get("kind") and engine_events.hold:
        return engine_events.hold.event.data
    if not gone.get("kind") and pool_execution and pool_execution.end_event:
        return pool_execution.end_event.data
    return gone


def _build_stages(lifecycle: list[Event]) -> tuple[Stage, ...]:
    stages: dict[str, Stage] = {}
    for event in lifecycle:
        name = str(event.data.get("stage", ""))
        if event.kind == kinds.STAGE_STARTED:
            stages.setdefault(name, Stage(name))
        elif event.kind == kinds.STAGE_ENDED:
            stages[name] = Stage(name, float(event.data.get("seconds") or 0.0), event.data)
    return tuple(stages.values())


def _latest_fields(agent_events: AgentEvents | None, stages: tuple[Stage, ...]) -> dict[str, Any]:
    newest = {kind: event.data for kind, event in agent_events.latest.items()} if agent_events else {}
    progress = newest.get(kinds.PROGRESS, {})
    current = stages[-1].name if stages else ""
    return {
        "progress": progress if progress.get("stage") == current else {},
        "training": agent_events.training if agent_events else TrainingProgress(),
        "step_name": newest.get(kinds.STEP_STARTED, {}).get("step", ""),
        "checkpoint": newest.get(kinds.CHECKPOINT_SAVED, {}),
    }


def _find_failure(
    status: ExecutionStatus, stages: tuple[Stage, ...], agent_result: Mapping[str, Any], pool_end: Mapping[str, Any]
) -> Failure | None:
    """The agent's own words count; where it had none, or only felt that it was ended, what the engine told."""
    own = Failure.from_data(agent_result["failure"]) if agent_result.get("failure") else None
    explained = own is None or own.kind != _TERMINATED or not pool_end.get("kind")
    if status is not ExecutionStatus.LOST and explained:
        return own
    stage = stages[-1].name if stages else "startup"
    kind = str(pool_end.get("kind") or _KIND_BY_EXIT_CODE.get(pool_end.get("exit_code") or 0, "agent_lost"))
    detail = str(pool_end.get("detail") or "the agent vanished")
    return Failure.from_kind(kind if kind in FAILURE_KINDS else "agent_lost", stage, f"{detail}, in the stage {stage}")


def _find_exit_code(agent_result: Mapping[str, Any], gone_event: Event | None) -> int | None:
    code = agent_result.get("exit_code", gone_event.data.get("exit_code") if gone_event else None)
    return None if code is None else int(code)
