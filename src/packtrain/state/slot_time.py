"""What a pool did with a job over time: the one fold from pool events to intervals.

Three sources produce `PoolEvent`s: an engine's stored events (`pool_events`), the reader of HTCondor logs
(`report.readers.condor_log`) and the simulator. `SlotTimeline` turns them into *waits* (queued, held) and *sessions*.
A session is the time from claiming a slot to releasing it, divided into phases.

All times are those of the pool, which has one clock, so they may be subtracted. Pool logs are not always accurate;
`tests/data/condor-logs/README.md` lists the quirks that are corrected here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any, NamedTuple

_ROUNDING_S = 1.0  # logs have whole seconds
_SAME_EVENT_S = 2.0  # a hold or removal this soon after the end of a session is why it ended


class Phase(str, Enum):
    """The activity of a job or of its slot during one span."""

    QUEUED = "queued"  # the job waits for a slot
    HELD = "held"  # the job is on hold
    SETUP = "setup"  # the slot is claimed, but neither transferring nor executing: setup, cleanup
    TRANSFER_IN = "transfer in"
    UNPACK = "unpack"
    EXECUTE = "execute"  # the program runs, or whatever a log calls executing
    CHECKPOINT = "checkpoint"  # a checkpoint is restored, or uploaded while the program waits
    TRANSFER_OUT = "transfer out"
    SUSPENDED = "suspended"
    DISCONNECTED = "disconnected"  # the program may or may not have run


_PAUSES = (Phase.SUSPENDED, Phase.DISCONNECTED)
_TRANSFERS = (Phase.TRANSFER_IN, Phase.TRANSFER_OUT, Phase.CHECKPOINT)


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """A time interval in which a job or slot was in one phase."""

    phase: Phase
    start: float  # seconds since 1970; without timestamps, seconds since the job began
    end: float

    @property
    def duration_s(self) -> float:
        return self.end - self.start


def merge_spans(spans: Iterable[PhaseSpan]) -> tuple[PhaseSpan, ...]:
    """Drop empty spans and join adjacent spans of the same phase. If all are empty, keep the last one."""
    merged: list[PhaseSpan] = []
    last: PhaseSpan | None = None
    for span in spans:
        last = span
        if span.end <= span.start:
            continue
        if merged and merged[-1].phase is span.phase:
            merged[-1] = PhaseSpan(span.phase, merged[-1].start, span.end)
        else:
            merged.append(span)
    return tuple(merged) or ((PhaseSpan(last.phase, last.end, last.end),) if last else ())


class PoolEventKind(Enum):
    """Everything that a pool can report about a job."""

    SUBMITTED = "submitted"
    INPUT_QUEUED = "input queued"  # the slot is claimed, and its transfer waits for its turn
    INPUT_STARTED = "input started"
    INPUT_FINISHED = "input finished"
    STARTED = "started"  # the program
    OUTPUT_QUEUED = "output queued"
    OUTPUT_STARTED = "output started"
    OUTPUT_FINISHED = "output finished"
    CHECKPOINTED = "checkpointed"
    SUSPENDED = "suspended"
    DISCONNECTED = "disconnected"
    RESUMED = "resumed"  # no longer suspended or disconnected
    INTERRUPTED = "interrupted"  # the pool ended the session and queued the job again
    HELD = "held"  # this also ends the session
    RELEASED = "released"
    GONE = "gone"  # terminated or removed


class PoolEvent(NamedTuple):
    """One event of a job in a pool."""

    kind: PoolEventKind
    at: float  # Unix time by the pool's clock
    execution: int = 0  # of STARTED: the number of the execution
    has_exited: bool = False  # of INTERRUPTED and HELD: the program had ended by itself
    cause: Any = None  # why it happened, in whatever form its source has
    explains_end: bool | None = None  # of HELD and GONE: why the session before ended; None: if it has just ended


@dataclass(slots=True, eq=False)
class SlotSession:
    """The time from claiming a slot to releasing it. Only `SlotTimeline` changes its phases."""

    started_at: float  # the first event
    earliest_start: float = 0.0  # the time before which the slot cannot have been claimed
    number: int = 0  # of the execution, as the pool counts
    has_executed: bool = False
    ended_at: float | None = None
    end_cause: Any = None  # the `cause` of the event that ended it; None: its end was not logged
    input_times: list[tuple[float, float | None]] = field(default_factory=list)  # start and end of input transfers
    checkpointed_s: float = 0.0  # execution time before the newest checkpoint that the pool transferred
    transfer_queue_s: float = 0.0  # time in which a transfer waited for its turn
    # What the pool measured itself, which is more accurate than the times of its events:
    slot_s: float | None = None
    execute_s: float | None = None
    has_reconnected: bool = False  # outputs that are transferred after a reconnect are not logged
    is_start_failed: bool = False  # the pool logged a start, but the program was never executed
    _phase_starts: list[tuple[float, Phase]] = field(default_factory=list)
    _finished_output_index: int = -1  # of a phase that may turn out to be the upload of a checkpoint; -1: none
    _paused_phase: Phase = Phase.EXECUTE  # the phase before it was suspended or disconnected
    _transfer_queued_at: float | None = None

    def __post_init__(self) -> None:
        self._phase_starts.append((self.started_at, Phase.SETUP))

    def _enter(self, now: float, phase: Phase) -> None:
        self._end_transfer_queue(now)
        self._mark_output_as_checkpoint()
        self._phase_starts.append((now, phase))

    def queue_transfer(self, now: float) -> None:
        self._enter(now, Phase.SETUP)
        self._transfer_queued_at = now

    def _end_transfer_queue(self, now: float) -> None:
        if self._transfer_queued_at is not None:
            self.transfer_queue_s += now - self._transfer_queued_at
            self._transfer_queued_at = None

    def start_input(self, now: float) -> None:
        self.input_times.append((now, None))
        self._enter(now, Phase.TRANSFER_IN)

    def finish_input(self, now: float) -> None:
        """End the input transfer. The event may follow that of the program's start, which is then moved."""
        if not self.input_times or self.input_times[-1][1] is not None:
            return
        self.input_times[-1] = (self.input_times[-1][0], now)
        if self._last_phase is Phase.EXECUTE:
            self._phase_starts[-1] = (now, Phase.EXECUTE)
        elif self._last_phase is Phase.TRANSFER_IN:
            self._enter(now, Phase.SETUP)

    def execute(self, now: float, number: int) -> None:
        self.has_executed, self.number = True, number
        self._enter(now, Phase.EXECUTE)

    def start_output(self, now: float) -> None:
        """Start the output transfer. HTCondor also logs it after a failed input, when there is nothing to send."""
        self._enter(now, Phase.TRANSFER_OUT if self.has_executed else Phase.SETUP)

    def finish_output(self, now: float) -> None:
        """End the output transfer. A later event shows whether it was a checkpoint and the program continued."""
        if self._last_phase is Phase.TRANSFER_OUT:
            self._enter(now, Phase.SETUP)
            self._finished_output_index = len(self._phase_starts) - 2

    def pause(self, now: float, phase: Phase) -> None:
        self._mark_output_as_checkpoint()
        if self._last_phase not in _PAUSES:
            self._paused_phase = self._last_phase
        self._enter(now, phase)

    def resume(self, now: float) -> None:
        if self._last_phase in _PAUSES:
            self._enter(now, self._paused_phase)

    def checkpoint(self, now: float) -> None:
        """Record a checkpoint that the log names as such."""
        self.checkpointed_s = self._executed_s(len(self._phase_starts), now)

    def end(self, now: float, has_exited: bool) -> None:
        self._end_transfer_queue(now)
        if not has_exited:
            self._mark_output_as_checkpoint()
        self.ended_at = now

    def _mark_output_as_checkpoint(self) -> None:
        index, self._finished_output_index = self._finished_output_index, -1
        if index >= 0:
            self.checkpointed_s = self._executed_s(index, self._phase_starts[index][0])
            self._phase_starts[index] = (self._phase_starts[index][0], Phase.CHECKPOINT)
            self._phase_starts[index + 1] = (self._phase_starts[index + 1][0], Phase.EXECUTE)

    def _executed_s(self, count: int, until: float) -> float:
        """Return the execution time in the first `count` phases."""
        starts = [*self._phase_starts[:count], (until, Phase.SETUP)]
        return sum(end - start for (start, phase), (end, _) in pairwise(starts) if phase is Phase.EXECUTE)

    # Results

    @property
    def _last_phase(self) -> Phase:
        return self._phase_starts[-1][1]

    @property
    def last_phase_at(self) -> float:
        return self._phase_starts[-1][0]

    @property
    def phase_for_hold(self) -> Phase:
        """The phase that a hold at this moment interrupts."""
        if not self.has_executed:
            return Phase.TRANSFER_IN if self.input_times else Phase.SETUP
        if self._finished_output_index >= 0:
            return Phase.TRANSFER_OUT
        return Phase.EXECUTE if self._last_phase is Phase.SETUP else self._last_phase

    def spans(self, now: float) -> tuple[PhaseSpan, ...]:
        """Return the phases in order, without gaps. A session that has not ended lasts until `now`."""
        until = self._released_at(now if self.ended_at is None else self.ended_at)
        starts = list(self._phase_starts)
        if self.is_start_failed:
            starts = [(start, Phase.SETUP if phase is Phase.EXECUTE else phase) for start, phase in starts]
        starts += self._unlogged_output(until)
        claimed_at = self._claimed_at(until)
        if claimed_at < starts[0][0]:
            starts.insert(0, (claimed_at, Phase.SETUP))
        ends = [start for start, _ in starts[1:]] + [until]
        return merge_spans(
            PhaseSpan(phase, min(start, until), min(end, until))
            for (start, phase), end in zip(starts, ends, strict=True)
        )

    def _released_at(self, until: float) -> float:
        """Return when the slot was released. After an error, HTCondor logs the end of the session much later."""
        if self.ended_at is None or self.slot_s is None or until - self.started_at <= self.slot_s + _ROUNDING_S:
            return until
        return self.started_at + self.slot_s

    def _claimed_at(self, until: float) -> float:
        """Return when the slot was claimed: before the first event if transfers are queued or not logged."""
        if self.ended_at is None or self.slot_s is None:
            return self.started_at
        return min(self.started_at, max(self.earliest_start, until - self.slot_s))

    def _unlogged_output(self, until: float) -> list[tuple[float, Phase]]:
        """Return the output transfer after a reconnect, which follows from the measured execution time."""
        if not self.has_reconnected or self.execute_s is None or self._last_phase is not Phase.EXECUTE:
            return []
        execute_started_at = next(start for start, phase in self._phase_starts if phase is Phase.EXECUTE)
        execute_ended_at = max(execute_started_at + self.execute_s, self.last_phase_at)
        return [(execute_ended_at, Phase.TRANSFER_OUT)] if execute_ended_at + _ROUNDING_S < until else []

    def input_end(self, index: int, until: float) -> float:
        """Return the end of an input transfer. If the log has none, it is the start of the next phase."""
        start, finished_at = self.input_times[index]
        if finished_at is None:
            finished_at = next((phase_at for phase_at, _ in self._phase_starts if phase_at > start), until)
        return min(until, finished_at)

    def duration_s(self, now: float) -> float:
        """Return the slot time: the sum of the spans."""
        spans = self.spans(now)
        return spans[-1].end - spans[0].start

    def transfer_s(self, now: float) -> float:
        """Return the time of transfers, including the time in which they waited for their turn."""
        spans = self.spans(now)
        return self.transfer_queue_s + sum(span.duration_s for span in spans if span.phase in _TRANSFERS)


