"""The simulated pool as an Engine: tells what HTCondor's would, in the same words, by a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from packtrain.engines.api import AttemptUpdate, Capabilities, SubmitRequest
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
TOTAL_STEPS = 10_000  # of a training, so that its progress is a whole number
_HOLD_CODES = {Outcome.TIME_LIMIT: (47, 0), Outcome.HELD: (13, 0)}
_MAX_IDLE_S = 3600.0  # looks at least so often, if time alone changes nothing


class SimulatedEngine:
    """`restless`: whether time alone may change what the supervisor decides; then it looks every `pause_s`."""

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
        self._finished_jobs: dict[str, str] = {}  # the jobs of decisions whose tasks are gone
        self._interned_sets: dict[tuple[str, ...], frozenset[str]] = {}
        self._updates: list[AttemptUpdate] = []

    def clock(self) -> float:
        return self.event_queue.now

    # The protocol

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        for ticket in requests:
            if ticket.attempt_id not in self._attempts and ticket.attempt_id not in self._finished_jobs:
                asked = ticket.overrides
                avoid = self._intern_set(asked.avoid_sites), self._intern_set(asked.avoid_nodes)
                task = self._attempts[ticket.attempt_id] = SimulatedAttempt(
                    ticket.attempt_id, ticket.job.id, self.event_queue.now, *avoid
                )
                self.pool.submit(task)
        return {}

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        known = (self._attempts[ticket.attempt_id] for ticket in requests if ticket.attempt_id in self._attempts)
        over = (ticket for ticket in requests if ticket.attempt_id in self._finished_jobs)
        alive = [AttemptUpdate(task.attempt_id, task.job_id, _update_status(task)) for task in known]
        return alive + [AttemptUpdate(t.attempt_id, t.job.id, "gone", detail="it ended") for t in over]

    def _intern_set(self, names: tuple[str, ...]) -> frozenset[str]:
        """Thousands of attempts avoid the same."""
        return self._interned_sets.setdefault(names, frozenset(names))

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        for decision in attempt_ids:
            if decision in self._attempts:
                self.pool.remove(self._attempts[decision])

    def release(self, attempt_ids: Sequence[str]) -> None:
        for decision in attempt_ids:
            if decision in self._attempts:
                self.pool.release(self._attempts[decision])

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        """Nothing was made."""

    def poll(self) -> Sequence[AttemptUpdate]:
        news, self._updates = self._updates, []
        return news

    def wait(self, timeout_s: float) -> None:
        """Time passes: until something is told, and a pause longer, so that much is told at once."""
        until = self.event_queue.now + (timeout_s if self.needs_clock_tick() else _MAX_IDLE_S)
        while not self._updates and (due := self.event_queue.next_due_at) is not None and due <= until:
            self.event_queue.run_next()
        self.event_queue.run_until(min(until, self.event_queue.now + timeout_s) if self._updates else until)

    # What happens

    def _on_pool_event(self, attempt: SimulatedAttempt, event: str) -> None:
        _HANDLERS[event](self, attempt)
        if attempt.status == "gone":
            self._finished_jobs[attempt.attempt_id] = self._attempts.pop(attempt.attempt_id).job_id

    def _on_placed(self, attempt: SimulatedAttempt) -> None:
        assert attempt.session is not None
        attempt.n_agent_events, attempt.emitter = 0, f"agent-{attempt.attempt_id}-{attempt.n_executions}"
        about = {
            "attempt": attempt.attempt_id,
            "host": attempt.session.node,
            "site": attempt.session.site.name,
            "pid": 1,
        }
        self._add_update(
            attempt,
            "placed",
            events=(self._agent_event(attempt, kinds.AGENT_STARTED, about),),
            start=attempt.n_executions,
        )
        stay = attempt.session
        if stay.compute_s:
            self.event_queue.schedule(stay.compute_starts_at, lambda: self._on_compute_started(attempt, stay))

    def _on_compute_started(self, attempt: SimulatedAttempt, session: SimulatedSession) -> None:
        if attempt.session is not session:
            return
        words = [self._agent_event(attempt, kinds.STAGE_STARTED, {"stage": "steps"})]
        if session.start_fraction:
            words.insert(0, self._agent_event(attempt, kinds.CHECKPOINT_RESTORED, _step_counts(session.start_fraction)))
        self._updates.append(AttemptUpdate(attempt.attempt_id, attempt.job_id, "running", agent_events=tuple(words)))
        self.event_queue.schedule(
            self.event_queue.now + self._progress_interval_s, lambda: self._report_progress(attempt, session)
        )

    def _on_stopped(self, attempt: SimulatedAttempt) -> None:
        assert attempt.session is not None and attempt.session.end is not None
        ending = attempt.session.end
        emitters = (attempt.emitter,)
        told = {
            "detail": ending.reason,
            "kind": ending.failure_kind,
            "emitters": emitters,
            "start": attempt.n_executions,
        }
        self._add_update(attempt, "stopped", events=self._checkpoint_events(attempt), **told)

    def _on_ended(self, attempt: SimulatedAttempt) -> None:
        assert attempt.session is not None and attempt.session.end is not None
        ending = attempt.session.end
        if ending.outcome in _HOLD_CODES:
            self.pool.hold(attempt)
            told = {
                "detail": ending.reason,
                "kind": ending.failure_kind,
                "action": "give_up",
                "code": _HOLD_CODES[ending.outcome],
            }
            self._add_update(
                attempt, "held", start=attempt.n_executions, events=self._checkpoint_events(attempt), **told
            )
            return
        self._finish(attempt, attempt.session, ending, "it ended")

    def _on_removed(self, attempt: SimulatedAttempt) -> None:
        if (
            attempt.session is not None
            and attempt.session.end is not None
            and attempt.session.end.outcome is Outcome.CHECKPOINTED
        ):
            self._finish(attempt, attempt.session, attempt.session.end, "it was removed")
        else:
            self._add_update(attempt, "gone", detail="it was removed", start=attempt.n_executions)

    def _on_released(self, attempt: SimulatedAttempt) -> None:
        self._add_update(attempt, "released")

    def _checkpoint_events(self, attempt: SimulatedAttempt) -> tuple[Event, ...]:
        """The newest checkpoint, if there is one."""
        assert attempt.session is not None
        done, _ = attempt.session.newest_checkpoint(self.event_queue.now)
        return (self._agent_event(attempt, kinds.CHECKPOINT_SAVED, _step_counts(done)),) if done else ()

    def _finish(self, attempt: SimulatedAttempt, session: SimulatedSession, end: SessionEnd, detail: str) -> None:
        last = _end_event_data(end, session)
        computed = session.computed_s(session.ended_at)
        words = (
            [] if end.outcome is Outcome.SUCCEEDED else [*self._checkpoint_events(attempt)]
        )  # nobody will go on from there
        if computed:
            words.append(self._agent_event(attempt, kinds.STAGE_ENDED, {"stage": "steps", "seconds": computed}))
        words.append(self._agent_event(attempt, kinds.AGENT_ENDED, last))
        self._add_update(
            attempt, "gone", events=tuple(words), exit_code=last["exit_code"], detail=detail, start=attempt.n_executions
        )

    # Words

    def _add_update(self, attempt: SimulatedAttempt, status: str, **fields: Any) -> None:
        attempt.n_updates += 1
        stay = attempt.session
        site, host = (stay.site.name, stay.node) if stay else ("", "")
        serial = (
            int(attempt.attempt_id.rpartition("-")[2] or 1) << 20 | attempt.n_updates
        )  # one job's log has all its decisions
        when = self.event_queue.now
        self._updates.append(
            AttemptUpdate(
                attempt.attempt_id, attempt.job_id, status, site=site, host=host, seq=serial, occurred_at=when, **fields
            )
        )

    def _agent_event(self, attempt: SimulatedAttempt, kind: str, data: dict[str, Any]) -> Event:
        attempt.n_agent_events += 1
        now = self.event_queue.now
        return Event(self._run_id, attempt.job_id, attempt.emitter, attempt.n_agent_events, kind, now, now, data)

    def _report_progress(self, attempt: SimulatedAttempt, session: SimulatedSession) -> None:
        """As agents tell through the pool how far they are: the newest replaces what was before."""
        if attempt.session is not session:
            return
        now = self.event_queue.now
        saved, _ = session.newest_checkpoint(now)
        seen = {"attempt": attempt.attempt_id, "stage": "steps", **_step_counts(session.progress(now)), "seen": now}
        seen["checkpoint"] = _step_counts(saved) if saved else {}
        self._updates.append(AttemptUpdate(attempt.attempt_id, attempt.job_id, "running", progress=seen))
        self.event_queue.schedule(now + self._progress_interval_s, lambda: self._report_progress(attempt, session))


_HANDLERS: Mapping[str, Callable[[SimulatedEngine, SimulatedAttempt], None]] = {
    "placed": SimulatedEngine._on_placed,
    "stopped": SimulatedEngine._on_stopped,
    "ended": SimulatedEngine._on_ended,
    "removed": SimulatedEngine._on_removed,
    "released": SimulatedEngine._on_released,
}


def _update_status(attempt: SimulatedAttempt) -> str:
    return "running" if attempt.status in ("matched", "running") else attempt.status


def _step_counts(done_fraction: float) -> dict[str, Any]:
    return {"step": int(done_fraction * TOTAL_STEPS), "total_steps": TOTAL_STEPS}


def _end_event_data(end: SessionEnd, session: SimulatedSession) -> dict[str, Any]:
    seconds = session.ended_at - session.started_at
    if end.outcome is Outcome.SUCCEEDED:
        return {"outcome": "succeeded", "exit_code": 0, "seconds": seconds}
    if end.outcome is Outcome.CHECKPOINTED:
        step, code = _step_counts(session.progress(session.ended_at))["step"], EXIT_REQUEUE
        return {"outcome": "requeued", "exit_code": code, "seconds": seconds, "step": step, "reason": end.reason}
    moving = not any(piece.phase is Phase.EXECUTE for piece in session.timeline.phases)
    failure = Failure.from_kind(end.failure_kind, "fetch" if moving else "steps", end.reason)
    return {"outcome": "failed", "exit_code": failure.exit_code, "seconds": seconds, "failure": failure.to_data()}
