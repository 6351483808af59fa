"""Turns events of the HTCondor log into attempt updates. Pure.

The tracker knows which job of the pool belongs to which attempt, from the notes that submit descriptions write into
the log, from the queue, and from the engine itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
from packtrain.engines.api import AttemptUpdate
from packtrain.errors import FormatError
from packtrain.events import Event, kinds

LOG_PREFIX = "packtrain"  # begins the note of a submission, and each event that an agent writes into the log
REMOVE_REASON = "packtrain: cancelled"  # the reason of jobs that packtrain removes
ClusterProc = tuple[int, int]
ClusterItems = Sequence[tuple[str, str]]  # (job id, attempt id), indexed by proc

# Evictions with these codes are failures of the node: failure kind and message.
_EVICTION_CODES = {45: ("container_failed", "the container could not be started on that node")}
_END_STATUSES = ("interrupted", "held", "gone")
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

    @property
    def status(self) -> str:
        """The status as in `AttemptUpdate`."""
        return "gone" if self.is_finished else "held" if self.is_held else "running" if self.is_running else "queued"


class JobTracker:
    """The attempts of one run in the pool.

    Args:
        load_items: Returns the items of a cluster, given the attempt id of its first item.
        has_all_outputs: Returns whether an attempt (job id, attempt id) succeeded and all its outputs were returned.
    """

    def __init__(
        self,
        load_items: Callable[[str], ClusterItems],
        has_all_outputs: Callable[[str, str], bool] = lambda job_id, attempt_id: False,
    ) -> None:
        self._load_items, self._has_all_outputs = load_items, has_all_outputs
        self.redundant_jobs: list[str] = []  # native ids of jobs that are complete, but that the pool would run again
        self.by_attempt_id: dict[str, TrackedJob] = {}
        self._by_cluster_proc: dict[ClusterProc, TrackedJob] = {}
        self._clusters: dict[int, list[TrackedJob]] = {}

    def add_cluster(self, cluster: int, items: ClusterItems, is_materialized: bool = False) -> None:
        """Register a cluster from the log, the queue or the engine. Known attempts are not changed."""
        for proc, (job_id, attempt_id) in enumerate(items):
            if (cluster, proc) not in self._by_cluster_proc:
                self._add(TrackedJob(job_id, attempt_id, (cluster, proc), is_materialized))

    def find(self, cluster: int, proc: int) -> TrackedJob | None:
        """Return a job by HTCondor's ids."""
        return self._by_cluster_proc.get((cluster, proc))

    def unfinished_attempts(self, cluster: int) -> set[str]:
        """Return the ids of the unfinished attempts of a cluster."""
        return {job.attempt_id for job in self._clusters.get(cluster, ()) if not job.is_finished}

    def apply(self, log_event: JobEvent) -> list[AttemptUpdate]:
        """Apply one event of the log, and return the updates for all attempts that it concerns."""
        if log_event.proc < 0:
            return list(self._apply_cluster_event(log_event))
        if log_event.event_type == event_types.SUBMIT:
            self._register_submission(log_event)
        job = self._by_cluster_proc.get(log_event.job_id)
        handler = _HANDLERS.get(log_event.event_type)
        if job is None or handler is None or job.is_finished:
            return []
        updates = [
            _attach_final_events(job, self._finish_if_complete(job, update)) for update in handler(job, log_event)
        ]
        job.updates += updates
        return updates

    def _finish_if_complete(self, job: TrackedJob, update: AttemptUpdate) -> AttemptUpdate:
        """Finish an attempt that was evicted after it succeeded: the pool would run it again from the beginning."""
        if update.status != "interrupted" or not self._has_all_outputs(job.job_id, job.attempt_id):
            return update
        job.is_finished = True
        self.redundant_jobs.append(job.native_id)
        detail = f"{update.detail}, but all outputs had already been returned"
        return replace(update, status="gone", exit_code=0, failure_kind="", detail=detail)

    @staticmethod
    def mark_finished(
        job: TrackedJob, detail: str, exit_code: int | None = None, failure_kind: str = ""
    ) -> AttemptUpdate:
        """Finish an attempt whose end is not in the log."""
        job.is_finished, job.is_running = True, False
        update = _make_update(job, "gone", detail=detail, exit_code=exit_code, failure_kind=failure_kind)
        job.updates.append(update)
        return update

    def _apply_cluster_event(self, log_event: JobEvent) -> Iterator[AttemptUpdate]:
        if log_event.event_type == event_types.CLUSTER_SUBMIT:
            note = _parse_submit_note(log_event)
            if note:
                self.add_cluster(log_event.cluster, self._load_items(note[1]))
        elif log_event.event_type == event_types.CLUSTER_REMOVE:
            detail = "the attempt was removed from the queue before it started"
            for job in self._unmaterialized_jobs(log_event.cluster):
                yield self.mark_finished(job, detail, failure_kind="cancelled")
        elif log_event.event_type in (event_types.FACTORY_PAUSED, event_types.FACTORY_RESUMED):
            is_paused = log_event.event_type == event_types.FACTORY_PAUSED
            reason = f"the schedd has paused the cluster of this job ({_first_detail_line(log_event)})"
            for job in self._unmaterialized_jobs(log_event.cluster):
                progress = waiting_progress(job.attempt_id, reason if is_paused else "")
                yield _make_update(job, "queued", progress=progress)

    def _unmaterialized_jobs(self, cluster: int) -> list[TrackedJob]:
        return [job for job in self._clusters.get(cluster, ()) if not job.is_materialized and not job.is_finished]

    def _register_submission(self, log_event: JobEvent) -> None:
        note = _parse_submit_note(log_event)
        if note and log_event.job_id not in self._by_cluster_proc:
            self._add(TrackedJob(*note, log_event.job_id))
        if log_event.job_id in self._by_cluster_proc:
            self._by_cluster_proc[log_event.job_id].is_materialized = True

    def _add(self, job: TrackedJob) -> None:
        self._by_cluster_proc[job.cluster_proc] = self.by_attempt_id[job.attempt_id] = job
        self._clusters.setdefault(job.cluster_proc[0], []).append(job)


