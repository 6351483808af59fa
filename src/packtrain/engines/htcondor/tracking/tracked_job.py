"""The state of one attempt in the pool, and what each event of HTCondor's log means for it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from packtrain.condor.eventlog import JobEvent, event_types
from packtrain.condor.eventlog.attributes import (
    IN_FINISHED,
    IN_QUEUED,
    IN_STARTED,
    OUT_FINISHED,
    OUT_QUEUED,
    OUT_STARTED,
    event_attributes,
    transfer_type,
)
from packtrain.condor.hold_codes import classify_hold
from packtrain.condor.reasons import put_cause_first
from packtrain.engines.updates import (
    AgentEventsReceived,
    AttemptUpdate,
    ExecutionInterrupted,
    ExecutionStarted,
    Gone,
    Held,
    Queued,
    Released,
    Running,
    TransferChanged,
)
from packtrain.errors import FormatError
from packtrain.events import Event, kinds

LOG_PREFIX = "packtrain"  # begins the note of a submission, and each event that an agent writes into the log
REMOVE_REASON = "packtrain: cancelled"  # the reason of jobs that packtrain removes
ClusterProc = tuple[int, int]

# Evictions with these codes are failures of the node: failure kind and message.
_EVICTION_CODES = {45: ("container_failed", "the container could not be started on that node")}
_TRANSFER_STATES = {
    IN_QUEUED: ("in", "queued"),
    IN_STARTED: ("in", "started"),
    IN_FINISHED: ("in", "finished"),
    OUT_QUEUED: ("out", "queued"),
    OUT_STARTED: ("out", "started"),
    OUT_FINISHED: ("out", "finished"),
}


@dataclass
class TrackedJob:
    """The state of one attempt in the pool."""

    job_id: str
    attempt_id: str
    cluster_proc: ClusterProc
    is_materialized: bool = False  # False while it is only an item of its cluster
    n_executions: int = 0
    is_running: bool = False
    is_transferring_input: bool = False  # for the next execution
    is_held: bool = False
    is_finished: bool = False
    site: str = ""
    node_error: str = ""  # the error that the node reported during this execution
    emitters: list[str] = field(default_factory=list)  # the agents that sent events during this execution
    final_events: tuple[Event, ...] = ()  # end events of agents, reported when the pool has ended the execution
    updates: list[AttemptUpdate] = field(default_factory=list)

    @property
    def native_id(self) -> str:
        """HTCondor's name for it: CLUSTER.PROC."""
        return f"{self.cluster_proc[0]}.{self.cluster_proc[1]}"

    def all_updates(self) -> list[AttemptUpdate]:
        """Return everything that happened to the attempt; if it waits or runs, that is the last update."""
        if self.is_finished or self.is_held:
            return list(self.updates)
        status = Running if self.is_running else Queued
        return [*self.updates, status(self.attempt_id, self.job_id)]

    def apply(self, log_event: JobEvent) -> Iterator[AttemptUpdate]:
        """Apply one event of the log, and yield what it means."""
        handler = _HANDLERS.get(log_event.event_type)
        if handler and not self.is_finished:
            yield from handler(self, log_event)

    def finish(self, detail: str, exit_code: int | None = None, failure_kind: str = "") -> Gone:
        """Finish an attempt whose end is not in the log."""
        self.is_finished, self.is_running = True, False
        return Gone(**_identity(self), detail=detail, exit_code=exit_code, failure_kind=failure_kind)

    def take_final_events(self) -> list[AttemptUpdate]:
        """Return the end events of agents, once. They wait for the end of the execution, when outputs are complete."""
        events, self.final_events = self.final_events, ()
        return [AgentEventsReceived(self.attempt_id, self.job_id, events=events)] if events else []


def _identity(job: TrackedJob, log_event: JobEvent | None = None) -> dict[str, Any]:
    """Return the fields that all updates have."""
    position = {"seq": log_event.offset + 1, "occurred_at": log_event.timestamp} if log_event else {}
    names = {"attempt_id": job.attempt_id, "job_id": job.job_id, "native_id": job.native_id, "site": job.site}
    return {**names, **position}


