"""One execution of an attempt, built from the events of its agent and of the engine.

`AgentEvents` and `EngineEvents` collect events in any order. `build_execution` turns them into an `Execution`, and
`apply_progress` adds the live progress that an engine reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from packtrain.events import FAILURE_KINDS, Event, Failure, kinds
from packtrain.state.pool_events import Hold, PoolExecution
from packtrain.state.slot_time import SlotTimeline
from packtrain.state.training_progress import TrainingProgress, to_finite_float
from packtrain.state.transitions import EXECUTION_TRANSITIONS, LIVE_STATUSES, ExecutionStatus, Trigger

EventOrder = tuple[int, int]  # (epoch, seq): the order of all events that the supervisors of a run emitted
STAGES = ("probe", "fetch", "unpack", "install", "steps", "check", "sync", "clean")
_STARTUP = "startup"  # stands for the time before the first stage
_KIND_BY_EXIT_CODE = {row.exit_code: kind for kind, row in FAILURE_KINDS.items()}
_COALESCED_KINDS = frozenset({kinds.PROGRESS, kinds.STEP_STARTED, kinds.CHECKPOINT_SAVED})
_TERMINATED = "terminated"
_OUTCOME_TRIGGERS = {"succeeded": Trigger.AGENT_SUCCEEDED, "requeued": Trigger.AGENT_REQUEUED}
_METRIC_KEYS = ("step", "total_steps", "epoch", "epochs", "loss")


class Stage(NamedTuple):
    """A stage of an execution that has started."""

    name: str
    duration_s: float | None = None  # None while the stage runs
    data: Mapping[str, Any] = MappingProxyType({})  # what the stage counted: bytes, files, source, …


@dataclass(frozen=True)
class Execution:
    """One execution of an attempt, as far as it is known."""

    attempt_id: str
    emitter: str  # of the agent; "" until an agent has reported
    status: ExecutionStatus
    number: int = 0  # 1, 2, … within the job
    host: str = ""  # the node's own host name
    node: str = ""  # the pool's name for the node
    site: str = ""
    native_id: str = ""  # the engine's own job id
    worker_started_at: float | None = None  # Unix time by the worker's clock, for display only
    stages: tuple[Stage, ...] = ()
    progress: Mapping[str, Any] = field(default_factory=dict)  # of the current stage
    training: TrainingProgress = field(default_factory=TrainingProgress)  # metrics that the program logged
    step_name: str = ""  # the step that was started last
    checkpoint: Mapping[str, Any] = field(default_factory=dict)  # the newest one that was uploaded
    restored_checkpoint: Mapping[str, Any] = field(default_factory=dict)  # the one that the execution resumed from
    notices: tuple[str, ...] = ()
    failure: Failure | None = None
    exit_code: int | None = None
    agent_result: Mapping[str, Any] = field(default_factory=dict)  # data of the agent's `agent.ended` event
    execution_number: int = 0  # 1, 2, … within the attempt, as the pool counts its starts; 0: not started by a pool
    hold: Hold | None = None  # while the pool holds the attempt
    overrides: Mapping[str, Any] = field(default_factory=dict)  # resources and sites that differ from the plan
    copy_of: str = ""  # id of the straggling attempt that this one copies
    # Times by the store's clock, at which these facts were received (Unix time):
    started_at: float = field(default=0.0, compare=False)  # 0: not started, or the start was not reported
    stage_started_at: float = field(default=0.0, compare=False)  # of the current stage; 0: not reported
    progress_at: float = field(default=0.0, compare=False)  # of the last progress report; 0: none
    ended_at: float = field(default=0.0, compare=False)  # 0: live

    @property
    def is_live(self) -> bool:
        """Whether the execution has not ended."""
        return self.status in LIVE_STATUSES

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The newest value of every metric that the program logged."""
        return self.training.values

    @property
    def stage(self) -> str:
        """The name of the current stage, "" before the first one."""
        return self.stages[-1].name if self.stages else ""

    @property
    def checkpoint_step(self) -> int:
        """The training step from which another execution can resume; -1 if no checkpoint was saved."""
        step = self.checkpoint.get("step")
        return step if isinstance(step, int) else -1

    @property
    def agent_duration_s(self) -> float:
        """Run time by the worker's clock; while the agent runs, the total of its finished stages."""
        return float(self.agent_result.get("seconds") or sum(s.duration_s or 0.0 for s in self.stages))


def stage_fraction(execution: Execution) -> float | None:
    """Return how much of the current stage is done, from 0 to 1, or None if not known."""
    if execution.stage == "steps":
        return execution.training.fraction
    done, total = execution.progress.get("done"), execution.progress.get("total")
    if not isinstance(done, (int, float)) or not isinstance(total, (int, float)) or total <= 0:
        return None
    return min(1.0, done / total)


