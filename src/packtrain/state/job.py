"""One job: its attempts and its verdict. Collects events in any order; properties draw the picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from packtrain.events import Event, Failure, kinds
from packtrain.state.arrival_times import ArrivalTimes
from packtrain.state.execution import AgentEvents, Attempt, EngineEvents, Execution, build_execution
from packtrain.state.live_progress import apply_progress
from packtrain.state.pool_events import Hold, PoolEvents, pair_with_agents
from packtrain.state.pool_time import PoolTimes
from packtrain.state.transitions import JOB_STATUS_PRECEDENCE, LIVE_STATUSES, ExecutionStatus, JobStatus

EventOrder = tuple[int, int]  # (epoch, seq): the order of everything supervisors of a run wrote
_NEVER: EventOrder = (-1, -1)
AGENT_KINDS = frozenset(
    {
        kinds.AGENT_STARTED,
        kinds.AGENT_ENDED,
        kinds.STAGE_STARTED,
        kinds.STAGE_ENDED,
        kinds.STEP_STARTED,
        kinds.STEP_ENDED,
        kinds.PROGRESS,
        kinds.METRIC,
        kinds.CHECKPOINT_SAVED,
        kinds.CHECKPOINT_RESTORED,
        kinds.NOTICE,
    }
)


HOLD_QUEUE_TIMEOUT = -1  # given up in this place of holds: it found none
_NO_POOL_EVENTS = PoolEvents()
_EMPTY_MAPPING: Mapping[Any, Any] = MappingProxyType({})  # shared
_EMPTY_DICT: dict[Any, Any] = {}  # of what shed all; never changed
_POOL_KINDS = frozenset(
    {
        kinds.EXECUTION_STARTED,
        kinds.EXECUTION_INTERRUPTED,
        kinds.ATTEMPT_HELD,
        kinds.ATTEMPT_RELEASED,
        kinds.ATTEMPT_TRANSFER,
    }
)


_TIMED_KINDS = _POOL_KINDS | {kinds.ATTEMPT_SUBMITTED, kinds.ATTEMPT_GONE}
_NON_EXECUTION_KINDS = frozenset(
    {kinds.ATTEMPT_TRANSFER, kinds.JOB_ENDED, kinds.USER_REQUESTED}
)  # they change no attempt


@dataclass(frozen=True, slots=True)
class JobResult:
    status: JobStatus
    order: EventOrder
    emitter: str = ""  # of a succeeded one: the agent whose outputs were accepted
    failure: Failure | None = None
    reason: str = ""

    @classmethod
    def from_event(cls, event: Event) -> JobResult:
        data = event.data
        failure = Failure.from_data(data["failure"]) if data.get("failure") else None
        return cls(
            JobStatus(data["result"]),
            event_order(event),
            data.get("emitter", ""),
            failure,
            data.get("reason", ""),
        )


def event_order(event: Event) -> EventOrder:
    return (int(event.data.get("epoch", 0)), event.seq)


@dataclass(slots=True)
class _JobView:
    """A job's attempts, and those of them that are asked for again and again."""

    executions: tuple[Execution, ...]
    recent_executions: tuple[Execution, ...]
    live_executions: tuple[Execution, ...]
    counted_failures: tuple[Execution, ...] | None = None


_EMPTY_VIEW = _JobView((), (), (), ())


def _empty_mapping() -> Mapping[Any, Any]:
    return _EMPTY_MAPPING


