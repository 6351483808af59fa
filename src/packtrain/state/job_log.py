"""The events of one job, collected in any order, and the `JobState` that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from packtrain.events import Event, Failure, kinds
from packtrain.state.arrival_times import ArrivalTimes
from packtrain.state.execution import (
    AgentEvents,
    Attempt,
    EngineEvents,
    Execution,
    apply_progress,
    build_execution,
)
from packtrain.state.job import HOLD_QUEUE_TIMEOUT, JobResult, JobState, event_order
from packtrain.state.pool_events import PoolEvents, pair_with_agents
from packtrain.state.slot_time import SlotTimeline

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
_POOL_KINDS = frozenset(
    {
        kinds.EXECUTION_STARTED,
        kinds.EXECUTION_INTERRUPTED,
        kinds.ATTEMPT_HELD,
        kinds.ATTEMPT_RELEASED,
        kinds.ATTEMPT_TRANSFER,
    }
)
_CHANGE_KINDS = (kinds.AGENT_ENDED, kinds.ATTEMPT_GONE, kinds.DECISION_MADE)


def _first(current: Event | None, event: Event) -> Event:
    order = event_order(event)
    return event if current is None or order < event_order(current) else current


def _last(current: Event | None, event: Event) -> Event:
    order = event_order(event)
    return event if current is None or order >= event_order(current) else current


@dataclass(slots=True)
class AttemptLog:
    """The events of one attempt, without those of its agents."""

    submit_decision: Event | None = None
    submitted_event: Event | None = None  # the first; after a crash another supervisor may confirm the attempt again
    gone_event: Event | None = None
    cancel_decision: Event | None = None  # the first decision to cancel or move it
    move_decision: Event | None = None
    hold_decisions: dict[int, Event] = field(default_factory=dict)  # by the hold's sequence number
    pool_events: PoolEvents = field(default_factory=PoolEvents)
    progress: Mapping[str, Any] = field(default_factory=dict)  # the newest snapshot
    _timeline: SlotTimeline | None = None  # cache

    def add_pool_event(self, event: Event, received_at: float) -> None:
        self.pool_events.add(event, received_at)
        self._timeline = None

    def add_submitted(self, event: Event) -> None:
        self.submitted_event = _first(self.submitted_event, event)

    def add_gone(self, event: Event) -> None:
        self.gone_event, self._timeline = event, None

    def add_decision(self, event: Event) -> None:
        action = event.data.get("action")
        if action == "submit":
            self.submit_decision, self._timeline = _first(self.submit_decision, event), None
        elif action in ("cancel", "move"):
            self.cancel_decision = _first(self.cancel_decision, event)
            if action == "move":
                self.move_decision = _first(self.move_decision, event)
        elif action in ("release", "give_up"):
            hold_seq = int(event.data["hold"])
            self.hold_decisions[hold_seq] = _last(self.hold_decisions.get(hold_seq), event)

    def build(self, decision: Event) -> Attempt:
        """Return what is known about the attempt."""
        if self._timeline is None and self.pool_events:
            self._timeline = self.pool_events.fold_timeline(decision.wall, self.gone_event)
        return Attempt(
            str(decision.data["attempt"]),
            event_order(decision),
            overrides=decision.data.get("overrides") or {},
            copy_of=str(decision.data.get("copy_of", "")),
            reason=str(decision.data.get("reason", "")),
            cancel_order=event_order(self.cancel_decision) if self.cancel_decision else None,
            cancel_reason=str(self.cancel_decision.data.get("reason", "")) if self.cancel_decision else "",
            move=self.move_decision.data if self.move_decision else None,
            holds=tuple(self.pool_events.holds),
            hold_decisions={seq: str(event.data["action"]) for seq, event in self.hold_decisions.items()},
            pool_executions=tuple(self.pool_events.executions),
            timeline=self._timeline,
            progress=self.progress,
        )


class JobLog:
    """The events of one job. `state` is built when it is first asked for, and cached until the next event."""

    def __init__(self, job_id: str) -> None:
        self.id = job_id
        self._point: Mapping[str, str] = {}
        self._attempts: dict[str, AttemptLog] = {}
        self._agents: dict[str, AgentEvents] = {}  # by emitter
        self.last_result: JobResult | None = None
        self._reopen_decision: Event | None = None  # the newest
        self._accept_decision: Event | None = None  # the first counts
        self._requests: dict[str, Event] = {}
        self._handled_requests: set[str] = set()
        self._arrival_times = ArrivalTimes()
        self._changed_at = 0.0
        self._state: JobState | None = None

    def set_point(self, point: Mapping[str, str]) -> None:
        """Set the job's point of the matrix."""
        self._point, self._state = point, None

    def apply(self, event: Event, received_at: float) -> None:
        """Add an event that the store received at the given time."""
        self._state = None
        if event.kind in AGENT_KINDS:
            self._agents.setdefault(event.emitter, AgentEvents(event.emitter)).add(event)
        elif event.kind in _POOL_KINDS:
            self._attempt(event).add_pool_event(event, received_at)
        elif event.kind == kinds.ATTEMPT_SUBMITTED:
            self._attempt(event).add_submitted(event)
        elif event.kind == kinds.ATTEMPT_GONE:
            self._attempt(event).add_gone(event)
        elif event.kind == kinds.DECISION_MADE:
            self._add_decision(event)
        elif event.kind == kinds.JOB_ENDED:
            result = JobResult.from_event(event)
            self.last_result = max(self.last_result or result, result, key=lambda one: one.order)
            self._handled_requests.update(event.data.get("requests", ()))
        elif event.kind == kinds.USER_REQUESTED:
            self._requests[f"{event.emitter}:{event.seq}"] = event
        if event.kind in _CHANGE_KINDS:
            self._changed_at = max(self._changed_at, received_at)
        self._arrival_times.apply(event, received_at)

    def _attempt(self, event: Event) -> AttemptLog:
        return self._attempts.setdefault(str(event.data["attempt"]), AttemptLog())

    def _add_decision(self, event: Event) -> None:
        action = event.data.get("action")
        if action == "reopen":
            self._reopen_decision = _last(self._reopen_decision, event)
            self._handled_requests.update(event.data.get("requests", ()))
        elif action == "accept":
            self._accept_decision = _first(self._accept_decision, event)
        else:
            self._attempt(event).add_decision(event)

    def update_progress(self, attempt_id: str, progress: Mapping[str, Any], now: float = 0.0) -> None:
        """Replace the progress snapshot of an attempt. Snapshots come from the engine and are not stored as events."""
        attempt = self._attempts.setdefault(attempt_id, AttemptLog())
        if progress != attempt.progress:
            attempt.progress, self._state = progress, None
            self._arrival_times.record_progress(attempt_id, now)

    @property
    def result(self) -> JobResult | None:
        """The result; None if there is none, or if the job was reopened since."""
        result, reopen = self.last_result, self._reopen_decision
        return None if result is None or (reopen and event_order(reopen) >= result.order) else result

    @property
    def state(self) -> JobState:
        """What follows from the events."""
        if self._state is None:
            self._state = self._build()
        return self._state

    def _build(self) -> JobState:
        attempts = [
            log.build(log.submit_decision) for log in self._attempts.values() if log.submit_decision is not None
        ]
        attempts.sort(key=lambda attempt: attempt.order)
        return JobState(
            self.id,
            self._point,
            {attempt.id: attempt for attempt in attempts},
            tuple(self._build_executions(attempts)),
            self.result,
            reopened_order=event_order(self._reopen_decision) if self._reopen_decision else None,
            accepted_attempt_id=str(self._accept_decision.data["attempt"]) if self._accept_decision else "",
            accepted_emitter=str(self._accept_decision.data.get("emitter", "")) if self._accept_decision else "",
            open_requests={key: e.data for key, e in self._requests.items() if key not in self._handled_requests},
            changed_at=self._changed_at,
        )

    # Executions

    def _build_executions(self, attempts: Sequence[Attempt]) -> list[Execution]:
        agents = sorted(self._agents.values(), key=lambda agent: (agent.worker_started_at, agent.emitter))
        executions: list[Execution] = []
        for attempt in attempts:
            own_agents = [agent for agent in agents if agent.attempt_id == attempt.id]
            for execution in self._build_attempt_executions(attempt, own_agents):
                executions.append(self._complete(execution, attempt, len(executions) + 1))
        return executions

    def _build_attempt_executions(self, attempt: Attempt, agents: list[AgentEvents]) -> list[Execution]:
        """Build the executions of one attempt, which has several if the pool started it again.

        The attempt's current hold and its end belong to the last execution, unless that one was interrupted before and
        the attempt is queued. Then an execution without a start is added.
        """
        log, starts = self._attempts[attempt.id], attempt.pool_executions
        last_events = EngineEvents(log.submitted_event, log.gone_event, log.pool_events.current_hold)
        if not starts:
            return [build_execution(attempt, last_events, agent) for agent in agents or (None,)]
        is_held_in_queue = last_events.hold is not None and not last_events.hold.has_ended_execution
        is_queued = starts[-1].end_event is not None and (last_events.gone_event is None or is_held_in_queue)
        earlier_events = EngineEvents(log.submitted_event)
        *earlier, (last_start, last_agent) = pair_with_agents(starts, agents)
        executions = [build_execution(attempt, earlier_events, agent, start) for start, agent in earlier]
        executions.append(
            build_execution(attempt, earlier_events if is_queued else last_events, last_agent, last_start)
        )
        return [*executions, build_execution(attempt, last_events, None)] if is_queued else executions

    def _complete(self, execution: Execution, attempt: Attempt, number: int) -> Execution:
        """Add the fields that do not follow from the execution's own events."""
        updated = apply_progress(execution, attempt.progress) if attempt.progress else execution
        times = self._arrival_times.times_of(execution, updated.stage)
        return replace(updated, number=number, failure=self._resolve_failure(execution, attempt), **times)

    def _resolve_failure(self, execution: Execution, attempt: Attempt) -> Failure | None:
        """Return the failure, with the supervisor's reason if a supervisor ended the execution.

        The agent only knows that it received a signal.
        """
        failure = execution.failure
        never_ran = not execution.emitter and not execution.execution_number
        if failure and never_ran and attempt.hold_decisions.get(HOLD_QUEUE_TIMEOUT):
            return Failure.from_kind("no_matching_node", failure.stage, "no node of the pool took the attempt")
        if failure is None or attempt.cancel_order is None:
            return failure
        accept = self._accept_decision
        is_superseded = accept is not None and event_order(accept) < attempt.cancel_order
        kind = "too_slow" if attempt.move is not None else "superseded" if is_superseded else ""
        return Failure.from_kind(kind, failure.stage, attempt.cancel_reason) if kind else failure