@dataclass(slots=True)
class AgentEvents:
    """The events of one agent.

    Of progress, started steps and saved checkpoints only the newest event is kept, because there are many.
    """

    emitter: str
    lifecycle: dict[int, Event] = field(default_factory=dict)  # by sequence number
    latest: dict[str, Event] = field(default_factory=dict)  # by kind
    training: TrainingProgress = field(default_factory=TrainingProgress)
    attempt_id: str = ""
    worker_started_at: float = 0.0  # Unix time by the worker's clock

    def add(self, event: Event) -> None:
        """Add an event. Adding it twice changes nothing."""
        if event.kind == kinds.AGENT_STARTED:
            self.attempt_id, self.worker_started_at = str(event.data.get("attempt", "")), event.wall
        if event.kind == kinds.METRIC:
            self.training.add(event)
        elif event.kind in _COALESCED_KINDS:
            newest = self.latest.get(event.kind)
            if newest is None or newest.seq < event.seq:
                self.latest[event.kind] = event
        else:
            self.lifecycle[event.seq] = event

    def sorted_lifecycle(self) -> list[Event]:
        """Return all other events in the order in which the agent emitted them."""
        return [self.lifecycle[seq] for seq in sorted(self.lifecycle)]


@dataclass(frozen=True)
class Attempt:
    """What supervisors decided about an attempt, and what the pool did with it."""

    id: str
    order: EventOrder  # of the decision to submit it
    overrides: Mapping[str, Any] = field(default_factory=dict)  # resources and sites that differ from the plan
    copy_of: str = ""  # id of the straggling attempt that this one copies
    reason: str = ""  # why it was submitted
    cancel_order: EventOrder | None = None  # of the decision to end it
    cancel_reason: str = ""
    move: Mapping[str, Any] | None = None  # the decision to move it: sites and nodes to avoid, and the reason
    holds: tuple[Hold, ...] = ()
    hold_decisions: Mapping[int, str] = field(default_factory=dict)  # `release` or `give_up`, by the hold's seq
    pool_executions: tuple[PoolExecution, ...] = ()
    timeline: SlotTimeline | None = None  # how its time in the pool was used; None if the pool reported nothing
    progress: Mapping[str, Any] = field(default_factory=dict)  # the newest snapshot that the engine reported


class EngineEvents(NamedTuple):
    """The engine's events about one attempt."""

    submitted_event: Event | None = None
    gone_event: Event | None = None
    hold: Hold | None = None  # the current one


def build_execution(
    attempt: Attempt,
    engine_events: EngineEvents,
    agent_events: AgentEvents | None,
    pool_execution: PoolExecution | None = None,
) -> Execution:
    """Build an execution from everything that was reported about it.

    Args:
        attempt: The attempt that was started.
        engine_events: The engine's events about the attempt.
        agent_events: The events of the agent, or None if no agent has reported yet.
        pool_execution: The pool's events about this start, or None if the pool reported none.
    """
    lifecycle = agent_events.sorted_lifecycle() if agent_events else []
    status = ExecutionStatus.SUBMITTING
    for trigger in _find_triggers(engine_events, lifecycle, pool_execution):
        status = EXECUTION_TRANSITIONS[status].get(trigger, status)
    data_by_kind = {event.kind: event.data for event in lifecycle}
    agent_start, agent_result = data_by_kind.get(kinds.AGENT_STARTED, {}), data_by_kind.get(kinds.AGENT_ENDED, {})
    submitted = engine_events.submitted_event.data if engine_events.submitted_event else {}
    pool_start = pool_execution.start_event.data if pool_execution and pool_execution.start_event else {}
    stages = _build_stages(lifecycle)
    return Execution(
        attempt_id=attempt.id,
        emitter=agent_events.emitter if agent_events else "",
        status=status,
        host=agent_start.get("host", "") or pool_start.get("host", ""),
        node=str(pool_start.get("host", "") or agent_start.get("host", "")).rpartition("@")[2],
        site=agent_start.get("site", "") or pool_start.get("site", "") or submitted.get("site", ""),
        native_id=submitted.get("native_id", ""),
        worker_started_at=agent_events.worker_started_at if agent_events and agent_start else None,
        stages=stages,
        notices=tuple(e.data.get("text", "") for e in lifecycle if e.kind == kinds.NOTICE),
        failure=_find_failure(status, stages, agent_result, _pool_end_data(engine_events, pool_execution)),
        exit_code=_find_exit_code(agent_result, engine_events.gone_event),
        agent_result=agent_result,
        restored_checkpoint=data_by_kind.get(kinds.CHECKPOINT_RESTORED, {}),
        execution_number=pool_execution.number if pool_execution else 0,
        hold=engine_events.hold if status is ExecutionStatus.HELD else None,
        overrides=attempt.overrides,
        copy_of=attempt.copy_of,
        **_latest_fields(agent_events, stages),
    )