@dataclass(slots=True)
class JobState:
    id: str
    point: Mapping[str, str] = field(default_factory=dict)
    _attempts: dict[str, Attempt] = field(default_factory=dict)
    _submitted_events: dict[str, Event] = field(default_factory=dict)
    _gone_events: dict[str, Event] = field(default_factory=dict)
    _agent_events: dict[str, AgentEvents] = field(default_factory=dict)
    _pool_events: dict[str, PoolEvents] = field(default_factory=dict)
    _result: JobResult | None = None
    _reopened_order: EventOrder = _NEVER
    # What few jobs have is replaced, not changed: the others share one that is empty.
    _requests: Mapping[str, Event] = field(default_factory=_empty_mapping)
    _handled_requests: frozenset[str] = frozenset()
    _cancelled: Mapping[str, tuple[EventOrder, str]] = field(
        default_factory=_empty_mapping
    )  # by decision: when, and why
    _hold_decisions: Mapping[tuple[str, int], str] = field(
        default_factory=_empty_mapping
    )  # (decision, hold): release, give_up
    _moves: Mapping[str, Event] = field(default_factory=_empty_mapping)  # by decision
    _accepted: tuple[EventOrder, str] | None = None  # whose outputs were chosen; the first choice counts
    _progress: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # by decision
    _view: _JobView | None = None  # drawn when asked for
    _pool_times: dict[str, PoolTimes] = field(default_factory=dict)  # by decision, counted when asked for
    _arrival_times: ArrivalTimes = field(default_factory=ArrivalTimes)
    changed_at: float = 0.0  # when the newest lifecycle event reached the store, by its clock

    def apply(self, event: Event, received_at: float) -> None:
        if event.kind in _TIMED_KINDS:
            self._pool_times.clear()
        if event.kind not in _NON_EXECUTION_KINDS:
            self._view = None
        if event.kind in AGENT_KINDS:
            self._events_of_agent(event.emitter).add(event)
        elif event.kind in _POOL_KINDS:
            self._events_of_pool(str(event.data["attempt"])).add(event, received_at)
        elif event.kind in self._HANDLERS:
            self._HANDLERS[event.kind](self, event)
        if event.kind in (kinds.AGENT_ENDED, kinds.ATTEMPT_GONE, kinds.DECISION_MADE):
            self.changed_at = max(self.changed_at, received_at)
        self._arrival_times.apply(event, received_at)

    def _events_of_agent(self, emitter: str) -> AgentEvents:
        if emitter not in self._agent_events:
            self._agent_events[emitter] = AgentEvents(emitter)
        return self._agent_events[emitter]

    def _events_of_pool(self, attempt_id: str) -> PoolEvents:
        if attempt_id not in self._pool_events:
            self._pool_events[attempt_id] = PoolEvents()
        return self._pool_events[attempt_id]

    def _apply_decision(self, event: Event) -> None:
        action = event.data.get("action")
        if action == "submit":
            self._apply_submit(event)
        elif action == "reopen":
            self._reopened_order = max(self._reopened_order, event_order(event))
            self._handled_requests = self._handled_requests.union(event.data.get("requests", ()))
        elif action in ("cancel", "move"):
            target, said = str(event.data.get("attempt", "")), (event_order(event), str(event.data.get("reason", "")))
            self._cancelled = {**self._cancelled, target: min(said, self._cancelled.get(target, said))}
            if action == "move":
                first = min(event, self._moves.get(target, event), key=event_order)
                self._moves = {**self._moves, target: first}
        elif action == "accept":
            chosen = (event_order(event), str(event.data["attempt"]))
            self._accepted = min(chosen, self._accepted or chosen)
        elif action in ("release", "give_up"):
            hold = (str(event.data["attempt"]), int(event.data["hold"]))
            self._hold_decisions = {**self._hold_decisions, hold: action}

    def _apply_submit(self, event: Event) -> None:
        about, copy_of = dict(event.data.get("overrides") or {}), str(event.data.get("copy_of", ""))
        id_, why = event.data["attempt"], str(event.data.get("reason", ""))
        self._attempts[id_] = Attempt(id_, event_order(event), overrides=about, copy_of=copy_of, reason=why)

    def update_progress(self, attempt_id: str, progress: Mapping[str, Any], now: float = 0.0) -> None:
        """How far a running attempt is, as the engine last saw it; not kept as an event."""
        if progress != self._progress.get(attempt_id):
            self._progress[attempt_id], self._view = progress, None
            self._arrival_times.record_progress(attempt_id, now)

    def latest_progress(self, attempt_id: str) -> tuple[Mapping[str, Any], float]:
        """The newest of an attempt, and when it came; without its own words."""
        return self._progress.get(attempt_id, {}), self._arrival_times.progress_at(attempt_id)

    @property
    def log_tail(self) -> Mapping[str, Any]:
        """The newest bytes of a step's log, as a pool told them: `file`, `end`, `text`."""
        found = self._progress.get(self.latest_execution.attempt_id, {}).get("tail") if self.latest_execution else None
        return found if isinstance(found, dict) else {}

    def _apply_submitted(self, event: Event) -> None:
        """The first confirmation counts; a repeated one after a crash says the same."""
        known = self._submitted_events.get(event.data["attempt"])
        if known is None or event_order(event) < event_order(known):
            self._submitted_events[event.data["attempt"]] = event

    def _apply_gone(self, event: Event) -> None:
        self._gone_events[event.data["attempt"]] = event

    def _apply_result(self, event: Event) -> None:
        if self._result is None or self._result.order < event_order(event):
            self._result = JobResult.from_event(event)
        self._handled_requests = self._handled_requests.union(event.data.get("requests", ()))

    def _apply_request(self, event: Event) -> None:
        self._requests = {**self._requests, f"{event.emitter}:{event.seq}": event}

    _HANDLERS = {  # noqa: RUF012
        kinds.DECISION_MADE: _apply_decision,
        kinds.ATTEMPT_SUBMITTED: _apply_submitted,
        kinds.ATTEMPT_GONE: _apply_gone,
        kinds.JOB_ENDED: _apply_result,
        kinds.USER_REQUESTED: _apply_request,
    }

    @property
    def result(self) -> JobResult | None:
        """None while there is none, or after the job was opened again."""
        return self._result if self._result and self._result.order > self._reopened_order else None

    @property
    def status(self) -> JobStatus:
        if self.result:
            return self.result.status
        seen = {attempt.status for attempt in self.executions}
        return next((job for attempt, job in JOB_STATUS_PRECEDENCE if attempt in seen), JobStatus.WAITING)

    @property
    def executions(self) -> tuple[Execution, ...]:
        """In the order of their decisions; of one decision that a pool reran, by the agents' clocks."""
        return self._current_view.executions

    def drop_cache(self) -> None:
        """It has its verdict: what was drawn of it takes more memory than what it is drawn from."""
        self._view = None
        self._pool_times.clear()
        self._progress.clear()

    def drop_events(self) -> None:
        """Keep its verdict only. Takes no more events."""
        self._view = None
        self._arrival_times.clear()
        for name in _DICT_FIELDS:
            setattr(self, name, _EMPTY_DICT)

    @property
    def _current_view(self) -> _JobView:
        if self._view is None:
            if not self._attempts:
                return _EMPTY_VIEW
            attempts = tuple(self._build_executions())
            opened = self._reopened_order is _NEVER
            recent = (a for a in attempts if opened or self._attempts[a.attempt_id].order > self._reopened_order)
            self._view = _JobView(attempts, tuple(recent), tuple(a for a in attempts if a.status in LIVE_STATUSES))
        return self._view

    def _build_executions(self) -> list[Execution]:
        heard = sorted(self._agent_events.values(), key=_worker_start_order)
        drawn: list[Execution] = []
        for submission in sorted(self._attempts.values(), key=lambda s: s.order):
            drawn += self._build_attempt_executions(
                submission, [one for one in heard if one.attempt_id == submission.id]
            )
        return [self._add_live_fields(number, attempt) for number, attempt in enumerate(drawn, 1)]

    def _add_live_fields(self, number: int, execution: Execution) -> Execution:
        """With what is known of it besides its own events."""
        seen = self._progress.get(execution.attempt_id)
        shown = apply_progress(execution, seen) if seen else execution
        dates = self._arrival_times.times_of(execution, shown.stage)
        shown.__dict__.update(dates, number=number, failure=self._resolve_failure(execution))  # nobody has seen it yet
        return shown

    def _resolve_failure(self, execution: Execution) -> Failure | None:
        """A supervisor's reason counts more than the agent's, which only felt that it was ended."""
        never_ran = not execution.emitter and not execution.execution_number
        if execution.failure and never_ran and self.decision_for(execution.attempt_id, HOLD_QUEUE_TIMEOUT):
            return Failure.from_kind("no_matching_node", execution.failure.stage, "no machine of the pool took it")
        if execution.failure is None or not self.has_cancel_decision(execution.attempt_id):
            return execution.failure
        outrun = self._accepted is not None and self._accepted[0] < self._cancelled[execution.attempt_id][0]
        kind = "too_slow" if execution.attempt_id in self._moves else "superseded" if outrun else ""
        reason = self.cancel_reason(execution.attempt_id)
        return Failure.from_kind(kind, execution.failure.stage, reason) if kind else execution.failure

    def _build_attempt_executions(self, attempt: Attempt, agent_events: list[AgentEvents]) -> list[Execution]:
        """The attempts of one decision: several if a pool started it again. Only the last can be kept back or gone; one
        that was kept back between two starts, and gone then, is none of them."""
        id_, confirmed = attempt.id, self._submitted_events.get(attempt.id)
        stay = self._pool_events.get(id_, _NO_POOL_EVENTS)
        last, starts = EngineEvents(confirmed, self._gone_events.get(id_), stay.current_hold), stay.executions
        if not starts:
            return [build_execution(attempt, last, one) for one in agent_events or (None,)]
        between = last.hold is not None and not last.hold.has_ended_execution
        known, waits = (
            EngineEvents(confirmed),
            starts[-1].end_event is not None and (last.gone_event is None or between),
        )
        *earlier, (start, one) = pair_with_agents(starts, agent_events)
        drawn = [build_execution(attempt, known, one, start) for start, one in earlier]
        drawn.append(build_execution(attempt, known if waits else last, one, start))
        return [*drawn, build_execution(attempt, last, None)] if waits else drawn

    @property
    def is_newly_submitted(self) -> bool:
        """Asked for once, as planned, and nothing was heard of it since: known without drawing it."""
        calm = len(self._attempts) == 1 and not (
            self._agent_events or self._pool_events or self._gone_events or self._cancelled
        )
        return calm and self._result is None and not any(one.overrides for one in self._attempts.values())

    @property
    def recent_executions(self) -> tuple[Execution, ...]:
        """The attempts since the job was last opened: those that count against its budget."""
        return self._current_view.recent_executions

    @property
    def counted_failures(self) -> tuple[Execution, ...]:
        """Those that cost the job one of its attempts: it failed or was lost; or it left, or the pool ended it,
        without the training being further than before. What the pool took back and started again is free."""
        picture = self._current_view
        if picture.counted_failures is None:
            picture.counted_failures = self._find_counted_failures(picture.recent_executions)
        return picture.counted_failures

    def _find_counted_failures(self, recent_executions: tuple[Execution, ...]) -> tuple[Execution, ...]:
        found, furthest = [], -1
        before: dict[str, int] = {}  # by decision: how far the training was when it was first started
        for attempt, follower in zip_longest(recent_executions, recent_executions[1:]):
            over = not attempt.is_live and attempt.status is not ExecutionStatus.SUCCEEDED
            further = furthest > before.setdefault(attempt.attempt_id, furthest)
            free = _was_restarted_by_pool(attempt, follower) or (further and _is_restart_loop(attempt))
            if over and _counts_as_failure(attempt, furthest) and not free:
                found.append(attempt)
            furthest = max(furthest, attempt.checkpoint_step)
        # One that a supervisor ended, since it was interrupted itself, says nothing of the job.
        return tuple(attempt for attempt in found if not self.has_cancel_decision(attempt.attempt_id))

    @property
    def live_executions(self) -> tuple[Execution, ...]:
        return self._current_view.live_executions

    @property
    def latest_execution(self) -> Execution | None:
        """The one to speak of: whose outputs were accepted, else of several that live one that runs, else the last."""
        if self.result and self.result.emitter:
            winner = next((a for a in self.executions if a.emitter == self.result.emitter), None)
            return winner or self.executions[-1]
        running = [a for a in self.executions if a.status is ExecutionStatus.RUNNING]
        return running[0] if running else self.executions[-1] if self.executions else None

    @property
    def winning_execution(self) -> Execution | None:
        """The attempt whose outputs are the job's: the one that was chosen, else the first that succeeded."""
        done = [attempt for attempt in self.executions if attempt.status is ExecutionStatus.SUCCEEDED]
        if len(done) < 2:
            return done[0] if done else None
        chosen = [attempt for attempt in done if self._accepted and attempt.attempt_id == self._accepted[1]]
        return min(chosen or done, key=lambda attempt: (attempt.ended_at, attempt.number), default=None)

    @property
    def accepted_attempt_id(self) -> str:
        """The decision whose outputs were chosen, where there was a choice."""
        return self._accepted[1] if self._accepted else ""

    @property
    def open_requests(self) -> dict[str, Mapping[str, Any]]:
        """What people asked for and no supervisor has answered yet."""
        return {key: e.data for key, e in self._requests.items() if key not in self._handled_requests}

    def has_cancel_decision(self, attempt_id: str) -> bool:
        """Whether a supervisor already told the engine to end this attempt."""
        return attempt_id in self._cancelled

    @property
    def moves(self) -> Mapping[str, Mapping[str, Any]]:
        """By decision: which places are avoided since, and why."""
        if not self._moves:
            return {}
        opened = {attempt.attempt_id for attempt in self.recent_executions}
        return {decision: said.data for decision, said in self._moves.items() if decision in opened}

    def cancel_reason(self, attempt_id: str) -> str:
        return self._cancelled[attempt_id][1] if attempt_id in self._cancelled else ""

    def submit_reason(self, attempt_id: str) -> str:
        """Why it was decided to make this attempt."""
        return self._attempts[attempt_id].reason if attempt_id in self._attempts else ""

    def hold_decision(self, hold: Hold) -> str:
        """What a supervisor decided about it: release, give_up or, so far, nothing."""
        return self._hold_decisions.get((str(hold.event.data["attempt"]), hold.seq), "")

    def decision_for(self, attempt_id: str, hold_seq: int) -> str:
        return self._hold_decisions.get((attempt_id, hold_seq), "")

    def count_releases(self, attempt_id: str, except_kind: str = "") -> int:
        """How often a supervisor had it released; `besides` holds of one kind."""
        held = (
            {hold.seq: hold.failure_kind for hold in self._pool_events.get(attempt_id, _NO_POOL_EVENTS).holds}
            if except_kind
            else {}
        )
        answers = [(hold, answer) for (known, hold), answer in self._hold_decisions.items() if known == attempt_id]
        return sum(
            answer == "release" and not (except_kind and held.get(hold) == except_kind) for hold, answer in answers
        )

    def has_progressed_since(self, hold: Hold) -> bool:
        """Whether its training did since the pool last kept it back for the same reason."""
        decision = str(hold.event.data["attempt"])
        starts = self._pool_events.get(decision, _NO_POOL_EVENTS).executions_since(hold)
        since = [
            a.checkpoint_step for a in self.executions if a.attempt_id == decision and a.execution_number in starts
        ]
        before = [
            a.checkpoint_step for a in self.executions if a.attempt_id != decision or a.execution_number not in starts
        ]
        return max(since, default=-1) > max(before, default=-1)

    @property
    def waiting_since(self) -> float:
        """When it began to wait for a machine, if it does."""
        return max(self.changed_at, *(attempt.ended_at for attempt in self.executions), 0.0)

    def pool_times(self, attempt_id: str) -> PoolTimes | None:
        """Where its time went by the pool's log; None where there is no pool, or it has not told anything."""
        stay, confirmed, gone = (
            self._pool_events.get(attempt_id),
            self._submitted_events.get(attempt_id),
            self._gone_events.get(attempt_id),
        )
        if stay is None:
            return None
        if attempt_id not in self._pool_times:
            walls = (confirmed.wall if confirmed else None, gone.wall if gone else None)
            self._pool_times[attempt_id] = stay.compute_times(*walls)
        return self._pool_times[attempt_id]

    def overrides_for(self, attempt_id: str) -> Mapping[str, Any]:
        """What it was given otherwise than planned."""
        return self._attempts[attempt_id].overrides if attempt_id in self._attempts else {}

    @property
    def n_attempts(self) -> int:
        return len(self._attempts)


_DICT_FIELDS = tuple(one.name for one in fields(JobState) if one.default_factory is dict and one.name != "point")


def _worker_start_order(agent_events: AgentEvents) -> tuple[float, str]:
    return agent_events.worker_started_at, agent_events.emitter


def _was_restarted_by_pool(execution: Execution, successor: Execution | None) -> bool:
    """The pool itself ended it, and started it again."""
    same = successor is not None and successor.attempt_id == execution.attempt_id
    return same and execution.failure is not None and execution.failure.blame == "pool"


def _is_restart_loop(execution: Execution) -> bool:
    """It was given up after many starts, between two of them."""
    return execution.failure is not None and execution.failure.kind == "restart_loop" and not execution.execution_number


def _counts_as_failure(execution: Execution, best_step: int) -> bool:
    by_pool = execution.failure is not None and execution.failure.blame == "pool"
    return execution.checkpoint_step <= best_step or not (by_pool or execution.status is ExecutionStatus.REQUEUED)
