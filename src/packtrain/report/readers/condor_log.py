"""Builds job records from the events of HTCondor user logs, one event at a time.

Only the record of a job that has ended is kept in memory.

    000 → queued → 040/001 → slot session → 004/007/024 → queued → … → 005/009
                                 └─ 012 → held → 013 → queued
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from packtrain.condor.eventlog import attributes as transfers
from packtrain.condor.eventlog import event_types as codes
from packtrain.condor.eventlog.attributes import EventAttributes, event_attributes, transfer_type
from packtrain.condor.eventlog.job_event import EventTuple, JobEvent, JobId
from packtrain.errors import FormatError
from packtrain.events import Event
from packtrain.formatting import replace_control_chars
from packtrain.report.history import FailureCategory, JobRecord, Outcome, Phase
from packtrain.report.readers import condor_end_status
from packtrain.report.readers.agent_timeline import AGENT_EVENT_KINDS, AgentTimeline
from packtrain.report.readers.condor_end_status import EndStatus
from packtrain.report.readers.end_status import classify_agent_exit
from packtrain.report.readers.job_timeline import JobTimeline
from packtrain.report.readers.site_names import guess_site, node_from_attributes, site_from_attributes
from packtrain.report.readers.slot_session import SlotSession
from packtrain.report.readers.values import parse_amount, parse_count

_UNKNOWN_LOCATION = ("", "")
_AGENT_EVENT_PREFIX = "packtrain {"  # of each event that an agent writes into the log


class LogHistoryBuilder:
    """Builds the job records of one log, or of a log with its rotated parts, read in order."""

    def __init__(self) -> None:
        self._finished_jobs: dict[JobId, list[tuple[JobRecord, str]]] = {}  # a list, because a job id may be reused
        self._timelines: dict[JobId, JobTimeline] = {}
        self._interned_texts: dict[str, str] = {}  # so that equal texts share memory
        self._latest_event_at = 0.0  # of all finished jobs
        self.has_guessed_sites = False
        self.has_transfer_events = False

    def add_records(self, records: Iterable[EventTuple]) -> None:
        """Add events. They are plain tuples, because most of them only update the time of the last event."""
        timelines, handlers = self._timelines, _HANDLERS
        for record in records:
            _, code, job_id, event_at, _, _ = record
            timeline = timelines.get(job_id) or self._open_timeline(code, job_id, event_at)
            if timeline is None:
                continue
            now = event_at if event_at > timeline.last_event_at else timeline.last_event_at
            handler = handlers.get(code)
            status = handler(self, timeline, JobEvent._make(record), now) if handler is not None else None
            timeline.last_event_at = now
            if status is not None:
                timeline.on_finished(now, status)
                self._close(job_id, finished=True)

    def _open_timeline(self, code: int, job_id: JobId, event_at: float) -> JobTimeline | None:
        """Open the timeline of a new job: submitted now, or mentioned by a log whose beginning is missing."""
        is_new = code == codes.SUBMIT or (job_id not in self._finished_jobs and code in _JOB_EVENT_CODES)
        if not is_new or job_id[1] < 0:
            return None
        timeline = self._timelines[job_id] = JobTimeline(event_at)
        return timeline

    def _close(self, job_id: JobId, finished: bool) -> None:
        timeline = self._timelines.pop(job_id)
        self._latest_event_at = max(self._latest_event_at, timeline.last_event_at)
        job = timeline.to_job_record(f"{job_id[0]}.{job_id[1]}", self._latest_event_at, finished)
        self._finished_jobs.setdefault(job_id, []).append((job, timeline.submit_host))

    def intern_text(self, text: str) -> str:
        """Return a shared copy of a text, without control characters."""
        interned = self._interned_texts.get(text)
        if interned is None:
            interned = self._interned_texts[text] = replace_control_chars(text)
        return interned

    def finish(self) -> Iterator[tuple[JobRecord, str]]:
        """End all open jobs. Yield all jobs with their submit hosts, ordered by job id."""
        self._latest_event_at = max(
            [self._latest_event_at, *(timeline.last_event_at for timeline in self._timelines.values())]
        )
        for job_id in list(self._timelines):
            self._close(job_id, finished=False)
        for job_id in sorted(self._finished_jobs):
            yield from self._finished_jobs[job_id]


Handler = Callable[[LogHistoryBuilder, JobTimeline, JobEvent, float], "EndStatus | None"]


def _on_submit(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    timeline.on_submitted(now, builder.intern_text(str(event_attributes(record).get("SubmitHost", ""))))


def _on_file_transfer(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    builder.has_transfer_events = True
    handler = _TRANSFER_HANDLERS.get(transfer_type(record))
    if handler is not None:
        handler(timeline, now)


def _on_input_queued(timeline: JobTimeline, now: float) -> None:
    _session_for_input(timeline, now).on_input_queued(now)


def _on_input_started(timeline: JobTimeline, now: float) -> None:
    _session_for_input(timeline, now).on_input_started(now)


def _session_for_input(timeline: JobTimeline, now: float) -> SlotSession:
    """Return the session of an input transfer: a second one starts a new session, because the shadow had died."""
    session = timeline.current_session
    if session is None or session.has_executed or session.has_input_transfer:
        return timeline.start_session(now)
    return session


def _for_current_session(handler: Callable[[SlotSession, float], None]) -> Callable[[JobTimeline, float], None]:
    def handle(timeline: JobTimeline, now: float) -> None:
        if timeline.current_session is not None:
            handler(timeline.current_session, now)

    return handle


_TRANSFER_HANDLERS: Mapping[int, Callable[[JobTimeline, float], None]] = {
    transfers.IN_QUEUED: _on_input_queued,
    transfers.IN_STARTED: _on_input_started,
    transfers.IN_FINISHED: _for_current_session(SlotSession.on_input_finished),
    transfers.OUT_QUEUED: _for_current_session(SlotSession.on_output_queued),
    transfers.OUT_STARTED: _for_current_session(SlotSession.on_output_started),
    transfers.OUT_FINISHED: _for_current_session(SlotSession.on_output_finished),
}


def _on_execute(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    session = timeline.current_session
    if session is None or session.has_executed:
        session = timeline.start_session(now)
    session.on_execute(now)
    attributes = event_attributes(record)
    _set_location(builder, session, site_from_attributes(attributes), node_from_attributes(attributes))
    session.gpus = parse_amount(attributes.get("GPUs")) or session.gpus


def _set_location(builder: LogHistoryBuilder, session: SlotSession, site: str, node: str) -> None:
    builder.has_guessed_sites = builder.has_guessed_sites or not site
    session.location = (builder.intern_text(site or session.location[0] or guess_site(node)), builder.intern_text(node))


def _on_job_ad(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    """Read the job attributes that the submit file asked HTCondor to log."""
    attributes, session = event_attributes(record), timeline.current_session
    site, node = site_from_attributes(attributes), node_from_attributes({"SlotName": attributes.get("RemoteHost", "")})
    if session is not None and (site or node):
        _set_location(builder, session, site, session.location[1] or node)


def _on_evicted(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    attributes = event_attributes(record)
    code = parse_count(attributes.get("ReasonCode")) or 0
    requeued = attributes.get("TerminatedAndRequeued")
    if requeued:
        status = condor_end_status.classify_requeue(attributes.get("ReturnValue"), attributes.get("TerminatedBySignal"))
    else:
        reason = builder.intern_text(_reason_text(attributes, "Reason") or timeline.remote_error)
        subcode = parse_count(attributes.get("ReasonSubCode")) or 0
        status = condor_end_status.classify_eviction(code, subcode, reason)
    _record_usage(timeline, attributes)
    if timeline.current_session is not None:
        timeline.current_session.eviction_code = code
        if attributes.get("Checkpointed"):
            timeline.current_session.on_checkpoint(now)
    timeline.on_session_ended(now, status, interrupted=not requeued and not 0 < code < 1000)


def _record_usage(timeline: JobTimeline, attributes: EventAttributes) -> None:
    session = timeline.current_session
    if session is None:
        return
    session.received_bytes = parse_count(attributes.get("ReceivedBytes"))
    session.sent_bytes = parse_count(attributes.get("SentBytes"))
    session.slot_busy_s = parse_amount(attributes.get("TimeSlotBusyUsage"))
    session.execute_s = parse_amount(attributes.get("TimeExecuteUsage"))
    session.gpus = session.gpus or parse_amount(attributes.get("GPUs")) or 0.0


def _on_terminated(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> EndStatus:
    attributes = event_attributes(record)
    # Without a current session, the log has lost the beginning of a new one.
    session = timeline.current_session or timeline.start_session(now)
    _record_usage(timeline, attributes)
    agents = list(session.agent_timelines.values())
    agent_status = classify_agent_exit(agents[-1].exit_data) if agents else None
    status = agent_status or condor_end_status.classify_exit(
        attributes.get("ReturnValue"), attributes.get("TerminatedBySignal")
    )
    return status._replace(reason=builder.intern_text(status.reason))


def _on_shadow_exception(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    attributes = event_attributes(record)
    _record_usage(timeline, attributes)
    message = builder.intern_text(_reason_text(attributes, "Message") or timeline.remote_error)
    timeline.on_session_ended(now, condor_end_status.classify_shadow_exception(message))


def _on_aborted(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> EndStatus:
    return condor_end_status.classify_removal(builder.intern_text(_reason_text(event_attributes(record), "Reason")))


def _on_held(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    attributes = event_attributes(record)
    code = parse_count(attributes.get("HoldReasonCode")) or 0
    subcode = parse_count(attributes.get("HoldReasonSubCode")) or 0
    reason = builder.intern_text(_reason_text(attributes, "HoldReason"))
    status = condor_end_status.classify_hold(code, subcode, reason)
    timeline.on_held(now, status, condor_end_status.interrupts_running_job(code, reason))


def _on_released(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    timeline.on_released(now)


def _on_remote_error(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    """Store the error message of a node. Its consequence is logged as another event."""
    attributes, session = event_attributes(record), timeline.current_session
    timeline.remote_error = builder.intern_text(_reason_text(attributes, "ErrorMsg"))
    if session is not None and session.location == _UNKNOWN_LOCATION:
        _set_location(builder, session, "", node_from_attributes({"SlotName": attributes.get("ExecuteHost", "")}))


def _on_pause(phase: Phase) -> Handler:
    def handle(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
        if timeline.current_session is not None:
            timeline.current_session.on_paused(now, phase)

    return handle


def _on_resume(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    if timeline.current_session is not None:
        timeline.current_session.has_reconnected |= record.event_type == codes.RECONNECTED
        timeline.current_session.on_resumed(now)


def _on_reconnect_failed(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    reason = _reason_text(event_attributes(record), "Reason") or "lost contact with the node"
    timeline.on_session_ended(now, EndStatus(Outcome.LOST, FailureCategory.POOL, builder.intern_text(reason)))


def _on_checkpointed(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    if timeline.current_session is not None:
        timeline.current_session.on_checkpoint(now)


def _on_dataflow_skipped(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> EndStatus:
    return EndStatus(Outcome.SUCCEEDED, FailureCategory.NONE, "skipped: its outputs are newer than its inputs")


def _on_generic(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    """Read an event of packtrain's agent, if it is a packtrain job."""
    text, session = str(event_attributes(record).get("Info", "")), timeline.current_session
    if not text.startswith(_AGENT_EVENT_PREFIX) or session is None:
        return
    with contextlib.suppress(FormatError):
        event = Event.from_json(text[len(_AGENT_EVENT_PREFIX) - 1 :])
        has_times = parse_amount(event.mono) is not None and parse_amount(event.wall) is not None
        if event.kind in AGENT_EVENT_KINDS and has_times:
            session.agent_timelines.setdefault(event.emitter, AgentTimeline(event.emitter)).add_event(event)


