"""Builds job records from the events of HTCondor user logs, one event at a time.

`state.slot_time` turns the events into waits and slot sessions; this module translates them, and collects what else the
log says about each session. Only the record of a job that has ended is kept in memory.

    000 → queued → 040/001 → slot session → 004/007/024 → queued → … → 005/009
                                 └─ 012 → held → 013 → queued
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from packtrain.condor import hold_codes
from packtrain.condor.eventlog import attributes as transfers
from packtrain.condor.eventlog import event_types as codes
from packtrain.condor.eventlog.attributes import EventAttributes, event_attributes, transfer_type
from packtrain.condor.eventlog.job_event import EventTuple, JobEvent, JobId
from packtrain.condor.reasons import put_cause_first
from packtrain.errors import FormatError
from packtrain.events import Event
from packtrain.formatting import replace_control_chars
from packtrain.report.history import ExecutionRecord, FailureCategory, JobRecord, Outcome
from packtrain.report.readers import condor_attributes
from packtrain.report.readers.agent_timeline import (
    AGENT_EVENT_KINDS,
    AgentTimeline,
    add_agent_timelines,
    parse_amount,
    parse_count,
    record_from_session,
    retained_compute_by_emitter,
    with_retained_compute,
)
from packtrain.report.readers.condor_attributes import guess_site, node_from_attributes, site_from_attributes
from packtrain.report.readers.end_status import QUEUED, RUNNING, UNLOGGED_END, EndStatus, classify_agent_exit
from packtrain.state.slot_time import PoolEvent, PoolEventKind, SlotSession, SlotTimeline

_UNKNOWN_LOCATION = ("", "")
_AGENT_EVENT_PREFIX = "packtrain {"  # of each event that an agent writes into the log
_OUTCOMES_OF_HELD_JOBS = (Outcome.HELD, Outcome.TIME_LIMIT, Outcome.WRONG_OUTPUT, Outcome.REMOVED)
_HOLD_OR_REMOVE_CODES = (1009, 1023)  # evicted because a user held or removed the job
_CONTAINER_START_FAILED = 45  # a hold code, but the job is queued again


@dataclass(slots=True)
class _SessionDetails:
    """What a log says about a session, apart from its times."""

    location: tuple[str, str] = _UNKNOWN_LOCATION  # site, node
    gpus: float = 0.0
    received_bytes: int | None = None
    sent_bytes: int | None = None
    eviction_code: int = 0  # VacateReasonCode
    agents: dict[str, AgentTimeline] = field(default_factory=dict)  # by emitter, if it is a packtrain job

    @property
    def explains_end(self) -> bool | None:
        """Whether a hold or removal that follows explains the end of the session; None: if it follows at once."""
        if self.eviction_code in (0, _CONTAINER_START_FAILED):
            return None
        return self.eviction_code < 1000 or self.eviction_code in _HOLD_OR_REMOVE_CODES


class LogJob:
    """A job of a log."""

    __slots__ = ("_details", "end_status", "remote_error", "submit_host", "timeline")

    def __init__(self, now: float) -> None:
        self.timeline = SlotTimeline()
        self.timeline.last_event_at = now
        self._details: list[_SessionDetails] = []  # of each session
        self.end_status = RUNNING  # of the last session or the current hold
        self.remote_error = ""  # the last error message of a node
        self.submit_host = ""

    def add(self, kind: PoolEventKind, now: float, status: EndStatus | None = None, has_exited: bool = False) -> None:
        """Add an event of the pool, with the end status that it gives to the session or to the job."""
        explains_end = self._details[-1].explains_end if self._details else None
        self.timeline.add(PoolEvent(kind, now, has_exited=has_exited, cause=status, explains_end=explains_end))
        if len(self._details) < len(self.timeline.sessions):
            self._details.append(_SessionDetails())
            self.remote_error = ""
        self.end_status = status or self.end_status

    @property
    def session(self) -> SlotSession | None:
        """The session that has not ended."""
        return self.timeline.session

    @property
    def details(self) -> _SessionDetails:
        """The details of the last session."""
        return self._details[-1]

    def finish(self, now: float, status: EndStatus) -> None:
        """End the job. Users remove held jobs; the hold is why the job failed, not the removal."""
        if self.timeline.held_at is not None and status.outcome is Outcome.REMOVED:
            reason = f"{self.end_status.reason}; then removed"
            status = EndStatus(status.outcome, self.end_status.category, reason)
        self.add(PoolEventKind.GONE, now, status)

    def to_job_record(self, job_id: str, now: float, finished: bool) -> JobRecord:
        """Return the job as of `now`. A held job counts as ended, because nothing happens until it is released."""
        held_at = self.timeline.held_at
        status = self.end_status
        if not finished and held_at is None:
            unfinished = QUEUED if self.session is None else RUNNING
            status = unfinished._replace(category=status.category, reason=status.reason)
        return JobRecord(
            job_id,
            tuple(self._build_executions(now)),
            status.outcome,
            self.timeline.submitted_at,
            self.timeline.last_event_at if finished else held_at,
            self.timeline.waits(now),
            category=status.category,
            reason=status.reason,
            held_in_phase=self.timeline.held_in_phase if status.outcome in _OUTCOMES_OF_HELD_JOBS else None,
        )

    def _build_executions(self, now: float) -> Iterator[ExecutionRecord]:
        retained_s = retained_compute_by_emitter(agent for one in self._details for agent in one.agents.values())
        sessions = zip(self.timeline.sessions, self._details, strict=True)
        for number, (session, details) in enumerate(sessions, 1):
            status = session.end_cause or UNLOGGED_END
            record = record_from_session(session, number, now, status, details.received_bytes, details.sent_bytes)
            record = replace(record, site=details.location[0], node=details.location[1], gpus=details.gpus)
            agents = list(details.agents.values())
            record = add_agent_timelines(record, agents)
            yield with_retained_compute(record, agents, retained_s) if agents else record


class LogHistoryBuilder:
    """Builds the job records of one log, or of a log with its rotated parts, read in order."""

    def __init__(self) -> None:
        self._finished_jobs: dict[JobId, list[tuple[JobRecord, str]]] = {}  # a list, because a job id may be reused
        self._open_jobs: dict[JobId, LogJob] = {}
        self._interned_texts: dict[str, str] = {}  # so that equal texts share memory
        self._latest_event_at = 0.0  # of all finished jobs
        self.has_guessed_sites = False
        self.has_transfer_events = False

    def add_records(self, records: Iterable[EventTuple]) -> None:
        """Add events. They are plain tuples, because most of them only update the time of the last event."""
        open_jobs, handlers = self._open_jobs, _HANDLERS
        for record in records:
            _, code, job_id, event_at, _, _ = record
            if code == codes.SUBMIT and job_id in open_jobs:
                self._close_if_other(job_id, record)
            job = open_jobs.get(job_id) or self._open_job(code, job_id, event_at)
            if job is None:
                continue
            now = max(event_at, job.timeline.last_event_at)
            handler = handlers.get(code)
            status = handler(self, job, JobEvent._make(record), now) if handler is not None else None
            job.timeline.last_event_at = now
            if status is not None:
                job.finish(now, status)
                self._close(job_id, finished=True)

    def _open_job(self, code: int, job_id: JobId, event_at: float) -> LogJob | None:
        """Open a new job: submitted now, or mentioned by a log whose beginning is missing."""
        is_new = code == codes.SUBMIT or (job_id not in self._finished_jobs and code in _JOB_EVENT_CODES)
        if not is_new or job_id[1] < 0:
            return None
        job = self._open_jobs[job_id] = LogJob(event_at)
        return job

    def _close_if_other(self, job_id: JobId, record: EventTuple) -> None:
        """Close an unfinished job whose number another job now uses: logs of two access points were joined."""
        event, job = JobEvent._make(record), self._open_jobs[job_id]
        submitted_at = job.timeline.submitted_at
        is_other = event.timestamp != submitted_at or _submit_host(event) != job.submit_host
        if submitted_at is not None and is_other:
            self._close(job_id, finished=False)

    def _close(self, job_id: JobId, finished: bool) -> None:
        job = self._open_jobs.pop(job_id)
        self._latest_event_at = max(self._latest_event_at, job.timeline.last_event_at)
        record = job.to_job_record(f"{job_id[0]}.{job_id[1]}", self._latest_event_at, finished)
        self._finished_jobs.setdefault(job_id, []).append((record, job.submit_host))

    def intern_text(self, text: str) -> str:
        """Return a shared copy of a text, without control characters."""
        interned = self._interned_texts.get(text)
        if interned is None:
            interned = self._interned_texts[text] = replace_control_chars(text)
        return interned

    def finish(self) -> Iterator[tuple[JobRecord, str]]:
        """End all open jobs. Yield all jobs with their submit hosts, ordered by job id."""
        self._latest_event_at = max(
            [self._latest_event_at, *(job.timeline.last_event_at for job in self._open_jobs.values())]
        )
        for job_id in list(self._open_jobs):
            self._close(job_id, finished=False)
        for job_id in sorted(self._finished_jobs):
            yield from self._finished_jobs[job_id]


Handler = Callable[[LogHistoryBuilder, LogJob, JobEvent, float], "EndStatus | None"]


def _on_submit(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> None:
    is_first = job.timeline.submitted_at is None
    job.add(PoolEventKind.SUBMITTED, now)
    if is_first and job.timeline.submitted_at is not None:
        job.submit_host = builder.intern_text(_submit_host(record))


def _submit_host(record: JobEvent) -> str:
    """Return the address of the access point that submitted the job."""
    return replace_control_chars(str(event_attributes(record).get("SubmitHost", "")))


def _on_file_transfer(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> None:
    builder.has_transfer_events = True
    kind = _TRANSFER_KINDS.get(transfer_type(record))
    if kind is not None:
        job.add(kind, now)


_TRANSFER_KINDS: Mapping[int, PoolEventKind] = {
    transfers.IN_QUEUED: PoolEventKind.INPUT_QUEUED,
    transfers.IN_STARTED: PoolEventKind.INPUT_STARTED,
    transfers.IN_FINISHED: PoolEventKind.INPUT_FINISHED,
    transfers.OUT_QUEUED: PoolEventKind.OUTPUT_QUEUED,
    transfers.OUT_STARTED: PoolEventKind.OUTPUT_STARTED,
    transfers.OUT_FINISHED: PoolEventKind.OUTPUT_FINISHED,
}


def _on_execute(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> None:
    job.add(PoolEventKind.STARTED, now)
    attributes = event_attributes(record)
    _set_location(builder, job, site_from_attributes(attributes), node_from_attributes(attributes))
    job.details.gpus = parse_amount(attributes.get("GPUs")) or job.details.gpus


def _set_location(builder: LogHistoryBuilder, job: LogJob, site: str, node: str) -> None:
    builder.has_guessed_sites = builder.has_guessed_sites or not site
    known_site, _ = job.details.location
    job.details.location = (builder.intern_text(site or known_site or guess_site(node)), builder.intern_text(node))


def _on_job_ad(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> None:
    """Read the job attributes that the submit file asked HTCondor to log."""
    attributes = event_attributes(record)
    site, node = site_from_attributes(attributes), node_from_attributes({"SlotName": attributes.get("RemoteHost", "")})
    if job.session is not None and (site or node):
        _set_location(builder, job, site, job.details.location[1] or node)


def _on_evicted(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> None:
    if job.session is None:
        return
    attributes = event_attributes(record)
    code = parse_count(attributes.get("ReasonCode")) or 0
    requeued = attributes.get("TerminatedAndRequeued")
    if requeued:
        status = condor_attributes.classify_requeue(attributes.get("ReturnValue"), attributes.get("TerminatedBySignal"))
    else:
        reason = builder.intern_text(_reason_text(attributes, "Reason") or job.remote_error)
        subcode = parse_count(attributes.get("ReasonSubCode")) or 0
        status = condor_attributes.classify_eviction(code, subcode, reason)
    _record_usage(job, attributes)
    job.details.eviction_code = code
    job.session.is_start_failed = code == _CONTAINER_START_FAILED
    if attributes.get("Checkpointed"):
        job.add(PoolEventKind.CHECKPOINTED, now)
    job.add(PoolEventKind.INTERRUPTED, now, status, has_exited=bool(requeued) or 0 < code < 1000)


def _record_usage(job: LogJob, attributes: EventAttributes) -> None:
    session, details = job.session, job.details
    if session is not None:
        session.slot_s = parse_amount(attributes.get("TimeSlotBusyUsage"))
        session.execute_s = parse_amount(attributes.get("TimeExecuteUsage"))
        details.received_bytes = parse_count(attributes.get("ReceivedBytes"))
        details.sent_bytes = parse_count(attributes.get("SentBytes"))
        details.gpus = details.gpus or parse_amount(attributes.get("GPUs")) or 0.0


def _on_terminated(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> EndStatus:
    attributes = event_attributes(record)
    if job.session is None:
        job.add(PoolEventKind.INPUT_QUEUED, now)  # the log has lost the beginning of a new session
    _record_usage(job, attributes)
    agents = list(job.details.agents.values())
    agent_status = classify_agent_exit(agents[-1].exit_data) if agents else None
    status = agent_status or condor_attributes.classify_exit(
        attributes.get("ReturnValue"), attributes.get("TerminatedBySignal")
    )
    return status._replace(reason=builder.intern_text(status.reason))


def _on_shadow_exception(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> None:
    if job.session is not None:
        attributes = event_attributes(record)
        _record_usage(job, attributes)
        message = builder.intern_text(_reason_text(attributes, "Message") or job.remote_error)
        job.add(PoolEventKind.INTERRUPTED, now, condor_attributes.classify_shadow_exception(message))


def _on_aborted(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> EndStatus:
    return condor_attributes.classify_removal(builder.intern_text(_reason_text(event_attributes(record), "Reason")))


def _on_held(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> None:
    attributes = event_attributes(record)
    code = parse_count(attributes.get("HoldReasonCode")) or 0
    subcode = parse_count(attributes.get("HoldReasonSubCode")) or 0
    reason = builder.intern_text(_reason_text(attributes, "HoldReason"))
    status = condor_attributes.classify_hold(code, subcode, reason)
    job.add(PoolEventKind.HELD, now, status, has_exited=not hold_codes.classify_hold(code, subcode, reason).interrupts)


def _on_released(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> None:
    if job.timeline.held_at is not None:
        job.add(PoolEventKind.RELEASED, now, RUNNING)


def _on_remote_error(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> None:
    """Store the error message of a node. Its consequence is logged as another event."""
    attributes = event_attributes(record)
    job.remote_error = builder.intern_text(_reason_text(attributes, "ErrorMsg"))
    if job.session is not None and job.details.location == _UNKNOWN_LOCATION:
        _set_location(builder, job, "", node_from_attributes({"SlotName": attributes.get("ExecuteHost", "")}))


def _handler_for(kind: PoolEventKind) -> Handler:
    def handle(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> None:
        job.add(kind, now)

    return handle


def _on_reconnected(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> None:
    if job.session is not None:
        job.session.has_reconnected = True
        job.add(PoolEventKind.RESUMED, now)


def _on_reconnect_failed(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> None:
    if job.session is not None:
        reason = _reason_text(event_attributes(record), "Reason") or "lost contact with the node"
        status = EndStatus(Outcome.LOST, FailureCategory.POOL, builder.intern_text(reason))
        job.add(PoolEventKind.INTERRUPTED, now, status)


def _on_dataflow_skipped(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> EndStatus:
    return EndStatus(Outcome.SUCCEEDED, FailureCategory.NONE, "skipped: its outputs are newer than its inputs")


def _on_generic(builder: LogHistoryBuilder, job: LogJob, record: JobEvent, now: float) -> None:
    """Read an event of packtrain's agent, if it is a packtrain job."""
    text = str(event_attributes(record).get("Info", ""))
    if not text.startswith(_AGENT_EVENT_PREFIX) or job.session is None:
        return
    with contextlib.suppress(FormatError):
        event = Event.from_json(text[len(_AGENT_EVENT_PREFIX) - 1 :])
        has_times = parse_amount(event.mono) is not None and parse_amount(event.wall) is not None
        if event.kind in AGENT_EVENT_KINDS and has_times:
            job.details.agents.setdefault(event.emitter, AgentTimeline(event.emitter)).add_event(event)


