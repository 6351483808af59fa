"""The state of one job: its attempts, their executions, and its result.

`JobState` collects events in any order. Its executions are built when they are first asked for and cached until the
next event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from packtrain.events import Event, Failure, kinds
from packtrain.state.arrival_times import ArrivalTimes
from packtrain.state.execution import AgentEvents, Attempt, EngineEvents, Execution, apply_progress, build_execution
from packtrain.state.pool_events import Hold, PoolEvents, pair_with_agents
from packtrain.state.slot_time import SlotTimeline
from packtrain.state.transitions import JOB_STATUS_PRECEDENCE, LIVE_STATUSES, ExecutionStatus, JobStatus

EventOrder = tuple[int, int]  # (epoch, seq): the order of all events that the supervisors of a run emitted
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


HOLD_QUEUE_TIMEOUT = -1  # used as the hold number of a decision to give up an attempt that no node has taken
_NO_POOL_EVENTS = PoolEvents()
_EMPTY_MAPPING: Mapping[Any, Any] = MappingProxyType({})  # shared by all jobs
_EMPTY_DICT: dict[Any, Any] = {}  # shared by jobs that dropped their events; never modified
_POOL_KINDS = frozenset(
    {
        kinds.EXECUTION_STARTED,
        kinds.EXECUTION_INTERRUPTED,
        kinds.ATTEMPT_HELD,
        kinds.ATTEMPT_RELEASED,
        kinds.ATTEMPT_TRANSFER,
    }
)


_TIMED_KINDS = _POOL_KINDS | {kinds.DECISION_MADE, kinds.ATTEMPT_GONE}
_NON_EXECUTION_KINDS = frozenset({kinds.ATTEMPT_TRANSFER, kinds.JOB_ENDED, kinds.USER_REQUESTED})


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job, as a supervisor decided it."""

    status: JobStatus
    order: EventOrder
    emitter: str = ""  # of a succeeded job: the agent whose outputs were accepted
    failure: Failure | None = None
    reason: str = ""

    @classmethod
    def from_event(cls, event: Event) -> JobResult:
        """Read the result from a `job.ended` event."""
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
    """Return the position of a supervisor's event in the order of all supervisors' events."""
    return (int(event.data.get("epoch", 0)), event.seq)


@dataclass(slots=True)
class _JobView:
    """The executions of a job, and subsets of them that are needed often."""

    executions: tuple[Execution, ...]
    recent_executions: tuple[Execution, ...]
    live_executions: tuple[Execution, ...]
    counted_failures: tuple[Execution, ...] | None = None  # None: not computed yet


_EMPTY_VIEW = _JobView((), (), (), ())


def _empty_mapping() -> Mapping[Any, Any]:
    return _EMPTY_MAPPING


