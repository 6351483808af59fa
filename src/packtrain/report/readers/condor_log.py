"""From the events of HTCondor's user logs to what happened to jobs. Pure, one event at a time; a job that has ended
takes no more room than what is said of it.

    000 → queued → 040/001 → a stay on a slot → 004/007/024 → queued → … → 005/009
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
from packtrain.report.history import FailureCategory, JobRecord, Outcome, Phase
from packtrain.report.number_format import replace_control_chars
from packtrain.report.readers import condor_end_status
from packtrain.report.readers.agent_timeline import AGENT_EVENT_KINDS, AgentTimeline
from packtrain.report.readers.condor_end_status import EndStatus
from packtrain.report.readers.end_status import classify_agent_exit
from packtrain.report.readers.job_timeline import JobTimeline
from packtrain.report.readers.site_names import guess_site, node_from_attributes, site_from_attributes
from packtrain.report.readers.slot_session import SlotSession
from packtrain.report.readers.values import parse_amount, parse_count

_UNKNOWN_LOCATION = ("", "")
_AGENT_EVENT_PREFIX = "packtrain {"  # begins each word that an agent writes into the log


class LogHistoryBuilder:
    """Takes the events of one log, or of one and its rotated parts, in their order."""

    def __init__(self) -> None:
        self._finished_jobs: dict[JobId, list[tuple[JobRecord, str]]] = {}  # a number may be used again
        self._timelines: dict[JobId, JobTimeline] = {}
        self._interned_texts: dict[str, str] = {}  # each text is kept once
        self._latest_event_at = 0.0  # of what was told of all jobs that have ended
        self.has_guessed_sites = False
        self.has_transfer_events = False

    def add_records(self, records: Iterable[EventTuple]) -> None:
        """The fields of records: most of them are signs of life, and nothing else."""
        courses, handlers = self._timelines, _HANDLERS
        for raw in records:
            _, code, key, when, _, _ = raw
            course = courses.get(key) or self._open_timeline(code, key, when)
            if course is None:
                continue
            now = when if when > course.last_event_at else course.last_event_at
            handler = handlers.get(code)
            end = handler(self, course, JobEvent._make(raw), now) if handler is not None else None
            course.last_event_at = now
            if end is not None:
                course.on_finished(now, end)
                self._close(key, finished=True)

    def _open_timeline(self, code: int, key: JobId, event_at: float) -> JobTimeline | None:
        """A job that was not known: submitted now, or told of by a log whose beginning is lost."""
        fresh = code == codes.SUBMIT or (key not in self._finished_jobs and code in _JOB_EVENT_CODES)
        if not fresh or key[1] < 0:
            return None
        course = self._timelines[key] = JobTimeline(event_at)
        return course

    def _close(self, key: JobId, finished: bool) -> None:
        course = self._timelines.pop(key)
        self._latest_event_at = max(self._latest_event_at, course.last_event_at)
        job = course.to_job_record(f"{key[0]}.{key[1]}", self._latest_event_at, finished)
        self._finished_jobs.setdefault(key, []).append((job, course.submit_host))

    def intern_text(self, text: str) -> str:
        """As it is kept: each once, and nothing in it that a terminal would obey."""
        known = self._interned_texts.get(text)
        if known is None:
            known = self._interned_texts[text] = replace_control_chars(text)
        return known

    def finish(self) -> Iterator[tuple[JobRecord, str]]:
        """All jobs with the hosts that they were submitted from, in the order of their numbers. Ends the fold."""
        self._latest_event_at = max(
            [self._latest_event_at, *(course.last_event_at for course in self._timelines.values())]
        )
        for key in list(self._timelines):
            self._close(key, finished=False)
        for key in sorted(self._finished_jobs):
            yield from self._finished_jobs[key]


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
    """Another input in one stay is another stay: a shadow died without a word."""
    stay = timeline.current_session
    return timeline.start_session(now) if stay is None or stay.has_executed or stay.has_input_transfer else stay


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
    stay = timeline.current_session
    if stay is None or stay.has_executed:
        stay = timeline.start_session(now)
    stay.on_execute(now)
    said = event_attributes(record)
    machine = node_from_attributes(said)
    _set_location(builder, stay, site_from_attributes(said), machine)
    stay.gpus = parse_amount(said.get("GPUs")) or stay.gpus


def _set_location(builder: LogHistoryBuilder, session: SlotSession, site: str, node: str) -> None:
    builder.has_guessed_sites = builder.has_guessed_sites or not site
    session.location = (builder.intern_text(site or session.location[0] or guess_site(node)), builder.intern_text(node))


def _on_job_ad(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    """Attributes of the job that the submit file asked for."""
    said, stay = event_attributes(record), timeline.current_session
    site, machine = site_from_attributes(said), node_from_attributes({"SlotName": said.get("RemoteHost", "")})
    if stay is not None and (site or machine):
        _set_location(builder, stay, site, stay.location[1] or machine)


def _on_evicted(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    said = event_attributes(record)
    code = parse_count(said.get("ReasonCode")) or 0
    if said.get("TerminatedAndRequeued"):
        end = condor_end_status.classify_requeue(said.get("ReturnValue"), said.get("TerminatedBySignal"))
    else:
        reason = _reason_text(said, "Reason") or timeline.remote_error
        end = condor_end_status.classify_eviction(
            code, parse_count(said.get("ReasonSubCode")) or 0, builder.intern_text(reason)
        )
    _record_usage(timeline, said)
    if timeline.current_session is not None:
        timeline.current_session.eviction_code = code
        if said.get("Checkpointed"):
            timeline.current_session.on_checkpoint(now)
    timeline.on_session_ended(now, end, interrupted=not said.get("TerminatedAndRequeued") and not 0 < code < 1000)


def _record_usage(timeline: JobTimeline, attributes: EventAttributes) -> None:
    stay = timeline.current_session
    if stay is None:
        return
    stay.received_bytes, stay.sent_bytes = (
        parse_count(attributes.get("ReceivedBytes")),
        parse_count(attributes.get("SentBytes")),
    )
    stay.slot_busy_s, stay.execute_s = (
        parse_amount(attributes.get("TimeSlotBusyUsage")),
        parse_amount(attributes.get("TimeExecuteUsage")),
    )
    stay.gpus = stay.gpus or parse_amount(attributes.get("GPUs")) or 0.0


def _on_terminated(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> EndStatus:
    said = event_attributes(record)
    stay = timeline.current_session or timeline.start_session(
        now
    )  # the log lost its beginning: it is another one than those before
    _record_usage(timeline, said)
    agents = list(stay.agent_timelines.values())
    told = classify_agent_exit(agents[-1].exit_data) if agents else None
    end = told or condor_end_status.classify_exit(said.get("ReturnValue"), said.get("TerminatedBySignal"))
    return end._replace(reason=builder.intern_text(end.reason))


def _on_shadow_exception(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    said = event_attributes(record)
    _record_usage(timeline, said)
    timeline.on_session_ended(
        now,
        condor_end_status.classify_shadow_exception(
            builder.intern_text(_reason_text(said, "Message") or timeline.remote_error)
        ),
    )


def _on_aborted(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> EndStatus:
    return condor_end_status.classify_removal(builder.intern_text(_reason_text(event_attributes(record), "Reason")))


def _on_held(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    said = event_attributes(record)
    code, reason = parse_count(said.get("HoldReasonCode")) or 0, builder.intern_text(_reason_text(said, "HoldReason"))
    end = condor_end_status.classify_hold(code, parse_count(said.get("HoldReasonSubCode")) or 0, reason)
    timeline.on_held(now, end, condor_end_status.interrupts_running_job(code, reason))


def _on_released(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    timeline.on_released(now)


def _on_remote_error(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    """An error that a machine reports; what follows from it is another event."""
    said = event_attributes(record)
    timeline.remote_error = builder.intern_text(_reason_text(said, "ErrorMsg"))
    if timeline.current_session is not None and timeline.current_session.location == _UNKNOWN_LOCATION:
        _set_location(
            builder, timeline.current_session, "", node_from_attributes({"SlotName": said.get("ExecuteHost", "")})
        )


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
    reason = _reason_text(event_attributes(record), "Reason") or "the machine was not heard of again"
    timeline.on_session_ended(now, EndStatus(Outcome.LOST, FailureCategory.POOL, builder.intern_text(reason)))


def _on_checkpointed(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    if timeline.current_session is not None:
        timeline.current_session.on_checkpoint(now)


def _on_dataflow_skipped(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> EndStatus:
    return EndStatus(Outcome.SUCCEEDED, FailureCategory.NONE, "skipped: its outputs are newer than its inputs")


def _on_generic(builder: LogHistoryBuilder, timeline: JobTimeline, record: JobEvent, now: float) -> None:
    """A word of packtrain's agent, if it is a job of packtrain."""
    text = str(event_attributes(record).get("Info", ""))
    if not text.startswith(_AGENT_EVENT_PREFIX) or timeline.current_session is None:
        return
    with contextlib.suppress(FormatError):
        event = Event.from_json(text[len(_AGENT_EVENT_PREFIX) - 1 :])
        if (
            event.kind in AGENT_EVENT_KINDS
            and parse_amount(event.mono) is not None
            and parse_amount(event.wall) is not None
        ):
            timeline.current_session.agent_timelines.setdefault(event.emitter, AgentTimeline(event.emitter)).add_event(
                event
            )


def _reason_text(attributes: EventAttributes, attribute: str) -> str:
    """One line, of a length that a table bears."""
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
_JOB_EVENT_CODES = frozenset(
    {*_HANDLERS, codes.IMAGE_SIZE} - {codes.GENERIC}
)  # that there is a job, even if nothing was told of it before