def _reason_text(attributes: EventAttributes, attribute: str) -> str:
    """Return a text attribute as one line, truncated to fit into a table."""
    text = " ".join(str(attributes.get(attribute, "")).split())
    return text if len(text) <= 500 else text[:499] + "…"


_HANDLERS: Mapping[int, Handler] = {
    codes.SUBMIT: _on_submit,
    codes.EXECUTE: _on_execute,
    codes.CHECKPOINTED: _on_checkpointed,
    codes.EVICTED: _on_evicted,
    codes.TERMINATED: _on_terminated,
    codes.SHADOW_EXCEPTION: _on_shadow_exception,
    codes.GENERIC: _on_generic,
    codes.ABORTED: _on_aborted,
    codes.SUSPENDED: _on_pause(Phase.SUSPENDED),
    codes.UNSUSPENDED: _on_resume,
    codes.HELD: _on_held,
    codes.RELEASED: _on_released,
    codes.REMOTE_ERROR: _on_remote_error,
    codes.DISCONNECTED: _on_pause(Phase.DISCONNECTED),
    codes.RECONNECTED: _on_resume,
    codes.RECONNECT_FAILED: _on_reconnect_failed,
    codes.JOB_AD: _on_job_ad,
    codes.FILE_TRANSFER: _on_file_transfer,
    codes.DATAFLOW_SKIPPED: _on_dataflow_skipped,
}
# Events that prove that a job exists, even if its earlier events are missing.
_JOB_EVENT_CODES = frozenset({*_HANDLERS, codes.IMAGE_SIZE} - {codes.GENERIC})
