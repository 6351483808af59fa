"""From log records to sightings: which job of the pool is which attempt, and what happened to it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from packtrain.condor.eventlog import JobEvent
from packtrain.condor.eventlog import job_event as codes
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

LOG_PREFIX = "packtrain"  # begins the note of a submission, and each word that an agent writes into the log
REMOVE_REASON = "packtrain: cancelled"  # the reason of what we remove ourselves
ClusterProc = tuple[int, int]  # cluster and proc
ClusterItems = Sequence[tuple[str, str]]  # (job, decision), by proc

# What is no eviction, though the pool calls it one.
_EVICTION_CODES = {45: ("container_failed", "its container could not be started there")}
_END_STATUSES = ("stopped", "held", "gone")
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
    """One attempt in the pool."""

    job_id: str
    attempt_id: str
    cluster_proc: ClusterProc
    is_materialized: bool = False  # false: still an item of its cluster
    n_executions: int = 0
    is_running: bool = False
    is_transferring_input: bool = False  # inputs, for its next start
    is_held: bool = False
    is_finished: bool = False
    site: str = ""
    node_error: str = ""  # what a machine said of its own accord, before it let the job go
    emitters: list[str] = field(default_factory=list)  # that spoke during this start
    final_events: tuple[Event, ...] = ()  # an agent's last word, told when the pool has let the job go
    updates: list[AttemptUpdate] = field(default_factory=list)

    @property
    def native_id(self) -> str:
        return f"{self.cluster_proc[0]}.{self.cluster_proc[1]}"

    @property
    def status(self) -> str:
        return "gone" if self.is_finished else "held" if self.is_held else "running" if self.is_running else "queued"


class JobTracker:
    """`items_of` gives the items of a cluster by the decision of its first one, `is_home` says of a job's attempt
    whether it succeeded and all that it made has arrived."""

    def __init__(
        self,
        load_items: Callable[[str], ClusterItems],
        has_all_outputs: Callable[[str, str], bool] = lambda job, decision: False,
    ) -> None:
        self._load_items, self._has_all_outputs = load_items, has_all_outputs
        self.redundant_jobs: list[str] = []  # jobs of the pool that would do again what is done
        self.by_attempt_id: dict[str, TrackedJob] = {}
        self._by_cluster_proc: dict[ClusterProc, TrackedJob] = {}
        self._clusters: dict[int, list[TrackedJob]] = {}

    def add_cluster(self, cluster: int, items: ClusterItems, is_materialized: bool = False) -> None:
        """A submission: by the log, by the queue, or by ourselves. Known ones stay as they are."""
        for proc, (job, decision) in enumerate(items):
            native = (cluster, proc)
            if native not in self._by_cluster_proc:
                known = TrackedJob(job, decision, native, is_materialized)
                self._by_cluster_proc[native] = self.by_attempt_id[decision] = known
                self._clusters.setdefault(cluster, []).append(known)

    def find(self, cluster: int, proc: int) -> TrackedJob | None:
        return self._by_cluster_proc.get((cluster, proc))

    def unfinished_attempts(self, cluster: int) -> set[str]:
        """The decisions of a submission that are not gone."""
        return {known.attempt_id for known in self._clusters.get(cluster, ()) if not known.is_finished}

    def apply(self, log_event: JobEvent) -> list[AttemptUpdate]:
        """What the record says, for every attempt that it concerns."""
        if log_event.proc < 0:
            return list(self._apply_cluster_event(log_event))
        if log_event.event_type == codes.SUBMIT:
            self._register_submission(log_event)
        known = self._by_cluster_proc.get((log_event.cluster, log_event.proc))
        handler = _HANDLERS.get(log_event.event_type)
        if known is None or handler is None or known.is_finished:
            return []
        seen = [
            _attach_final_events(known, self._finish_if_complete(known, sighting))
            for sighting in handler(known, log_event)
        ]
        known.updates += seen
        return seen

    def _finish_if_complete(self, tracked: TrackedJob, update: AttemptUpdate) -> AttemptUpdate:
        """Evicted between its last word and the pool's: the pool would start it again from the beginning."""
        if update.status != "stopped" or not self._has_all_outputs(tracked.job_id, tracked.attempt_id):
            return update
        tracked.is_finished = True
        self.redundant_jobs.append(tracked.native_id)
        detail = f"{update.detail}, when all that it made was here already"
        return replace(update, status="gone", exit_code=0, failure_kind="", detail=detail)

    @staticmethod
    def mark_finished(
        tracked: TrackedJob, detail: str, exit_code: int | None = None, failure_kind: str = ""
    ) -> AttemptUpdate:
        """Nothing in the log says so, but it is gone."""
        tracked.is_finished, tracked.is_running = True, False
        seen = _make_update(tracked, "gone", detail=detail, exit_code=exit_code, kind=failure_kind)
        tracked.updates.append(seen)
        return seen

    def _apply_cluster_event(self, log_event: JobEvent) -> Iterator[AttemptUpdate]:
        if log_event.event_type == codes.CLUSTER_SUBMIT:
            note = _parse_submit_note(log_event)
            if note:
                self.add_cluster(log_event.cluster, self._load_items(note[1]))
        elif log_event.event_type == codes.CLUSTER_REMOVE:
            for known in self._clusters.get(log_event.cluster, ()):
                if not known.is_materialized and not known.is_finished:
                    yield self.mark_finished(
                        known, "it was removed from the queue before it started", failure_kind="cancelled"
                    )
        elif log_event.event_type in (codes.FACTORY_PAUSED, codes.FACTORY_RESUMED):
            paused = log_event.event_type == codes.FACTORY_PAUSED
            why = f"the schedd makes no more jobs of its cluster ({_first_detail_line(log_event)})" if paused else ""
            for known in self._clusters.get(log_event.cluster, ()):
                if not known.is_materialized and not known.is_finished:
                    yield _make_update(known, "queued", glimpse=waiting_progress(known.attempt_id, why))

    def _register_submission(self, log_event: JobEvent) -> None:
        note, native = _parse_submit_note(log_event), (log_event.cluster, log_event.proc)
        if note and native not in self._by_cluster_proc:
            known = TrackedJob(*note, native)
            self._by_cluster_proc[native] = self.by_attempt_id[known.attempt_id] = known
            self._clusters.setdefault(log_event.cluster, []).append(known)
        if native in self._by_cluster_proc:
            self._by_cluster_proc[native].is_materialized = True