class SlotTimeline:
    """The waits and sessions of one job or attempt. Events are added in the order of the pool's log."""

    __slots__ = (
        "_closed_waits",
        "_open_wait",
        "_unexplained_session",
        "held_in_phase",
        "last_event_at",
        "sessions",
        "submitted_at",
    )

    def __init__(self, events: Iterable[PoolEvent] = ()) -> None:
        self.submitted_at: float | None = None  # None if the beginning of the log is missing
        self.last_event_at = 0.0
        self.held_in_phase: Phase | None = None  # the phase that the last hold ended, if it was not released
        self.sessions: list[SlotSession] = []
        self._unexplained_session: SlotSession | None = None  # the last session, if nothing has happened since it ended
        self._closed_waits: list[PhaseSpan] = []
        self._open_wait: tuple[Phase, float] | None = None  # QUEUED or HELD, and since when
        for event in events:
            self.add(event)

    def add(self, event: PoolEvent) -> None:
        """Add the next event. One that seems to be earlier than the last one happened at the same time."""
        now = max(event.at, self.last_event_at)
        _HANDLERS[event.kind](self, event, now)
        self.last_event_at = now

    # Results

    @property
    def session(self) -> SlotSession | None:
        """The session that has not ended."""
        return self.sessions[-1] if self.sessions and self.sessions[-1].ended_at is None else None

    @property
    def held_at(self) -> float | None:
        """When the job was held, if it still is."""
        return self._open_wait[1] if self._open_wait and self._open_wait[0] is Phase.HELD else None

    def find_session(self, number: int) -> SlotSession | None:
        """Return the session of an execution, or None if the pool has not started it."""
        return next((s for s in self.sessions if s.has_executed and s.number == number), None)

    def waits(self, now: float) -> tuple[PhaseSpan, ...]:
        """Return the spans in which the job was queued or held. A wait that has not ended lasts until `now`."""
        if self._open_wait is None or self._open_wait[1] >= now:
            return tuple(self._closed_waits)
        return (*self._closed_waits, PhaseSpan(*self._open_wait, now))

    def wait_s(self, phase: Phase) -> float:
        """Return the time in a wait, without the current one."""
        return sum(wait.duration_s for wait in self._closed_waits if wait.phase is phase)

    # Events

    def _on_submitted(self, event: PoolEvent, now: float) -> None:
        """Record the submission, unless an earlier event exists (the log is out of order)."""
        if self.submitted_at is None and not self.sessions and self._open_wait is None:
            self.submitted_at, self._open_wait = now, (Phase.QUEUED, now)

    def _on_input_queued(self, event: PoolEvent, now: float) -> None:
        self._session_for_input(now).queue_transfer(now)

    def _on_input_started(self, event: PoolEvent, now: float) -> None:
        self._session_for_input(now).start_input(now)

    def _session_for_input(self, now: float) -> SlotSession:
        """Return the session of an input transfer: a second transfer starts another session."""
        session = self.session
        if session is None or session.has_executed or session.input_times:
            return self._start_session(now)
        return session

    def _on_started(self, event: PoolEvent, now: float) -> None:
        session = self.session
        if session is None or session.has_executed:
            session = self._start_session(now)
        session.execute(now, event.execution)

    def _start_session(self, now: float) -> SlotSession:
        session = self.session
        if session is not None:  # its end was not logged, so it was disconnected since its last event
            session.pause(max(self.last_event_at, session.last_phase_at), Phase.DISCONNECTED)
            self._end_session(now, None, has_exited=True)
        self._end_wait(now)
        self.held_in_phase = self._unexplained_session = None
        self.sessions.append(SlotSession(now, self._earliest_session_start()))
        return self.sessions[-1]

    def _earliest_session_start(self) -> float:
        """Return the time before which the job cannot have been on its next slot."""
        session_ends = [session.spans(session.ended_at)[-1].end for session in self.sessions[-1:] if session.ended_at]
        hold_ends = [wait.end for wait in self._closed_waits[-2:] if wait.phase is Phase.HELD]
        return max([self.submitted_at or 0.0, *session_ends, *hold_ends])

    def _on_interrupted(self, event: PoolEvent, now: float) -> None:
        if self.session is not None:
            self._unexplained_session = self.session
            self._open_wait = (Phase.QUEUED, self._end_session(now, event.cause, event.has_exited))

    def _on_held(self, event: PoolEvent, now: float) -> None:
        self.held_in_phase = Phase.QUEUED
        if self.session is not None:
            self.held_in_phase = self.session.phase_for_hold
            self._end_session(now, event.cause, event.has_exited)
        elif (session := self._explain_end(event, now)) is not None:
            self.held_in_phase = session.phase_for_hold
        self._end_wait(now)
        self._open_wait = (Phase.HELD, now)

    def _explain_end(self, event: PoolEvent, now: float) -> SlotSession | None:
        """Return the session whose end a hold or removal explains, or None."""
        session, self._unexplained_session = self._unexplained_session, None
        if session is None or session.ended_at is None:
            return None
        has_just_ended = now - session.ended_at <= _SAME_EVENT_S
        if not (has_just_ended if event.explains_end is None else event.explains_end):
            return None
        session.end_cause = event.cause
        return session

    def _on_released(self, event: PoolEvent, now: float) -> None:
        if self.held_at is not None:
            self._end_wait(now)
            self._open_wait, self.held_in_phase = (Phase.QUEUED, now), None

    def _on_gone(self, event: PoolEvent, now: float) -> None:
        if self.session is not None:
            self._end_session(now, event.cause, has_exited=True)
        else:
            self._explain_end(event, now)
        self._end_wait(now)

    def _end_session(self, now: float, cause: Any, has_exited: bool) -> float:
        """End the current session and return when its slot was released."""
        session = self.sessions[-1]
        session.end(now, has_exited)
        session.end_cause = cause
        spans = session.spans(now)
        if self._closed_waits and self._closed_waits[-1].end > spans[0].start:
            wait = self._closed_waits.pop()  # the slot was claimed before the first event of its session
            self._add_wait(wait.phase, wait.start, spans[0].start)
        return spans[-1].end

    def _end_wait(self, now: float) -> None:
        if self._open_wait is not None:
            self._add_wait(*self._open_wait, now)
            self._open_wait = None

    def _add_wait(self, phase: Phase, start: float, end: float) -> None:
        if end > start:
            self._closed_waits.append(PhaseSpan(phase, start, end))