def _reason_text(attributes: EventAttributes, attribute: str) -> str:
    """Return a reason as one line, the cause first, truncated to fit into a table."""
    text = put_cause_first(" ".join(str(attributes.get(attribute, "")).split()))
    return text if len(text) <= 500 else text[:499] + "…"


_HANDLERS: Mapping[int, Handler] = {
    codes.SUBMIT: _on_submit,
    codes.EXECUTE: _on_execute,
    codes.CHECKPOINTED: _handler_for(PoolEventKind.CHECKPOINTED),
    codes.EVICTED: _on_evicted,
    codes.TERMINATED: _on_terminated,
    codes.SHADOW_EXCEPTION: _on_shadow_exception,
    codes.GENERIC: _on_generic,
    codes.ABORTED: _on_aborted,
    codes.SUSPENDED: _handler_for(PoolEventKind.SUSPENDED),
    codes.UNSUSPENDED: _handler_for(PoolEventKind.RESUMED),
    codes.HELD: _on_held,
    codes.RELEASED: _on_released,
    codes.REMOTE_ERROR: _on_remote_error,
    codes.DISCONNECTED: _handler_for(PoolEventKind.DISCONNECTED),
    codes.RECONNECTED: _on_reconnected,
    codes.RECONNECT_FAILED: _on_reconnect_failed,
    codes.JOB_AD: _on_job_ad,
    codes.FILE_TRANSFER: _on_file_transfer,
    codes.DATAFLOW_SKIPPED: _on_dataflow_skipped,
}
# Events that prove that a job exists, even if its earlier events are missing.
_JOB_EVENT_CODES = frozenset({*_HANDLERS, codes.IMAGE_SIZE} - {codes.GENERIC})
