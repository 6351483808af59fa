"""Builds the slot sessions of one attempt from the pool events of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from packtrain.events import Event, kinds
from packtrain.report.history import ExecutionRecord, FailureCategory, Outcome, Phase, PhaseSpan
from packtrain.report.readers.condor_end_status import EndStatus
from packtrain.report.readers.end_status import classify_failure_kind
from packtrain.report.readers.job_events import JobEvents
from packtrain.report.readers.job_timeline import JobTimeline

_LOST = EndStatus(Outcome.LOST, FailureCategory.UNKNOWN)  # the agent's events replace it later


@dataclass(frozen=True)
class PoolSessions:
    """The slot sessions and waits of one attempt, according to the pool's log."""

    executions: tuple[ExecutionRecord, ...]
    execution_numbers: Mapping[int, int]  # index in `executions` → number of the execution; absent if it never ran
    waits: tuple[PhaseSpan, ...]
    held_in_phase: Phase | None  # the phase in which it was held and never released


def build_pool_sessions(job_events: JobEvents, attempt_id: str, now: float) -> PoolSessions | None:
    """Build the sessions of an attempt. Return None if the pool recorded nothing, or there is no pool."""
    pool_events = job_events.pool_events.get(attempt_id)
    if pool_events is None:
        return None
    events = [event for _, event in sorted(pool_events.items())]
    queued_at = job_events.submit_decided_at.get(attempt_id, events[0].wall)
    timeline = JobTimeline(queued_at)
    timeline.on_submitted(queued_at, "")
    execution_numbers: dict[int, int] = {}
    for event in events:
        event_at = max(event.wall, timeline.last_event_at)
        _HANDLERS[event.kind](timeline, event, event_at)
        timeline.last_event_at = event_at
        if event.kind == kinds.EXECUTION_STARTED:
            execution_numbers[len(timeline.executions)] = int(event.data.get("execution") or 0)
    gone_event = job_events.gone_events.get(attempt_id)
    held_in_phase = timeline.held_in_phase
    if gone_event is not None:
        timeline.on_finished(max(gone_event.wall, timeline.last_event_at), _LOST)
    timeline.close_open_spans(max(now, timeline.last_event_at))
    return PoolSessions(tuple(timeline.executions), execution_numbers, tuple(timeline.waits), held_in_phase)


def _on_execution_started(timeline: JobTimeline, event: Event, now: float) -> None:
    session = timeline.current_session
    if session is None or session.has_executed:
        session = timeline.start_session(now)
    session.on_execute(now)


def _on_execution_interrupted(timeline: JobTimeline, event: Event, now: float) -> None:
    timeline.on_session_ended(now, _end_status(event, Outcome.EVICTED))


def _on_held(timeline: JobTimeline, event: Event, now: float) -> None:
    timeline.on_held(now, _end_status(event, Outcome.HELD), interrupted=True)


def _on_released(timeline: JobTimeline, event: Event, now: float) -> None:
    timeline.on_released(now)


def _end_status(event: Event, default: Outcome) -> EndStatus:
    return classify_failure_kind(str(event.data.get("kind", "")), str(event.data.get("detail", "")), default)


def _on_transfer(timeline: JobTimeline, event: Event, now: float) -> None:
    direction, phase = event.data.get("direction"), event.data.get("phase")
    session = timeline.current_session
    if direction == "in" and phase != "finished":
        if session is None or session.has_executed or session.has_input_transfer:
            session = timeline.start_session(now)
        (session.on_input_queued if phase == "queued" else session.on_input_started)(now)
    elif session is not None and direction == "in":
        session.on_input_finished(now)
    elif session is not None:
        handlers = {
            "queued": session.on_output_queued,
            "started": session.on_output_started,
            "finished": session.on_output_finished,
        }
        handlers.get(str(phase), session.on_output_finished)(now)


_HANDLERS: Mapping[str, Callable[[JobTimeline, Event, float], None]] = {
    kinds.EXECUTION_STARTED: _on_execution_started,
    kinds.EXECUTION_INTERRUPTED: _on_execution_interrupted,
    kinds.ATTEMPT_HELD: _on_held,
    kinds.ATTEMPT_RELEASED: _on_released,
    kinds.ATTEMPT_TRANSFER: _on_transfer,
}
