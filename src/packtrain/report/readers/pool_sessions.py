"""The stays of one decision on a pool's slots, by what the pool's log told. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from packtrain.events import Event, kinds
from packtrain.report.history import Attempt, Category, Outcome, Phase, Span
from packtrain.report.readers.condor_end_status import End
from packtrain.report.readers.end_status import end_of_kind
from packtrain.report.readers.job_events import Told
from packtrain.report.readers.job_timeline import Course

_GONE = End(Outcome.LOST, Category.UNKNOWN)  # its agent tells more


@dataclass(frozen=True)
class Stays:
    attempts: tuple[Attempt, ...]
    starts: Mapping[int, int]  # by the place of an attempt: which start of the decision it is; none if it never ran
    waits: tuple[Span, ...]
    held_in: Phase | None  # in which phase it was when it was held for good


def stays_of(told: Told, decision: str, now: float) -> Stays | None:
    """None where there is no pool, or it has not told anything."""
    log = told.log.get(decision)
    if log is None:
        return None
    events = [event for _, event in sorted(log.items())]
    began = told.decided.get(decision, events[0].wall)
    course = Course(began)
    course.submits(began, "")
    starts: dict[int, int] = {}
    for event in events:
        moment = max(event.wall, course.last)
        _HANDLERS[event.kind](course, event, moment)
        course.last = moment
        if event.kind == kinds.ATTEMPT_PLACED:
            starts[len(course.attempts)] = int(event.data.get("start") or 0)
    gone = told.gone.get(decision)
    held_in = course.held_in
    if gone is not None:
        course.finished(max(gone.wall, course.last), _GONE)
    course.settles(max(now, course.last))
    return Stays(tuple(course.attempts), starts, tuple(course.waits), held_in)


def _placed(course: Course, event: Event, now: float) -> None:
    stay = course.on_slot
    if stay is None or stay.executed:
        stay = course.begins(now)
    stay.executes(now)


def _stopped(course: Course, event: Event, now: float) -> None:
    course.leaves(now, _end(event, Outcome.EVICTED))


def _held(course: Course, event: Event, now: float) -> None:
    course.is_held(now, _end(event, Outcome.HELD), running=True)


def _released(course: Course, event: Event, now: float) -> None:
    course.is_released(now)


def _end(event: Event, otherwise: Outcome) -> End:
    return end_of_kind(str(event.data.get("kind", "")), str(event.data.get("detail", "")), otherwise)


def _transferred(course: Course, event: Event, now: float) -> None:
    direction, what = event.data.get("direction"), event.data.get("what")
    stay = course.on_slot
    if direction == "in" and what != "finished":
        if stay is None or stay.executed or stay.receiving:
            stay = course.begins(now)
        (stay.input_waits if what == "queued" else stay.input_starts)(now)
    elif stay is not None and direction == "in":
        stay.input_ends(now)
    elif stay is not None:
        acts = {"queued": stay.output_waits, "started": stay.output_starts, "finished": stay.output_ends}
        acts.get(str(what), stay.output_ends)(now)


_HANDLERS: Mapping[str, Callable[[Course, Event, float], None]] = {
    kinds.ATTEMPT_PLACED: _placed,
    kinds.ATTEMPT_STOPPED: _stopped,
    kinds.ATTEMPT_HELD: _held,
    kinds.ATTEMPT_RELEASED: _released,
    kinds.ATTEMPT_TRANSFER: _transferred,
}
