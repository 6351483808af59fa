"""The course of one job while its events come: waiting, held, on a slot. Pure."""

from __future__ import annotations

from packtrain.report.history import ExecutionRecord, FailureCategory, JobRecord, Outcome, Phase, PhaseSpan
from packtrain.report.readers.agent_timeline import AgentTimeline, retained_compute_by_emitter, with_retained_compute
from packtrain.report.readers.condor_end_status import EndStatus
from packtrain.report.readers.slot_session import SlotSession

_OUTCOMES_OF_HELD_JOBS = (Outcome.HELD, Outcome.TIME_LIMIT, Outcome.WRONG_OUTPUT, Outcome.REMOVED)
_UNFINISHED = EndStatus(Outcome.RUNNING, FailureCategory.NONE)


class JobTimeline:
    """A job that has not ended. `now` of a method is the moment of which an event tells."""

    __slots__ = (
        "_agent_timelines",
        "_held_at",
        "_held_in_phase",
        "_queued_at",
        "end_status",
        "executions",
        "last_event_at",
        "remote_error",
        "session",
        "submit_host",
        "submitted_at",
        "waits",
    )

    def __init__(self, now: float) -> None:
        self.submitted_at: float | None = None  # unknown where the beginning of a log is lost
        self.submit_host = ""  # from which it was submitted
        self._queued_at: float | None = None
        self._held_at: float | None = None
        self._held_in_phase: Phase | None = None
        self._agent_timelines: dict[
            int, list[AgentTimeline]
        ] = {}  # by the place of an attempt: its agents, if they are packtrain's
        self.end_status = _UNFINISHED  # what its last stay ended by, or what it is held for
        self.remote_error = ""  # what a machine said of its own accord
        self.executions: list[ExecutionRecord] = []
        self.waits: list[PhaseSpan] = []
        self.session: SlotSession | None = None
        self.last_event_at = now

    @property
    def current_session(self) -> SlotSession | None:
        """The stay that has not ended."""
        return self.session if self.session is not None and self.session.ended_at is None else None

    @property
    def is_held(self) -> bool:
        return self._held_at is not None

    @property
    def held_in_phase(self) -> Phase | None:
        return self._held_in_phase if self.is_held else None

    def close_open_spans(self, now: float) -> None:
        """Nothing more is told: what lasts is known until `now`."""
        self._close_session(now)
        self._stop_waiting(now)

    def on_submitted(self, now: float, submit_host: str) -> None:
        """The first word of a job, if the log is in order."""
        if self.submitted_at is None and self.session is None and not self.executions and not self.is_held:
            self.submitted_at = self._queued_at = now
            self.submit_host = submit_host

    def start_session(self, now: float) -> SlotSession:
        """A stay on a slot; what was before it is over."""
        if self.session is not None:
            self.session.mark_lost(now, self.last_event_at)
        self._close_session(now)
        self._stop_waiting(now)
        self.session, self.remote_error, self._held_in_phase = SlotSession(now), "", None
        return self.session

    def on_session_ended(self, now: float, end_status: EndStatus, interrupted: bool = True) -> None:
        """Its slot, for the queue. `running`: not because the program had ended."""
        if self.current_session is not None:
            self.current_session.close(now, end_status, interrupted)
            self._queued_at, self.end_status = now, end_status

    def on_held(self, now: float, end_status: EndStatus, interrupted: bool) -> None:
        self._held_in_phase = self._phase_at_hold(now, end_status, interrupted)
        self._close_session(now)
        self._stop_waiting(now)
        self._held_at, self.end_status = now, end_status

    def _phase_at_hold(self, now: float, end_status: EndStatus, interrupted: bool) -> Phase:
        """What a hold put an end to: a stay, or waiting for one."""
        if self.session is None:
            return Phase.QUEUED
        phase = self.session.current_phase
        if self.session.ended_at is None:
            self.session.close(now, end_status, interrupted)
            return phase
        return phase if self.session.update_cause(now, end_status) else Phase.QUEUED

    def on_released(self, now: float) -> None:
        if self.is_held:
            self._stop_waiting(now)
            self._queued_at, self._held_in_phase, self.end_status = now, None, _UNFINISHED

    def on_finished(self, now: float, end_status: EndStatus) -> None:
        """For good, by itself or by others."""
        if (
            self.is_held and end_status.outcome is Outcome.REMOVED
        ):  # people remove what is held: that is not why it failed
            end_status = EndStatus(
                end_status.outcome, self.end_status.category, f"{self.end_status.reason}; then removed"
            )
        if self.session is not None and self.session.ended_at is None:
            self.session.close(now, end_status, interrupted=False)
        elif self.session is not None:
            self.session.update_cause(now, end_status)
        self._close_session(now)
        self._stop_waiting(now)
        self.end_status, self.last_event_at = end_status, now

    def to_job_record(self, job_id: str, now: float, finished: bool) -> JobRecord:
        """As it is at `now`. One that is held counts as ended: nothing happens by itself any more."""
        ended = self.last_event_at if finished else self._held_at
        end = (
            self.end_status
            if finished or self.is_held
            else _UNFINISHED._replace(category=self.end_status.category, reason=self.end_status.reason)
        )
        if not finished:
            self.close_open_spans(now)
        self._record_retained_compute()
        in_phase = self._held_in_phase if end.outcome in _OUTCOMES_OF_HELD_JOBS else None
        told = (None, end.category, end.reason, in_phase)
        return JobRecord(
            job_id, tuple(self.executions), end.outcome, self.submitted_at, ended, tuple(self.waits), *told
        )

    def _record_retained_compute(self) -> None:
        kept = retained_compute_by_emitter(words for agents in self._agent_timelines.values() for words in agents)
        for place, agents in self._agent_timelines.items():
            self.executions[place] = with_retained_compute(self.executions[place], agents, kept)

    def _close_session(self, now: float) -> None:
        """Nothing more will be told of this stay."""
        if self.session is None:
            return
        made = self.session.to_execution_record(len(self.executions) + 1, self._earliest_session_start(), now)
        if self.session.agent_timelines:
            self._agent_timelines[len(self.executions)] = list(self.session.agent_timelines.values())
        self.executions.append(made)
        self._trim_last_wait(made.start)
        if self.session.ended_at is not None and self._queued_at is not None:
            self._queued_at = made.end
        self.session = None

    def _earliest_session_start(self) -> float:
        """Before this it cannot have been on its newest slot."""
        ends = [self.submitted_at or 0.0, *(a.end for a in self.executions[-1:])]
        held = [wait.end for wait in self.waits[-2:] if wait.phase is Phase.HELD]
        return max(ends + held)

    def _trim_last_wait(self, until: float) -> None:
        """It was on its slot already, as was told only at the end."""
        if self.waits and self.waits[-1].end > until:
            wait = self.waits.pop()
            self._add_wait(wait.phase, wait.start, until)

    def _stop_waiting(self, now: float) -> None:
        if self._held_at is not None:
            self._add_wait(Phase.HELD, self._held_at, now)
        elif self._queued_at is not None:
            self._add_wait(Phase.QUEUED, self._queued_at, now)
        self._held_at = self._queued_at = None

    def _add_wait(self, phase: Phase, start: float, end: float) -> None:
        if end > start:
            self.waits.append(PhaseSpan(phase, start, end))