def waiting_progress(attempt_id: str, reason: str) -> dict[str, str]:
    """Why it is not in the queue yet; "": it is, or soon will be."""
    return {"attempt": attempt_id, "wait_reason": reason}


def _parse_submit_note(log_event: JobEvent) -> tuple[str, str] | None:
    """The job and decision in the note that the submit description puts into the log."""
    words = next((line.split() for line in log_event.detail_lines if line.startswith(f"{LOG_PREFIX} ")), [])
    return (words[1], words[2]) if len(words) == 3 else None


def _make_update(
    tracked: TrackedJob, status: str, log_event: JobEvent | None = None, **fields: object
) -> AttemptUpdate:
    place = {"serial": log_event.offset + 1, "when": log_event.timestamp} if log_event else {}
    return AttemptUpdate(tracked.attempt_id, tracked.job_id, status, tracked.native_id, tracked.site, **place, **fields)  # type: ignore[arg-type]


def _on_execute(tracked: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    tracked.site = log_event.attribute("GLIDEIN_ResourceName") or log_event.attribute("GLIDEIN_Site") or tracked.site
    tracked.n_executions, tracked.is_running, tracked.is_held, tracked.emitters = (
        tracked.n_executions + 1,
        True,
        False,
        [],
    )
    tracked.node_error, tracked.is_transferring_input = "", False
    slot = log_event.attribute("SlotName")
    # A pilot's name stands between the two: slot1_2@glidein_9@w17.example.org
    host = slot.rpartition("@")[2] if "@" in slot else log_event.first_line.rpartition(": ")[2]
    yield _make_update(tracked, "placed", log_event, start=tracked.n_executions, host=host)


def _on_file_transfer(tracked: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    """Inputs come before the start that they are for; after a shadow was killed, without a word about the last one."""
    direction, what = _TRANSFER_STATES.get(transfer_type(log_event), ("", ""))
    if not what:
        return
    if direction == "in" and what != "finished":
        tracked.is_transferring_input = True
    if not (tracked.is_transferring_input or tracked.is_running):
        return
    yield AttemptUpdate(
        tracked.attempt_id,
        tracked.job_id,
        "transfer",
        seq=log_event.offset + 1,
        occurred_at=log_event.timestamp,
        execution=tracked.n_executions + tracked.is_transferring_input,
        transfer_direction=direction,
        transfer_state=what,
    )


def _execution_end_handler(
    reason: Callable[[JobEvent], str], default_kind: str = "evicted"
) -> Callable[[TrackedJob, JobEvent], Iterator[AttemptUpdate]]:
    def handle(tracked: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
        brought, tracked.is_transferring_input = tracked.is_transferring_input, False
        if brought and not tracked.is_running:
            why = log_event.attribute("Reason") or reason(log_event)
            yield _make_update(
                tracked, "stopped", log_event, kind="evicted", detail=f"it was ended before it started: {why}"
            )
        if tracked.is_running:
            tracked.is_running = False
            emitters = tuple(tracked.emitters)
            code = event_attributes(log_event).get("ReasonCode", 0)
            kind, what = _EVICTION_CODES.get(code, (default_kind, reason(log_event)))
            detail = f"{what}{_node_error_suffix(tracked)}"
            yield _make_update(
                tracked, "stopped", log_event, start=tracked.n_executions, kind=kind, detail=detail, emitters=emitters
            )

    return handle


def _on_terminated(tracked: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    tracked.is_finished, tracked.is_running = True, False
    told = event_attributes(log_event)
    returned, signal = told.get("ReturnValue"), told.get("TerminatedBySignal", 0)
    if returned is not None:
        yield _make_update(
            tracked, "gone", log_event, exit_code=returned, detail=f"the agent ended with exit code {returned}"
        )
    else:
        detail = f"the agent was killed by signal {signal}"
        yield _make_update(tracked, "gone", log_event, exit_code=-signal or None, detail=detail)


def _on_aborted(tracked: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    tracked.is_finished, tracked.is_running = True, False
    reason = _first_detail_line(log_event) or "it was removed from the queue"
    yield _make_update(
        tracked, "gone", log_event, kind="" if reason.startswith(REMOVE_REASON) else "cancelled", detail=reason
    )


def _on_held(tracked: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    """Of one that ran, this is the end of that start, too."""
    told = event_attributes(log_event)
    code, subcode = told.get("HoldReasonCode", 0), told.get("HoldReasonSubCode", 0)
    reason = told.get("HoldReason", "") or "the pool does not say why"
    start, emitters = (tracked.n_executions, tuple(tracked.emitters)) if tracked.is_running else (0, ())
    tracked.is_running, tracked.is_transferring_input, tracked.is_held = False, False, True
    means = classify_hold(code, subcode, reason)
    yield _make_update(
        tracked,
        "held",
        log_event,
        start=start,
        emitters=emitters,
        kind=means.failure_kind,
        action=means.action,
        code=(code, subcode),
        detail=f"the pool holds it: {reason}{_node_error_suffix(tracked)}",
    )


def _on_remote_error(tracked: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    """An error that a machine reports; what follows from it is another event."""
    tracked.node_error = event_attributes(log_event).get("ErrorMsg", "").partition("\n")[0] or log_event.first_line
    yield from ()


def _node_error_suffix(tracked: TrackedJob) -> str:
    return f" ({tracked.node_error})" if tracked.node_error else ""


def _on_released(tracked: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    tracked.is_held = False
    yield _make_update(tracked, "released", log_event)


def _on_generic(tracked: TrackedJob, log_event: JobEvent) -> Iterator[AttemptUpdate]:
    """A word of the agent itself."""
    text = next(
        (line for line in (log_event.first_line, *log_event.detail_lines) if line.startswith(f"{LOG_PREFIX} {{")), ""
    )
    try:
        event = Event.from_json(text[len(LOG_PREFIX) + 1 :])
    except FormatError:
        return
    if event.job == tracked.job_id:
        if event.emitter not in tracked.emitters:
            tracked.emitters.append(event.emitter)
        if event.kind == kinds.AGENT_ENDED:
            tracked.final_events = (*tracked.final_events, event)
            return
        yield _make_update(tracked, "running", log_event, events=(event,))


def _attach_final_events(tracked: TrackedJob, update: AttemptUpdate) -> AttemptUpdate:
    """Only when the pool says so are the outputs home, and is the attempt over."""
    if not tracked.final_events or update.status not in _END_STATUSES:
        return update
    words, tracked.final_events = tracked.final_events, ()
    return replace(update, agent_events=(*update.agent_events, *words))


def _first_detail_line(log_event: JobEvent) -> str:
    return next((line for line in log_event.detail_lines if line), "")


_HANDLERS: Mapping[int, Callable[[TrackedJob, JobEvent], Iterator[AttemptUpdate]]] = {
    codes.EXECUTE: _on_execute,
    codes.EVICTED: _execution_end_handler(lambda record: "the pool took the machine back"),
    codes.SHADOW_EXCEPTION: _execution_end_handler(
        lambda record: f"the pool lost it: {_first_detail_line(record) or 'no reason was given'}"
    ),
    codes.REMOTE_ERROR: _on_remote_error,
    codes.RECONNECT_FAILED: _execution_end_handler(
        lambda record: "the machine was not heard of again within the job's lease", "lease_expired"
    ),
    codes.TERMINATED: _on_terminated,
    codes.ABORTED: _on_aborted,
    codes.HELD: _on_held,
    codes.RELEASED: _on_released,
    codes.GENERIC: _on_generic,
    codes.FILE_TRANSFER: _on_file_transfer,
}