Handler = Callable[[SlotTimeline, PoolEvent, float], None]


def _in_session(handle: Callable[[SlotSession, float], None]) -> Handler:
    """Return a handler for an event that only concerns the current session."""

    def handler(timeline: SlotTimeline, event: PoolEvent, now: float) -> None:
        if timeline.session is not None:
            handle(timeline.session, now)

    return handler


_HANDLERS: Mapping[PoolEventKind, Handler] = {
    PoolEventKind.SUBMITTED: SlotTimeline._on_submitted,
    PoolEventKind.INPUT_QUEUED: SlotTimeline._on_input_queued,
    PoolEventKind.INPUT_STARTED: SlotTimeline._on_input_started,
    PoolEventKind.INPUT_FINISHED: _in_session(SlotSession.finish_input),
    PoolEventKind.STARTED: SlotTimeline._on_started,
    PoolEventKind.OUTPUT_QUEUED: _in_session(SlotSession.queue_transfer),
    PoolEventKind.OUTPUT_STARTED: _in_session(SlotSession.start_output),
    PoolEventKind.OUTPUT_FINISHED: _in_session(SlotSession.finish_output),
    PoolEventKind.CHECKPOINTED: _in_session(SlotSession.checkpoint),
    PoolEventKind.SUSPENDED: _in_session(lambda session, now: session.pause(now, Phase.SUSPENDED)),
    PoolEventKind.DISCONNECTED: _in_session(lambda session, now: session.pause(now, Phase.DISCONNECTED)),
    PoolEventKind.RESUMED: _in_session(SlotSession.resume),
    PoolEventKind.INTERRUPTED: SlotTimeline._on_interrupted,
    PoolEventKind.HELD: SlotTimeline._on_held,
    PoolEventKind.RELEASED: SlotTimeline._on_released,
    PoolEventKind.GONE: SlotTimeline._on_gone,
}