@dataclass(slots=True)
class JobState:
    """The state of one job."""

    id: str
    point: Mapping[str, str] = field(default_factory=dict)  # of the matrix
    _attempts: dict[str, Attempt] = field(default_factory=dict)  # by attempt id, like the next four
    _submitted_events: dict[str, Event] = field(default_factory=dict)
    _gone_events: dict[str, Event] = field(default_factory=dict)
    _agent_events: dict[str, AgentEvents] = field(default_factory=dict)  # by emitter
    _pool_events: dict[str, PoolEvents] = field(default_factory=dict)
    _result: JobResult | None = None
    _reopened_order: EventOrder = _NEVER
    # Few jobs have any of these, so all others share one empty mapping. They are replaced, never modified.
    _requests: Mapping[str, Event] = field(default_factory=_empty_mapping)
    _handled_requests: frozenset[str] = frozenset()
    _cancelled: Mapping[str, tuple[EventOrder, str]] = field(default_factory=_empty_mapping)  # order and reason
    _hold_decisions: Mapping[tuple[str, int], str] = field(default_factory=_empty_mapping)  # by attempt id and hold
    _moves: Mapping[str, Event] = field(default_factory=_empty_mapping)  # by attempt id
    _accepted: tuple[EventOrder, str] | None = (
        None  # the attempt whose outputs were accepted; the first decision counts
    )
    _progress: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # by attempt id
    _view: _JobView | None = None  # cache
    _slot_timelines: dict[str, SlotTimeline] = field(default_factory=dict)  # cache, by attempt id
    _arrival_times: ArrivalTimes = field(default_factory=ArrivalTimes)
    changed_at: float = 0.0  # when the newest lifecycle event was received, by the store's clock

    def apply(self, event: Event, received_at: float) -> None:
        """Apply one event that the store received at the given time."""
        if event.kind in _TIMED_KINDS:
            self._slot_timelines.clear()
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
            attempt_id = str(event.data.get("attempt", ""))
            cancel = (event_order(event), str(event.data.get("reason", "")))
            self._cancelled = {**self._cancelled, attempt_id: min(cancel, self._cancelled.get(attempt_id, cancel))}
            if action == "move":
                first_move = min(event, self._moves.get(attempt_id, event), key=event_order)
                self._moves = {**self._moves, attempt_id: first_move}
        elif action == "accept":
            accepted = (event_order(event), str(event.data["attempt"]))
            self._accepted = min(accepted, self._accepted or accepted)
        elif action in ("release", "give_up"):
            hold_key = (str(event.data["attempt"]), int(event.data["hold"]))
            self._hold_decisions = {**self._hold_decisions, hold_key: action}

    def _apply_submit(self, event: Event) -> None:
        attempt_id = event.data["attempt"]
        self._attempts[attempt_id] = Attempt(
            attempt_id,
            event_order(event),
            event.wall,
            overrides=dict(event.data.get("overrides") or {}),
            copy_of=str(event.data.get("copy_of", "")),
            reason=str(event.data.get("reason", "")),
        )

    def update_progress(self, attempt_id: str, progress: Mapping[str, Any], now: float = 0.0) -> None:
        """Replace the progress snapshot of an attempt. Snapshots come from the engine and are not stored as events."""
        if progress != self._progress.get(attempt_id):
            self._progress[attempt_id], self._view = progress, None
            self._arrival_times.record_progress(attempt_id, now)

    def latest_progress(self, attempt_id: str) -> tuple[Mapping[str, Any], float]:
        """Return the newest progress snapshot of an attempt and when it was received."""
        return self._progress.get(attempt_id, {}), self._arrival_times.progress_at(attempt_id)

    @property
    def log_tail(self) -> Mapping[str, Any]:
        """The end of the current step's log, as the pool reported it: `file`, `end`, `text`."""
        latest = self.latest_execution
        tail = self._progress.get(latest.attempt_id, {}).get("log_tail") if latest else None
        return tail if isinstance(tail, dict) else {}

    def _apply_submitted(self, event: Event) -> None:
        """Keep the first confirmation. After a crash another supervisor may confirm the same attempt again."""
        first = self._submitted_events.get(event.data["attempt"])
        if first is None or event_order(event) < event_order(first):
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
        """The result; None if there is none, or if the job was reopened since."""
        return self._result if self._result and self._result.order > self._reopened_order else None

    @property
    def status(self) -> JobStatus:
        """The status of the result, or the status that follows from the executions."""
        if self.result:
            return self.result.status
        statuses = {execution.status for execution in self.executions}
        return next((job for status, job in JOB_STATUS_PRECEDENCE if status in statuses), JobStatus.WAITING)

    @property
    def executions(self) -> tuple[Execution, ...]:
        """All executions, sorted by attempt. Those of one attempt are sorted by execution or by the agents' clocks."""
        return self._current_view.executions

    def drop_cache(self) -> None:
        """Free the memory of everything that can be computed again."""
        self._view = None
        self._slot_timelines.clear()
        self._progress.clear()

    def drop_events(self) -> None:
        """Keep only the result, to save memory. No event may be applied afterwards."""
        self._view = None
        self._arrival_times.clear()
        for name in _DICT_FIELDS:
            setattr(self, name, _EMPTY_DICT)

    @property
    def _current_view(self) -> _JobView:
        if self._view is None:
            if not self._attempts:
                return _EMPTY_VIEW
            executions = tuple(self._build_executions())
            is_first_time = self._reopened_order is _NEVER
            recent = (
                e for e in executions if is_first_time or self._attempts[e.attempt_id].order > self._reopened_order
            )
            live = tuple(e for e in executions if e.status in LIVE_STATUSES)
            self._view = _JobView(executions, tuple(recent), live)
        return self._view

    def _build_executions(self) -> list[Execution]:
        agents = sorted(self._agent_events.values(), key=_worker_start_order)
        executions: list[Execution] = []
        for attempt in sorted(self._attempts.values(), key=lambda a: a.order):
            executions += self._build_attempt_executions(attempt, [a for a in agents if a.attempt_id == attempt.id])
        return [self._add_live_fields(number, execution) for number, execution in enumerate(executions, 1)]

    def _add_live_fields(self, number: int, execution: Execution) -> Execution:
        """Add the fields that do not follow from the execution's own events."""
        snapshot = self._progress.get(execution.attempt_id)
        updated = apply_progress(execution, snapshot) if snapshot else execution
        times = self._arrival_times.times_of(execution, updated.stage)
        # The object is new, so no caller has a reference to it yet.
        updated.__dict__.update(times, number=number, failure=self._resolve_failure(execution))
        return updated

    def _resolve_failure(self, execution: Execution) -> Failure | None:
        """Return the failure, with the supervisor's reason if a supervisor ended the execution.

        The agent only knows that it received a signal.
        """
        never_ran = not execution.emitter and not execution.execution_number
        if execution.failure and never_ran and self.decision_for(execution.attempt_id, HOLD_QUEUE_TIMEOUT):
            return Failure.from_kind(
                "no_matching_node", execution.failure.stage, "no node of the pool took the attempt"
            )
        if execution.failure is None or not self.has_cancel_decision(execution.attempt_id):
            return execution.failure
        is_superseded = self._accepted is not None and self._accepted[0] < self._cancelled[execution.attempt_id][0]
        kind = "too_slow" if execution.attempt_id in self._moves else "superseded" if is_superseded else ""
        reason = self.cancel_reason(execution.attempt_id)
        return Failure.from_kind(kind, execution.failure.stage, reason) if kind else execution.failure

    def _build_attempt_executions(self, attempt: Attempt, agent_events: list[AgentEvents]) -> list[Execution]:
        """Build the executions of one attempt, which has several if the pool started it again.

        The attempt's current hold and its end belong to the last execution, unless that one was interrupted before and
        the attempt is queued. Then an execution without a start is added.
        """
        submitted_event = self._submitted_events.get(attempt.id)
        pool_events = self._pool_events.get(attempt.id, _NO_POOL_EVENTS)
        starts = pool_events.executions
        last_events = EngineEvents(submitted_event, self._gone_events.get(attempt.id), pool_events.current_hold)
        if not starts:
            return [build_execution(attempt, last_events, agent) for agent in agent_events or (None,)]
        is_held_in_queue = last_events.hold is not None and not last_events.hold.has_ended_execution
        is_queued = starts[-1].end_event is not None and (last_events.gone_event is None or is_held_in_queue)
        earlier_events = EngineEvents(submitted_event)
        *earlier, (last_start, last_agent) = pair_with_agents(starts, agent_events)
        executions = [build_execution(attempt, earlier_events, agent, start) for start, agent in earlier]
        executions.append(
            build_execution(attempt, earlier_events if is_queued else last_events, last_agent, last_start)
        )
        return [*executions, build_execution(attempt, last_events, None)] if is_queued else executions

    @property
    def is_newly_submitted(self) -> bool:
        """Whether the job was submitted once, without overrides, and nothing was reported since.

        Cheap: does not build the executions.
        """
        has_news = self._agent_events or self._pool_events or self._gone_events or self._cancelled
        is_new = len(self._attempts) == 1 and not has_news and self._result is None
        return is_new and not any(attempt.overrides for attempt in self._attempts.values())

    @property
    def recent_executions(self) -> tuple[Execution, ...]:
        """The executions since the job was last reopened. Only these count against its budget."""
        return self._current_view.recent_executions

    @property
    def counted_failures(self) -> tuple[Execution, ...]:
        """The executions that count against the maximum number of attempts.

        An execution counts if it failed or was lost. One that requeued itself, or that the pool ended, counts only if
        it made no progress. One that the pool itself started again does not count.
        """
        view = self._current_view
        if view.counted_failures is None:
            view.counted_failures = self._find_counted_failures(view.recent_executions)
        return view.counted_failures

    def _find_counted_failures(self, recent_executions: tuple[Execution, ...]) -> tuple[Execution, ...]:
        counted, best_step = [], -1
        first_best_step: dict[str, int] = {}  # by attempt id: the best step when the attempt was first started
        for execution, successor in zip_longest(recent_executions, recent_executions[1:]):
            has_failed = not execution.is_live and execution.status is not ExecutionStatus.SUCCEEDED
            attempt_progressed = best_step > first_best_step.setdefault(execution.attempt_id, best_step)
            is_free = _was_restarted_by_pool(execution, successor) or (
                attempt_progressed and _is_restart_loop(execution)
            )
            if has_failed and _counts_as_failure(execution, best_step) and not is_free:
                counted.append(execution)
            best_step = max(best_step, execution.checkpoint_step)
        # An execution that a supervisor ended does not show anything about the job.
        return tuple(execution for execution in counted if not self.has_cancel_decision(execution.attempt_id))

    @property
    def live_executions(self) -> tuple[Execution, ...]:
        """The executions that have not ended."""
        return self._current_view.live_executions

    @property
    def latest_execution(self) -> Execution | None:
        """The execution to show: the accepted one, else a running one, else the last one."""
        if self.result and self.result.emitter:
            winner = next((e for e in self.executions if e.emitter == self.result.emitter), None)
            return winner or self.executions[-1]
        running = [e for e in self.executions if e.status is ExecutionStatus.RUNNING]
        return running[0] if running else self.executions[-1] if self.executions else None

    @property
    def winning_execution(self) -> Execution | None:
        """The execution whose outputs are the job's: the accepted one, else the first that succeeded."""
        succeeded = [e for e in self.executions if e.status is ExecutionStatus.SUCCEEDED]
        if len(succeeded) < 2:
            return succeeded[0] if succeeded else None
        accepted = [e for e in succeeded if self._accepted and e.attempt_id == self._accepted[1]]
        return min(accepted or succeeded, key=lambda e: (e.ended_at, e.number), default=None)

    @property
    def accepted_attempt_id(self) -> str:
        """The attempt whose outputs a supervisor accepted; "" if there was no choice to make."""
        return self._accepted[1] if self._accepted else ""

    @property
    def open_requests(self) -> dict[str, Mapping[str, Any]]:
        """Requests of users that no supervisor has handled yet."""
        return {key: e.data for key, e in self._requests.items() if key not in self._handled_requests}

    def has_cancel_decision(self, attempt_id: str) -> bool:
        """Return whether a supervisor decided to end this attempt."""
        return attempt_id in self._cancelled

    @property
    def moves(self) -> Mapping[str, Mapping[str, Any]]:
        """The decisions to move an attempt, by attempt id: the sites and nodes to avoid, and the reason."""
        if not self._moves:
            return {}
        recent_ids = {execution.attempt_id for execution in self.recent_executions}
        return {attempt_id: event.data for attempt_id, event in self._moves.items() if attempt_id in recent_ids}

    def cancel_reason(self, attempt_id: str) -> str:
        """Return why a supervisor ended this attempt, or ""."""
        return self._cancelled[attempt_id][1] if attempt_id in self._cancelled else ""

    def submit_reason(self, attempt_id: str) -> str:
        """Return why a supervisor submitted this attempt, or ""."""
        return self._attempts[attempt_id].reason if attempt_id in self._attempts else ""

    def hold_decision(self, hold: Hold) -> str:
        """Return what a supervisor decided about a hold: `release`, `give_up`, or "" if it has not decided."""
        return self._hold_decisions.get((str(hold.event.data["attempt"]), hold.seq), "")

    def decision_for(self, attempt_id: str, hold_seq: int) -> str:
        """Return the decision about a hold of an attempt, by the hold's number."""
        return self._hold_decisions.get((attempt_id, hold_seq), "")

    def count_releases(self, attempt_id: str, except_kind: str = "") -> int:
        """Return how often a supervisor released an attempt.

        Args:
            attempt_id: The attempt.
            except_kind: Releases of holds with this failure kind are not counted.
        """
        pool_events = self._pool_events.get(attempt_id, _NO_POOL_EVENTS)
        kind_by_seq = {hold.seq: hold.failure_kind for hold in pool_events.holds} if except_kind else {}
        decisions = [(seq, action) for (held_id, seq), action in self._hold_decisions.items() if held_id == attempt_id]
        return sum(
            action == "release" and not (except_kind and kind_by_seq.get(seq) == except_kind)
            for seq, action in decisions
        )

    def has_progressed_since(self, hold: Hold) -> bool:
        """Return whether the training progressed between the previous hold with the same failure kind and this one."""
        attempt_id = str(hold.event.data["attempt"])
        numbers = self._pool_events.get(attempt_id, _NO_POOL_EVENTS).executions_since(hold)
        steps_since: list[int] = []
        steps_before: list[int] = []
        for execution in self.executions:
            is_since = execution.attempt_id == attempt_id and execution.execution_number in numbers
            (steps_since if is_since else steps_before).append(execution.checkpoint_step)
        return max(steps_since, default=-1) > max(steps_before, default=-1)

    @property
    def waiting_since(self) -> float:
        """When the job began to wait for a node, if it does."""
        return max(self.changed_at, *(execution.ended_at for execution in self.executions), 0.0)

    def slot_timeline(self, attempt_id: str) -> SlotTimeline | None:
        """Return how an attempt's time in the pool was used; None if the pool reported nothing."""
        pool_events = self._pool_events.get(attempt_id)
        if pool_events is None or attempt_id not in self._attempts:
            return None
        if attempt_id not in self._slot_timelines:
            decided_at, gone_event = self._attempts[attempt_id].decided_at, self._gone_events.get(attempt_id)
            self._slot_timelines[attempt_id] = pool_events.fold_timeline(decided_at, gone_event)
        return self._slot_timelines[attempt_id]

    def overrides_for(self, attempt_id: str) -> Mapping[str, Any]:
        """Return the resources and sites of an attempt that differ from the plan."""
        return self._attempts[attempt_id].overrides if attempt_id in self._attempts else {}

    @property
    def n_attempts(self) -> int:
        """The number of attempts."""
        return len(self._attempts)


_DICT_FIELDS = tuple(f.name for f in fields(JobState) if f.default_factory is dict and f.name != "point")


def _worker_start_order(agent_events: AgentEvents) -> tuple[float, str]:
    return agent_events.worker_started_at, agent_events.emitter


def _was_restarted_by_pool(execution: Execution, successor: Execution | None) -> bool:
    """Return whether the pool ended an execution and started the same attempt again."""
    is_same_attempt = successor is not None and successor.attempt_id == execution.attempt_id
    return is_same_attempt and execution.failure is not None and execution.failure.blame == "pool"


def _is_restart_loop(execution: Execution) -> bool:
    """Return whether the attempt was given up while queued, because the pool had started it too often."""
    return execution.failure is not None and execution.failure.kind == "restart_loop" and not execution.execution_number


def _counts_as_failure(execution: Execution, best_step: int) -> bool:
    ended_by_pool = execution.failure is not None and execution.failure.blame == "pool"
    return execution.checkpoint_step <= best_step or not (ended_by_pool or execution.status is ExecutionStatus.REQUEUED)
