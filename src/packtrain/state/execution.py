"""One attempt, as its events tell it. `Heard` collects in any order; `attempt_of` draws the picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from packtrain.events import FAILURE_KINDS, Event, Failure, kinds
from packtrain.state.pool_events import Hold, Start
from packtrain.state.training_progress import Training
from packtrain.state.transitions import ATTEMPT_TRANSITIONS, LIVE, AttemptStatus, Trigger

STAGES = ("probe", "fetch", "unpack", "steps", "check", "sync", "clean")
_BY_EXIT_CODE = {row.exit_code: kind for kind, row in FAILURE_KINDS.items()}
_MANY = frozenset({kinds.PROGRESS, kinds.STEP_STARTED, kinds.CHECKPOINT_SAVED})
_TERMINATED = "terminated"
_OUTCOMES = {"succeeded": Trigger.SUCCEEDED, "continue": Trigger.LEFT}


class Stage(NamedTuple):
    name: str
    seconds: float | None = None  # None while it lasts
    data: Mapping[str, Any] = MappingProxyType({})  # what it counted: bytes, files, source, …


@dataclass(frozen=True)
class Attempt:
    decision: str
    emitter: str  # "" while no agent has spoken
    status: AttemptStatus
    number: int = 0  # 1, 2, … within the job
    host: str = ""  # as the machine calls itself
    machine: str = ""  # as the pool calls it
    site: str = ""
    native: str = ""
    started: float | None = None  # the worker's clock, for people
    stages: tuple[Stage, ...] = ()
    progress: Mapping[str, Any] = field(default_factory=dict)  # of the current stage
    training: Training = field(default_factory=Training)  # what the program reported
    step: str = ""  # the newest that was started
    checkpoint: Mapping[str, Any] = field(default_factory=dict)  # the newest that stands at the destination
    restored: Mapping[str, Any] = field(default_factory=dict)  # the one that it went on from
    notices: tuple[str, ...] = ()
    failure: Failure | None = None
    exit_code: int | None = None
    ended: Mapping[str, Any] = field(default_factory=dict)  # the agent's last word
    start: int = 0  # which start of its decision, in a pool that starts again by itself
    hold: Hold | None = None  # why the engine keeps it back
    amendment: Mapping[str, Any] = field(default_factory=dict)  # what it was given otherwise than planned
    copy_of: str = ""  # the decision whose attempt was late, when this one was started beside it
    # When these reached the store, by its clock:
    began_at: float = field(default=0.0, compare=False)  # that it is on a machine; 0: it is not, or nobody said so
    stage_at: float = field(default=0.0, compare=False)  # the beginning of its stage; 0: nobody told it
    told_at: float = field(default=0.0, compare=False)  # how far it is; 0: nobody told it
    over_at: float = field(default=0.0, compare=False)  # its end; 0: it lives

    @property
    def live(self) -> bool:
        return self.status in LIVE

    @property
    def metric(self) -> Mapping[str, Any]:
        """The newest value of every name that the program reported."""
        return self.training.values

    @property
    def stage(self) -> str:
        return self.stages[-1].name if self.stages else ""

    @property
    def reached(self) -> int:
        """The training step that its successor can go on from; -1 if it saved nothing."""
        step = self.checkpoint.get("step")
        return step if isinstance(step, int) else -1

    @property
    def seconds(self) -> float:
        """The worker's own count; what has ended, while it runs."""
        return float(self.ended.get("seconds") or sum(s.seconds or 0.0 for s in self.stages))


def fraction_of(attempt: Attempt) -> float | None:
    """How far the current stage is, where somebody said it: 0 to 1."""
    if attempt.stage == "steps":
        return attempt.training.fraction
    done, total = attempt.progress.get("done"), attempt.progress.get("total")
    if not isinstance(done, (int, float)) or not isinstance(total, (int, float)) or total <= 0:
        return None
    return min(1.0, done / total)


@dataclass(slots=True)
class Heard:
    """An agent's words. Progress, step and checkpoint keep only the newest by seq: there are many."""

    emitter: str
    life: dict[int, Event] = field(default_factory=dict)
    newest: dict[str, Event] = field(default_factory=dict)
    training: Training = field(default_factory=Training)
    decision: str = ""
    began: float = 0.0  # by its own clock

    def add(self, event: Event) -> None:
        if event.kind == kinds.ATTEMPT_STARTED:
            self.decision, self.began = str(event.data.get("decision", "")), event.wall
        if event.kind == kinds.METRIC:
            self.training.add(event)
        elif event.kind in _MANY:
            known = self.newest.get(event.kind)
            if known is None or known.seq < event.seq:
                self.newest[event.kind] = event
        else:
            self.life[event.seq] = event

    def ordered(self) -> list[Event]:
        return [self.life[seq] for seq in sorted(self.life)]


@dataclass(frozen=True, slots=True)
class Submission:
    """A decision to make an attempt."""

    id: str
    order: tuple[int, int]  # (epoch, seq) of the decision
    amendment: Mapping[str, Any] = field(default_factory=dict)
    copy_of: str = ""
    why: str = ""


class Told(NamedTuple):
    """What the engine said of a submission."""

    confirmed: Event | None = None
    gone: Event | None = None
    hold: Hold | None = None  # one that lasts


