"""The stays of one decision on a pool's slots, by what the pool's log told. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from packtrain.events import Event, kinds
from packtrain.report.history import ExecutionRecord, FailureCategory, Outcome, Phase, PhaseSpan
from packtrain.report.readers.condor_end_status import EndStatus
from packtrain.report.readers.end_status import classify_failure_kind
from packtrain.report.readers.job_events import JobEvents
from packtrain.report.readers.job_timeline import JobTimeline

_LOST = EndStatus(Outcome.LOST, FailureCategory.UNKNOWN)  # its agent tells more


@dataclass(frozen=True)
class PoolSessions:
    executions: tuple[ExecutionRecord, ...]
    execution_numbers: Mapping[
        int, int
    ]  # by the place of an attempt: which start of the decision it is; none if it never ran
    waits: tuple[PhaseSpan, ...]
    held_in_phase: Phase | None  # in which phase it was when it was held for good


def build_pool_sessions(job_events: JobEvents, attempt_id: str, now: float) -> PoolSessions | None:
    """None where there is no pool, or it has not told anything."""
    log = job_events.pool_events.get(attempt_id)
    if log is None:
        return None
    events = [event for _, event in sorted(log.items())]
    began = job_events.submit_decided_at.get(attempt_id, events[0].wall)
    course = JobTimeline(began)
    course.on_submitted(began, "")
    starts: dict[int, int] = {}
    for event in events:
        moment = max(event.wall, course.last_event_at)
        _HANDLERS[event.kind](course, event, moment)
        course.last_event_at = moment
        if event.kind == kinds.EXECUTION_STARTED:
            starts[len(course.executions)] = int(event.data.get("execution") or 0)
    gone = job_events.gone_events.get(attempt_id)
    held_in = course.held_in_phase
    if gone is not None:
        course.on_finished(max(gone.wall, course.last_event_at), _LOST)
    course.close_open_spans(max(now, course.last_event_at))
    return PoolSessions(tuple(course.executions), starts, tuple(course.waits), held_in)


def _on_execution_started(timeline: JobTimeline, event: Event, now: float) -> None:
    stay = timeline.current_session
    if stay is None or stay.has_executed:
        stay = timeline.start_session(now)
    stay.on_execute(now)


def _on_execution_stopped(timeline: JobTimeline, event: Event, now: float) -> None:
    timeline.on_session_ended(now, _end_status(event, Outcome.EVICTED))


def _on_held(timeline: JobTimeline, event: Event, now: float) -> None:
    timeline.on_held(now, _end_status(event, Outcome.HELD), interrupted=True)


def _on_released(timeline: JobTimeline, event: Event, now: float) -> None:
    timeline.on_released(now)


def _end_status(event: Event, default: Outcome) -> EndStatus:
    return classify_failure_kind(str(event.data.get("kind", "")), str(event.data.get("detail", "")), default)


def _on_transfer(timeline: JobTimeline, event: Event, now: float) -> None:
    direction, what = event.data.get("direction"), event.data.get("what")
    stay = timeline.current_session
    if direction == "in" and what != "finished":
        if stay is None or stay.has_executed or stay.has_input_transfer:
            stay = timeline.start_session(now)
        (stay.on_input_queued if what == "queued" else stay.on_input_started)(now)
    elif stay is not None and direction == "in":
        stay.on_input_finished(now)
    elif stay is not None:
        acts = {"queued": stay.on_output_queued, "started": stay.on_output_started, "finished": stay.on_output_finished}
        acts.get(str(what), stay.on_output_finished)(now)


_HANDLERS: Mapping[str, Callable[[JobTimeline, Event, float], None]] = {
    kinds.EXECUTION_STARTED: _on_execution_started,
    kinds.EXECUTION_INTERRUPTED: _on_execution_stopped,
    kinds.ATTEMPT_HELD: _on_held,
    kinds.ATTEMPT_RELEASED: _on_released,
    kinds.ATTEMPT_TRANSFER: _on_transfer,
}