def waiting_progress(attempt_id: str, reason: str) -> dict[str, str]:
    """Return a progress snapshot with the reason why an attempt is not in the queue yet; "" clears the reason."""
    return {"attempt": attempt_id, "wait_reason": reason}


def _parse_submit_note(log_event: JobEvent) -> tuple[str, str] | None:
    """Return the job id and the attempt id of the note that the submit description writes into the log."""
    fields = next((line.split() for line in log_event.detail_lines if line.startswith(f"{LOG_PREFIX} ")), [])
    return (fields[1], fields[2]) if len(fields) == 3 else None


def _make_update(job: TrackedJob, status: str, log_event: JobEvent | None = None, **fields: object) -> AttemptUpdate:
    position = {"seq": log_event.offset + 1, "occurred_at": log_event.timestamp} if log_event else {}
    return AttemptUpdate(job.attempt_id, job.job_id, status, job.native_id, job.site, **position, **fields)  # type: ignore[arg-type]


def _on_execute(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    job.site = log_event.attribute("GLIDEIN_ResourceName") or log_event.attribute("GLIDEIN_Site") or job.site
    job.n_executions += 1
    job.is_running, job.is_held, job.is_transferring_input = True, False, False
    job.emitters, job.node_error = [], ""
    slot = log_event.attribute("SlotName")
    # A slot name may contain the name of a pilot: slot1_2@glidein_9@w17.example.org
    host = slot.rpartition("@")[2] if "@" in slot else log_event.first_line.rpartition(": ")[2]
    yield _make_update(job, "started", log_event, execution=job.n_executions, host=host)


def _on_file_transfer(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    """Report a transfer with the number of its execution.

    Inputs are transferred before their execution starts. If a shadow was killed, the end of the execution before is not
    in the log.
    """
    direction, state = _TRANSFER_STATES.get(transfer_type(log_event), ("", ""))
    if not state:
        return
    if direction == "in" and state != "finished":
        job.is_transferring_input = True
    if not (job.is_transferring_input or job.is_running):
        return
    yield AttemptUpdate(
        job.attempt_id,
        job.job_id,
        "transfer",
        seq=log_event.offset + 1,
        occurred_at=log_event.timestamp,
        execution=job.n_executions + job.is_transferring_input,
        transfer_direction=direction,
        transfer_state=state,
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
            yield _make_update(job, "interrupted", log_event, failure_kind="evicted", detail=detail)
        if job.is_running:
            job.is_running = False
            code = event_attributes(log_event).get("ReasonCode", 0)
            kind, reason = _EVICTION_CODES.get(code, (default_kind, default_reason(log_event)))
            yield _make_update(
                job,
                "interrupted",
                log_event,
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
    if exit_code is not None:
        detail = f"the agent ended with exit code {exit_code}"
        yield _make_update(job, "gone", log_event, exit_code=exit_code, detail=detail)
    else:
        detail = f"the agent was killed by signal {signum}"
        yield _make_update(job, "gone", log_event, exit_code=-signum or None, detail=detail)


def _on_aborted(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    job.is_finished, job.is_running = True, False
    reason = _first_detail_line(log_event) or "removed from the queue"
    kind = "" if reason.startswith(REMOVE_REASON) else "cancelled"
    yield _make_update(job, "gone", log_event, failure_kind=kind, detail=reason)


def _on_held(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    """Report a hold, which also ends the execution of a running job."""
    attributes = event_attributes(log_event)
    code, subcode = attributes.get("HoldReasonCode", 0), attributes.get("HoldReasonSubCode", 0)
    reason = attributes.get("HoldReason", "") or "the pool gives no reason"
    execution, emitters = (job.n_executions, tuple(job.emitters)) if job.is_running else (0, ())
    job.is_running, job.is_transferring_input, job.is_held = False, False, True
    meaning = classify_hold(code, subcode, reason)
    yield _make_update(
        job,
        "held",
        log_event,
        execution=execution,
        emitters=emitters,
        failure_kind=meaning.failure_kind,
        hold_action=meaning.action,
        hold_code=(code, subcode),
        detail=f"the pool holds it: {reason}{_node_error_suffix(job)}",
    )


def _on_remote_error(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    """Remember an error that the node reported. Its consequence is another event."""
    job.node_error = event_attributes(log_event).get("ErrorMsg", "").partition("\n")[0] or log_event.first_line
    yield from ()


def _node_error_suffix(job: TrackedJob) -> str:
    return f" ({job.node_error})" if job.node_error else ""


def _on_released(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    job.is_held = False
    yield _make_update(job, "released", log_event)


def _on_generic(job: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    """Report an event that the agent wrote into the log."""
    lines = (log_event.first_line, *log_event.detail_lines)
    text = next((line for line in lines if line.startswith(f"{LOG_PREFIX} {{")), "")
    try:
        event = Event.from_json(text[len(LOG_PREFIX) + 1 :])
    except FormatError:
        return
    if event.job == job.job_id:
        if event.emitter not in job.emitters:
            job.emitters.append(event.emitter)
        if event.kind == kinds.AGENT_ENDED:
            job.final_events = (*job.final_events, event)
            return
        yield _make_update(job, "running", log_event, agent_events=(event,))


def _attach_final_events(job: TrackedJob, update: AttemptUpdate) -> AttemptUpdate:
    """Report the agent's end event together with the end of the execution, when the outputs have been returned."""
    if not job.final_events or update.status not in _END_STATUSES:
        return update
    final_events, job.final_events = job.final_events, ()
    return replace(update, agent_events=(*update.agent_events, *final_events))


def _first_detail_line(log_event: JobEvent) -> str:
    return next((line for line in log_event.detail_lines if line), "")


_HANDLERS: Mapping[int, Callable[[TrackedJob, JobEvent], Iterator[AttemptUpdate]]] = {
    event_types.EXECUTE: _on_execute,
    event_types.EVICTED: _execution_end_handler(lambda log_event: "the pool evicted it"),
    event_types.SHADOW_EXCEPTION: _execution_end_handler(
        lambda log_event: f"the pool lost the connection to it: {_first_detail_line(log_event) or 'no reason given'}"
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