def changed(known: Attempt, **changes: Any) -> Attempt:
    """As `dataclasses.replace`, which takes ten times as long: this is done for every event of every job."""
    made = object.__new__(Attempt)
    made.__dict__.update(known.__dict__)
    made.__dict__.update(changes)
    return made


_NO_ATTEMPT = Attempt("", "", AttemptStatus.DECIDED)


def attempt_of(submission: Submission, told: Told, heard: Heard | None, start: Start | None = None) -> Attempt:
    """The attempt of a decision, by one agent or by none yet; in a pool, during one of its starts."""
    life = heard.ordered() if heard else []
    status = AttemptStatus.DECIDED
    for trigger in _triggers(told, life, start):
        status = ATTEMPT_TRANSITIONS[status].get(trigger, status)
    said = {event.kind: event.data for event in life}
    started, ended = said.get(kinds.ATTEMPT_STARTED, {}), said.get(kinds.ATTEMPT_ENDED, {})
    confirmed = told.confirmed.data if told.confirmed else {}
    placed = start.placed.data if start and start.placed else {}
    stages = _stages(life)
    return changed(
        _NO_ATTEMPT,
        decision=submission.id,
        emitter=heard.emitter if heard else "",
        status=status,
        host=started.get("host", "") or placed.get("host", ""),
        machine=str(placed.get("host", "") or started.get("host", "")).rpartition("@")[2],
        site=started.get("site", "") or placed.get("site", "") or confirmed.get("site", ""),
        native=confirmed.get("native", ""),
        started=heard.began if heard and started else None,
        stages=stages,
        notices=tuple(e.data.get("text", "") for e in life if e.kind == kinds.NOTICE),
        failure=_failure(status, stages, ended, _end_of(told, start)),
        exit_code=_exit_code(ended, told.gone),
        ended=ended,
        restored=said.get(kinds.CHECKPOINT_RESTORED, {}),
        start=start.number if start else 0,
        hold=told.hold if status is AttemptStatus.HELD else None,
        amendment=submission.amendment,
        copy_of=submission.copy_of,
        **_newest(heard, stages),
    )


def _triggers(told: Told, life: list[Event], start: Start | None) -> Iterator[Trigger]:
    """An agent's success does not count if the pool ended that start before the outputs were home."""
    stopped = start is not None and start.stopped is not None
    if told.confirmed:
        yield Trigger.CONFIRMED
    if start and start.placed:
        yield Trigger.PLACED
    for event in life:
        if event.kind == kinds.ATTEMPT_STARTED:
            yield Trigger.STARTED
        elif event.kind == kinds.ATTEMPT_ENDED and not (stopped and event.data.get("outcome") == "succeeded"):
            yield _OUTCOMES.get(event.data.get("outcome", ""), Trigger.FAILED)
    if stopped:
        yield Trigger.STOPPED
    if told.hold:
        yield Trigger.HELD
    if told.gone:
        yield Trigger.GONE


def _end_of(told: Told, start: Start | None) -> Mapping[str, Any]:
    """What the engine said of its end. That it was removed for a reason counts most, then why it was kept back, then
    how this start ended."""
    gone = told.gone.data if told.gone else {}
    if not gone.get("kind") and told.hold:
        return told.hold.event.data
    if not gone.get("kind") and start and start.stopped:
        return start.stopped.data
    return gone


def _stages(life: list[Event]) -> tuple[Stage, ...]:
    stages: dict[str, Stage] = {}
    for event in life:
        name = str(event.data.get("stage", ""))
        if event.kind == kinds.STAGE_STARTED:
            stages.setdefault(name, Stage(name))
        elif event.kind == kinds.STAGE_ENDED:
            stages[name] = Stage(name, float(event.data.get("seconds") or 0.0), event.data)
    return tuple(stages.values())


def _newest(heard: Heard | None, stages: tuple[Stage, ...]) -> dict[str, Any]:
    newest = {kind: event.data for kind, event in heard.newest.items()} if heard else {}
    progress = newest.get(kinds.PROGRESS, {})
    current = stages[-1].name if stages else ""
    return {
        "progress": progress if progress.get("stage") == current else {},
        "training": heard.training if heard else Training(),
        "step": newest.get(kinds.STEP_STARTED, {}).get("step", ""),
        "checkpoint": newest.get(kinds.CHECKPOINT_SAVED, {}),
    }


def _failure(
    status: AttemptStatus, stages: tuple[Stage, ...], ended: Mapping[str, Any], told: Mapping[str, Any]
) -> Failure | None:
    """The agent's own words count; where it had none, or only felt that it was ended, what the engine told."""
    own = Failure.from_data(ended["failure"]) if ended.get("failure") else None
    explained = own is None or own.kind != _TERMINATED or not told.get("kind")
    if status is not AttemptStatus.LOST and explained:
        return own
    stage = stages[-1].name if stages else "start"
    kind = str(told.get("kind") or _BY_EXIT_CODE.get(told.get("exit_code") or 0, "agent_lost"))
    detail = str(told.get("detail") or "the agent vanished")
    return Failure.of(kind if kind in FAILURE_KINDS else "agent_lost", stage, f"{detail}, in the stage {stage}")


def _exit_code(ended: Mapping[str, Any], gone: Event | None) -> int | None:
    code = ended.get("exit_code", gone.data.get("exit_code") if gone else None)
    return None if code is None else int(code)
