"""The simulated pool as an Engine: reports the same updates as the HTCondor engine, by a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from packtrain.engines.api import Capabilities, SubmitRequest
from packtrain.engines.updates import (
    AgentEventsReceived,
    AttemptUpdate,
    ExecutionInterrupted,
    ExecutionStarted,
    Gone,
    Held,
    ProgressReported,
    Queued,
    Released,
    Running,
)
from packtrain.errors import EXIT_REQUEUE
from packtrain.events import Event, Failure, kinds
from packtrain.report.history import Outcome, Phase
from packtrain.simulate.event_queue import EventQueue
from packtrain.simulate.job_behaviour import JobBehaviour, SessionEnd
from packtrain.simulate.pool_model import PoolModel
from packtrain.simulate.simulated_pool import SimulatedPool
from packtrain.simulate.slot_session import SimulatedAttempt, SimulatedSession

_CAPABILITIES = Capabilities(
    "simulated",
    True,
    1 << 20,
    1 << 40,
    1 << 20,
    has_shared_folder=False,
    writes_journals=False,
    has_multiple_sites=True,
)
TOTAL_STEPS = 10_000  # training steps, so that progress is a whole number
_HOLD_CODES = {Outcome.TIME_LIMIT: 47, Outcome.HELD: 13}
_MAX_IDLE_S = 3600.0  # longest wait while time alone changes nothing


class SimulatedEngine:
    """Implements `engines.api.Engine`.

    `needs_clock_tick` returns whether time alone may change the supervisor's decisions; then it polls at the usual
    interval, otherwise only when something happens.
    """

    def __init__(
        self,
        run_id: str,
        model: PoolModel,
        behaviour: JobBehaviour,
        seed: int,
        poll_interval_s: float = 30.0,
        progress_interval_s: float = 900.0,
        max_straggler_checks: float = 40.0,
    ) -> None:
        self.capabilities = replace(
            _CAPABILITIES, poll_interval_s=poll_interval_s, max_straggler_checks=max_straggler_checks
        )
        self.event_queue = EventQueue()
        self.pool = SimulatedPool(model, behaviour, self.event_queue, seed, self._on_pool_event)
        self.needs_clock_tick: Callable[[], bool] = lambda: True
        self._run_id, self._progress_interval_s = run_id, progress_interval_s
        self._attempts: dict[str, SimulatedAttempt] = {}
        self._finished_jobs: dict[str, str] = {}  # job ids of finished attempts
        self._interned_sets: dict[tuple[str, ...], frozenset[str]] = {}
        self._updates: list[AttemptUpdate] = []

    def clock(self) -> float:
        return self.event_queue.now

    # The Engine protocol

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        for request in requests:
            if request.attempt_id not in self._attempts and request.attempt_id not in self._finished_jobs:
                overrides = request.overrides
                avoid = self._intern_set(overrides.avoid_sites), self._intern_set(overrides.avoid_nodes)
                attempt = SimulatedAttempt(request.attempt_id, request.job.id, *avoid)
                self._attempts[request.attempt_id] = attempt
                self.pool.submit(attempt)
        return {}

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        attempts = (self._attempts[request.attempt_id] for request in requests if request.attempt_id in self._attempts)
        finished = (request for request in requests if request.attempt_id in self._finished_jobs)
        live = [
            Running(one.attempt_id, one.job_id)
            if one.status in ("matched", "running")
            else Queued(one.attempt_id, one.job_id)
            for one in attempts
        ]
        return [*live, *(Gone(one.attempt_id, one.job.id, detail="it ended") for one in finished)]

    def _intern_set(self, names: tuple[str, ...]) -> frozenset[str]:
        """Return a shared set, because thousands of attempts avoid the same sites."""
        return self._interned_sets.setdefault(names, frozenset(names))

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        for attempt_id in attempt_ids:
            if attempt_id in self._attempts:
                self.pool.remove(self._attempts[attempt_id])

    def release(self, attempt_ids: Sequence[str]) -> None:
        for attempt_id in attempt_ids:
            if attempt_id in self._attempts:
                self.pool.release(self._attempts[attempt_id])

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        """Do nothing: simulated jobs have no outputs."""

    def poll(self) -> Sequence[AttemptUpdate]:
        updates, self._updates = self._updates, []
        return updates

    def wait(self, timeout_s: float) -> None:
        """Advance the clock until there are updates, plus `timeout_s`, so that updates are reported in batches."""
        until = self.event_queue.now + (timeout_s if self.needs_clock_tick() else _MAX_IDLE_S)
        while not self._updates and (due := self.event_queue.next_due_at) is not None and due <= until:
            self.event_queue.run_next()
        self.event_queue.run_until(min(until, self.event_queue.now + timeout_s) if self._updates else until)

    # Events of the pool

    def _on_pool_event(self, attempt: SimulatedAttempt, event: str) -> None:
        _HANDLERS[event](self, attempt)
        if attempt.status == "gone":
            self._finished_jobs[attempt.attempt_id] = self._attempts.pop(attempt.attempt_id).job_id

    def _on_started(self, attempt: SimulatedAttempt) -> None:
        assert attempt.session is not None
        attempt.n_agent_events, attempt.emitter = 0, f"agent-{attempt.attempt_id}-{attempt.n_executions}"
        data = {
            "attempt": attempt.attempt_id,
            "host": attempt.session.node,
            "site": attempt.session.site.name,
            "pid": 1,
        }
        session = attempt.session
        self._add_agent_events(attempt, self._agent_event(attempt, kinds.AGENT_STARTED, data))
        self._add_update(ExecutionStarted, attempt, execution=attempt.n_executions, host=session.node)
        if session.compute_s:
            self.event_queue.schedule(session.compute_starts_at, lambda: self._on_compute_started(attempt, session))

    def _on_compute_started(self, attempt: SimulatedAttempt, session: SimulatedSession) -> None:
        if attempt.session is not session:
            return
        events = [self._agent_event(attempt, kinds.STAGE_STARTED, {"stage": "steps"})]
        if session.start_fraction:
            events.insert(
                0, self._agent_event(attempt, kinds.CHECKPOINT_RESTORED, _step_counts(session.start_fraction))
            )
        self._add_agent_events(attempt, *events)
        self.event_queue.schedule(
            self.event_queue.now + self._progress_interval_s, lambda: self._report_progress(attempt, session)
        )

    def _on_interrupted(self, attempt: SimulatedAttempt) -> None:
        assert attempt.session is not None and attempt.session.end is not None
        end = attempt.session.end
        self._add_agent_events(attempt, *self._checkpoint_events(attempt))
        self._add_update(
            ExecutionInterrupted,
            attempt,
            detail=end.reason,
            failure_kind=end.failure_kind,
            emitters=(attempt.emitter,),
            execution=attempt.n_executions,
        )

    def _on_ended(self, attempt: SimulatedAttempt) -> None:
        assert attempt.session is not None and attempt.session.end is not None
        end = attempt.session.end
        if end.outcome in _HOLD_CODES:
            self.pool.hold(attempt)
            self._add_agent_events(attempt, *self._checkpoint_events(attempt))
            self._add_update(
                Held,
                attempt,
                execution=attempt.n_executions,
                detail=end.reason,
                failure_kind=end.failure_kind,
                action="give_up",
                code=_HOLD_CODES[end.outcome],
            )
            return
        self._finish(attempt, attempt.session, end, "it ended")

    def _on_removed(self, attempt: SimulatedAttempt) -> None:
        if (
            attempt.session is not None
            and attempt.session.end is not None
            and attempt.session.end.outcome is Outcome.CHECKPOINTED
        ):
            self._finish(attempt, attempt.session, attempt.session.end, "it was removed")
        else:
            self._add_update(Gone, attempt, detail="it was removed")

    def _on_released(self, attempt: SimulatedAttempt) -> None:
        self._add_update(Released, attempt)

    def _checkpoint_events(self, attempt: SimulatedAttempt) -> tuple[Event, ...]:
        """Return the event of the newest checkpoint, if there is one."""
        assert attempt.session is not None
        done_fraction, _ = attempt.session.newest_checkpoint(self.event_queue.now)
        if not done_fraction:
            return ()
        return (self._agent_event(attempt, kinds.CHECKPOINT_SAVED, _step_counts(done_fraction)),)

    def _finish(self, attempt: SimulatedAttempt, session: SimulatedSession, end: SessionEnd, detail: str) -> None:
        end_data = _end_event_data(end, session)
        computed_s = session.computed_s(session.ended_at)
        events = [] if end.outcome is Outcome.SUCCEEDED else [*self._checkpoint_events(attempt)]
        if computed_s:
            events.append(self._agent_event(attempt, kinds.STAGE_ENDED, {"stage": "steps", "seconds": computed_s}))
        events.append(self._agent_event(attempt, kinds.AGENT_ENDED, end_data))
        self._add_agent_events(attempt, *events)
        self._add_update(Gone, attempt, exit_code=end_data["exit_code"], detail=detail)

    # Updates

    def _add_update(self, update_type: type[AttemptUpdate], attempt: SimulatedAttempt, **fields: Any) -> None:
        attempt.n_updates += 1
        # The attempts of a job share one log, so their numbers must not collide.
        seq = int(attempt.attempt_id.rpartition("-")[2] or 1) << 20 | attempt.n_updates
        site = attempt.session.site.name if attempt.session else ""
        position: dict[str, Any] = {"site": site, "seq": seq, "occurred_at": self.event_queue.now}
        self._updates.append(update_type(attempt.attempt_id, attempt.job_id, **position, **fields))

    def _add_agent_events(self, attempt: SimulatedAttempt, *events: Event) -> None:
        if events:
            self._updates.append(AgentEventsReceived(attempt.attempt_id, attempt.job_id, events=events))

    def _agent_event(self, attempt: SimulatedAttempt, kind: str, data: dict[str, Any]) -> Event:
        attempt.n_agent_events += 1
        now = self.event_queue.now
        return Event(self._run_id, attempt.job_id, attempt.emitter, attempt.n_agent_events, kind, now, now, data)

    def _report_progress(self, attempt: SimulatedAttempt, session: SimulatedSession) -> None:
        """Report progress as agents do through the pool; each report replaces the previous one."""
        if attempt.session is not session:
            return
        now = self.event_queue.now
        saved_fraction, _ = session.newest_checkpoint(now)
        progress = {
            "stage": "steps",
            **_step_counts(session.progress(now)),
            "update_count": now,
            "checkpoint": _step_counts(saved_fraction) if saved_fraction else {},
        }
        self._updates.append(ProgressReported(attempt.attempt_id, attempt.job_id, progress=progress))
        self.event_queue.schedule(now + self._progress_interval_s, lambda: self._report_progress(attempt, session))


_HANDLERS: Mapping[str, Callable[[SimulatedEngine, SimulatedAttempt], None]] = {
    "started": SimulatedEngine._on_started,
    "interrupted": SimulatedEngine._on_interrupted,
    "ended": SimulatedEngine._on_ended,
    "removed": SimulatedEngine._on_removed,
    "released": SimulatedEngine._on_released,
}


def _step_counts(done_fraction: float) -> dict[str, Any]:
    return {"step": int(done_fraction * TOTAL_STEPS), "total_steps": TOTAL_STEPS}


def _end_event_data(end: SessionEnd, session: SimulatedSession) -> dict[str, Any]:
    seconds = session.ended_at - session.started_at
    if end.outcome is Outcome.SUCCEEDED:
        return {"outcome": "succeeded", "exit_code": 0, "seconds": seconds}
    if end.outcome is Outcome.CHECKPOINTED:
        step, code = _step_counts(session.progress(session.ended_at))["step"], EXIT_REQUEUE
        return {"outcome": "requeued", "exit_code": code, "seconds": seconds, "step": step, "reason": end.reason}
    never_executed = not any(phase.phase is Phase.EXECUTE for phase in session.timeline.phases)
    failure = Failure.from_kind(end.failure_kind, "fetch" if never_executed else "steps", end.reason)
    return {"outcome": "failed", "exit_code": failure.exit_code, "seconds": seconds, "failure": failure.to_data()}