def _on_execute(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    job.site = log_event.attribute("GLIDEIN_ResourceName") or log_event.attribute("GLIDEIN_Site") or job.site
    job.n_executions += 1
    job.is_running, job.is_held, job.is_transferring_input = True, False, False
    job.emitters, job.node_error = [], ""
    slot = log_event.attribute("SlotName")
    # A slot name may contain the name of a pilot: slot1_2@glidein_9@w17.example.org
    host = slot.rpartition("@")[2] if "@" in slot else log_event.first_line.rpartition(": ")[2]
    yield ExecutionStarted(**_identity(job, log_event), execution=job.n_executions, host=host)


def _on_file_transfer(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    """Report a transfer with the number of its execution.

    Inputs are transferred before their execution starts. If a shadow was killed, the end of the execution before is not
    in the log.
    """
    direction, state = _TRANSFER_STATES.get(transfer_type(log_event), ("", ""))
    if direction == "in" and state != "finished":
        job.is_transferring_input = True
    if state and (job.is_transferring_input or job.is_running):
        yield TransferChanged(
            job.attempt_id,
            job.job_id,
            seq=log_event.offset + 1,
            occurred_at=log_event.timestamp,
            execution=job.n_executions + job.is_transferring_input,
            direction=direction,
            state=state,
        )


def _execution_end_handler(
    default_reason: Callable[[JobEvent], str], default_kind: str = "evicted"
) -> Callable[[TrackedJob, JobEvent], Iterator[AttemptUpdate]]:
    """Return a handler for events that end an execution and put the attempt back into the queue."""

    def handle(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
        was_transferring_input, job.is_transferring_input = job.is_transferring_input, False
        if was_transferring_input and not job.is_running:
            reason = log_event.attribute("Reason") or default_reason(log_event)
            detail = f"interrupted before it started: {reason}"
            yield ExecutionInterrupted(**_identity(job, log_event), failure_kind="evicted", detail=detail)
        if job.is_running:
            job.is_running = False
            code = event_attributes(log_event).get("ReasonCode", 0)
            kind, reason = _EVICTION_CODES.get(code, (default_kind, default_reason(log_event)))
            yield ExecutionInterrupted(
                **_identity(job, log_event),
                execution=job.n_executions,
                failure_kind=kind,
                detail=f"{reason}{_node_error_suffix(job)}",
                emitters=tuple(job.emitters),
            )

    return handle


def _on_terminated(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    job.is_finished, job.is_running = True, False
    attributes = event_attributes(log_event)
    exit_code, signum = attributes.get("ReturnValue"), attributes.get("TerminatedBySignal", 0)
    detail = f"the agent ended with exit code {exit_code}"
    if exit_code is None:
        exit_code, detail = -signum or None, f"the agent was killed by signal {signum}"
    yield Gone(**_identity(job, log_event), exit_code=exit_code, detail=detail)


def _on_aborted(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    job.is_finished, job.is_running = True, False
    reason = log_event.first_detail_line or "removed from the queue"
    kind = "" if reason.startswith(REMOVE_REASON) else "cancelled"
    yield Gone(**_identity(job, log_event), failure_kind=kind, detail=reason)


def _on_held(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    """Report a hold, which also ends the execution of a running job."""
    attributes = event_attributes(log_event)
    code, subcode = attributes.get("HoldReasonCode", 0), attributes.get("HoldReasonSubCode", 0)
    reason = attributes.get("HoldReason", "") or "the pool gives no reason"
    execution, emitters = (job.n_executions, tuple(job.emitters)) if job.is_running else (0, ())
    job.is_running, job.is_transferring_input, job.is_held = False, False, True
    meaning = classify_hold(code, subcode, reason)
    yield Held(
        **_identity(job, log_event),
        action=meaning.action,
        execution=execution,
        code=code,
        subcode=subcode,
        failure_kind=meaning.failure_kind,
        detail=f"the pool holds it: {put_cause_first(reason)}{_node_error_suffix(job)}",
        emitters=emitters,
    )


def _on_remote_error(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    """Remember an error that the node reported. Its consequence is another event."""
    job.node_error = event_attributes(log_event).get("ErrorMsg", "").partition("\n")[0] or log_event.first_line
    yield from ()


def _node_error_suffix(job: TrackedJob) -> str:
    return f" ({job.node_error})" if job.node_error else ""


def _on_released(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    job.is_held = False
    yield Released(**_identity(job, log_event))


def _on_generic(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    """Report an event that the agent wrote into the log."""
    lines = (log_event.first_line, *log_event.detail_lines)
    text = next((line for line in lines if line.startswith(f"{LOG_PREFIX} {{")), "")
    try:
        event = Event.from_json(text[len(LOG_PREFIX) + 1 :])
    except FormatError:
        return
    if event.job != job.job_id:
        return
    if event.emitter not in job.emitters:
        job.emitters.append(event.emitter)
    if event.kind == kinds.AGENT_ENDED:
        job.final_events = (*job.final_events, event)
    else:
        yield AgentEventsReceived(job.attempt_id, job.job_id, events=(event,))


_HANDLERS: Mapping[int, Callable[[TrackedJob, JobEvent], Iterator[AttemptUpdate]]] = {
    event_types.EXECUTE: _on_execute,
    event_types.EVICTED: _execution_end_handler(lambda log_event: "the pool evicted it"),
    event_types.SHADOW_EXCEPTION: _execution_end_handler(
        lambda log_event: f"the pool lost the connection to it: {log_event.first_detail_line or 'no reason given'}"
    ),
    event_types.REMOTE_ERROR: _on_remote_error,
    event_types.RECONNECT_FAILED: _execution_end_handler(
        lambda log_event: "the pool lost contact with the node until the job lease expired", "lease_expired"
    ),
    event_types.TERMINATED: _on_terminated,
    event_types.ABORTED: _on_aborted,
    event_types.HELD: _on_held,
    event_types.RELEASED: _on_released,
    event_types.GENERIC: _on_generic,
    event_types.FILE_TRANSFER: _on_file_transfer,
}
