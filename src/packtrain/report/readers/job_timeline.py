"""Collects the waits, holds and slot sessions of one job while its events are read."""

from __future__ import annotations

from packtrain.report.history import ExecutionRecord, FailureCategory, JobRecord, Outcome, Phase, PhaseSpan
from packtrain.report.readers.agent_timeline import AgentTimeline, retained_compute_by_emitter, with_retained_compute
from packtrain.report.readers.condor_end_status import EndStatus
from packtrain.report.readers.slot_session import SlotSession

_OUTCOMES_OF_HELD_JOBS = (Outcome.HELD, Outcome.TIME_LIMIT, Outcome.WRONG_OUTPUT, Outcome.REMOVED)
_UNFINISHED = EndStatus(Outcome.RUNNING, FailureCategory.NONE)


class JobTimeline:
    """A job that has not ended. The argument `now` of each method is the time of the event."""

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
        self.submitted_at: float | None = None  # None if the beginning of the log is missing
        self.submit_host = ""
        self._queued_at: float | None = None
        self._held_at: float | None = None
        self._held_in_phase: Phase | None = None
        self._agent_timelines: dict[int, list[AgentTimeline]] = {}  # by index in `executions`
        self.end_status = _UNFINISHED  # of the last session or the current hold
        self.remote_error = ""  # the last error message of a node
        self.executions: list[ExecutionRecord] = []
        self.waits: list[PhaseSpan] = []
        self.session: SlotSession | None = None
        self.last_event_at = now

    @property
    def current_session(self) -> SlotSession | None:
        """The session that has not ended."""
        return self.session if self.session is not None and self.session.ended_at is None else None

    @property
    def is_held(self) -> bool:
        return self._held_at is not None

    @property
    def held_in_phase(self) -> Phase | None:
        return self._held_in_phase if self.is_held else None

    def close_open_spans(self, now: float) -> None:
        """End the open session and wait at `now`, because there are no more events."""
        self._close_session(now)
        self._stop_waiting(now)

    def on_submitted(self, now: float, submit_host: str) -> None:
        """Record the submission, unless an earlier event exists (the log is out of order)."""
        if self.submitted_at is None and self.session is None and not self.executions and not self.is_held:
            self.submitted_at = self._queued_at = now
            self.submit_host = submit_host

    def start_session(self, now: float) -> SlotSession:
        """Start a session on a slot and close the previous one."""
        if self.session is not None:
            self.session.mark_lost(now, self.last_event_at)
        self._close_session(now)
        self._stop_waiting(now)
        self.session, self.remote_error, self._held_in_phase = SlotSession(now), "", None
        return self.session

    def on_session_ended(self, now: float, end_status: EndStatus, interrupted: bool = True) -> None:
        """End the session and queue the job again. `interrupted`: the program had not ended by itself."""
        if self.current_session is not None:
            self.current_session.close(now, end_status, interrupted)
            self._queued_at, self.end_status = now, end_status

    def on_held(self, now: float, end_status: EndStatus, interrupted: bool) -> None:
        self._held_in_phase = self._phase_at_hold(now, end_status, interrupted)
        self._close_session(now)
        self._stop_waiting(now)
        self._held_at, self.end_status = now, end_status

    def _phase_at_hold(self, now: float, end_status: EndStatus, interrupted: bool) -> Phase:
        """Return the phase that the hold ended: that of a session, or QUEUED."""
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
        """End the job, because it terminated or was removed."""
        if self.is_held and end_status.outcome is Outcome.REMOVED:
            # Users remove held jobs. The hold is why the job failed, not the removal.
            reason = f"{self.end_status.reason}; then removed"
            end_status = EndStatus(end_status.outcome, self.end_status.category, reason)
        if self.session is not None and self.session.ended_at is None:
            self.session.close(now, end_status, interrupted=False)
        elif self.session is not None:
            self.session.update_cause(now, end_status)
        self._close_session(now)
        self._stop_waiting(now)
        self.end_status, self.last_event_at = end_status, now

    def to_job_record(self, job_id: str, now: float, finished: bool) -> JobRecord:
        """Return the job as of `now`. A held job counts as ended, because nothing happens until it is released."""
        ended_at = self.last_event_at if finished else self._held_at
        status = (
            self.end_status
            if finished or self.is_held
            else _UNFINISHED._replace(category=self.end_status.category, reason=self.end_status.reason)
        )
        if not finished:
            self.close_open_spans(now)
        self._record_retained_compute()
        return JobRecord(
            job_id,
            tuple(self.executions),
            status.outcome,
            self.submitted_at,
            ended_at,
            tuple(self.waits),
            category=status.category,
            reason=status.reason,
            held_in_phase=self._held_in_phase if status.outcome in _OUTCOMES_OF_HELD_JOBS else None,
        )

    def _record_retained_compute(self) -> None:
        retained_s = retained_compute_by_emitter(agent for agents in self._agent_timelines.values() for agent in agents)
        for index, agents in self._agent_timelines.items():
            self.executions[index] = with_retained_compute(self.executions[index], agents, retained_s)

    def _close_session(self, now: float) -> None:
        """Turn the session into an execution record."""
        if self.session is None:
            return
        record = self.session.to_execution_record(len(self.executions) + 1, self._earliest_session_start(), now)
        if self.session.agent_timelines:
            self._agent_timelines[len(self.executions)] = list(self.session.agent_timelines.values())
        self.executions.append(record)
        self._trim_last_wait(record.start)
        if self.session.ended_at is not None and self._queued_at is not None:
            self._queued_at = record.end
        self.session = None

    def _earliest_session_start(self) -> float:
        """Return the time before which the job cannot have been on its current slot."""
        ends = [self.submitted_at or 0.0, *(execution.end for execution in self.executions[-1:])]
        holds = [wait.end for wait in self.waits[-2:] if wait.phase is Phase.HELD]
        return max(ends + holds)

    def _trim_last_wait(self, until: float) -> None:
        """Shorten the last wait: the slot was claimed before the first event of its session."""
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