def _find_triggers(
    engine_events: EngineEvents, lifecycle: list[Event], pool_execution: PoolExecution | None
) -> Iterator[Trigger]:
    """Yield the triggers of an execution in the order in which they are applied.

    An agent's success does not count if the pool ended the execution before it had transferred the outputs.
    """
    is_interrupted = pool_execution is not None and pool_execution.end_event is not None
    if engine_events.submitted_event:
        yield Trigger.SUBMITTED
    if pool_execution and pool_execution.start_event:
        yield Trigger.EXECUTION_STARTED
    for event in lifecycle:
        if event.kind == kinds.AGENT_STARTED:
            yield Trigger.AGENT_STARTED
        elif event.kind == kinds.AGENT_ENDED and not (is_interrupted and event.data.get("outcome") == "succeeded"):
            yield _OUTCOME_TRIGGERS.get(event.data.get("outcome", ""), Trigger.AGENT_FAILED)
    if is_interrupted:
        yield Trigger.EXECUTION_INTERRUPTED
    if engine_events.hold:
        yield Trigger.HELD
    if engine_events.gone_event:
        yield Trigger.GONE


def _pool_end_data(engine_events: EngineEvents, pool_execution: PoolExecution | None) -> Mapping[str, Any]:
    """Return the data of the engine event that explains best why the execution ended.

    A removal with a failure kind comes first, then the current hold, then the end of this execution.
    """
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
    latest = {kind: event.data for kind, event in agent_events.latest.items()} if agent_events else {}
    progress = latest.get(kinds.PROGRESS, {})
    current_stage = stages[-1].name if stages else ""
    return {
        "progress": progress if progress.get("stage") == current_stage else {},
        "training": agent_events.training.copy() if agent_events else TrainingProgress(),
        "step_name": latest.get(kinds.STEP_STARTED, {}).get("step", ""),
        "checkpoint": latest.get(kinds.CHECKPOINT_SAVED, {}),
    }


def _find_failure(
    status: ExecutionStatus, stages: tuple[Stage, ...], agent_result: Mapping[str, Any], pool_end: Mapping[str, Any]
) -> Failure | None:
    """Return the failure of the execution.

    The agent's own report counts. If there is none, or the agent only knows that it received a signal, the engine's
    explanation is used.
    """
    reported = Failure.from_data(agent_result["failure"]) if agent_result.get("failure") else None
    is_sufficient = reported is None or reported.kind != _TERMINATED or not pool_end.get("kind")
    if status is not ExecutionStatus.LOST and is_sufficient:
        return reported
    stage = stages[-1].name if stages else _STARTUP
    kind = str(pool_end.get("kind") or _KIND_BY_EXIT_CODE.get(pool_end.get("exit_code") or 0, "agent_lost"))
    detail = str(pool_end.get("detail") or "the agent vanished")
    return Failure.from_kind(kind if kind in FAILURE_KINDS else "agent_lost", stage, detail)


def _find_exit_code(agent_result: Mapping[str, Any], gone_event: Event | None) -> int | None:
    code = agent_result.get("exit_code", gone_event.data.get("exit_code") if gone_event else None)
    return None if code is None else int(code)


def apply_progress(execution: Execution, snapshot: Mapping[str, Any]) -> Execution:
    """Return the execution with the live progress that its engine reported.

    Metrics that the agent itself reported are kept. A snapshot of another attempt is ignored.
    """
    if not execution.is_live or snapshot.get("attempt") != execution.attempt_id:
        return execution
    stage = str(snapshot.get("stage") or execution.stage)
    stages = execution.stages if stage in ("", execution.stage) else (*execution.stages, Stage(stage))
    metrics = _finite_values({name: snapshot.get(name) for name in _METRIC_KEYS})
    metrics |= _finite_values(snapshot.get("metrics") or {})
    training = execution.training
    if metrics and not training.values:
        training = TrainingProgress()
        training.add(Event("", "", "", 1, kinds.METRIC, 0.0, 0.0, metrics))
    progress = execution.progress
    if snapshot.get("done") is not None:
        progress = {"stage": stage, "done": snapshot["done"], "total": snapshot.get("total"), "unit": "bytes"}
    checkpoint = snapshot.get("checkpoint") or execution.checkpoint
    return replace(execution, stages=stages, progress=progress, training=training, checkpoint=checkpoint)


def _finite_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in dict(values).items() if to_finite_float(value) is not None}
