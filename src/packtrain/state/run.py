"""The state of a run: its jobs, its supervisor, and what its executions show about sites and timing.

`RunState.apply` takes one event, `fold` a sequence of them. The result depends only on the set of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from packtrain.events import Event, kinds
from packtrain.state.job import AGENT_KINDS, JobState, event_order
from packtrain.state.outcomes import OutcomeIndex
from packtrain.state.transitions import JobStatus

# These events report progress, but no end and no decision, so no policy has to respond to them.
INFORMATIONAL_KINDS = (AGENT_KINDS - {kinds.AGENT_ENDED}) | {
    kinds.ATTEMPT_SUBMITTED,
    kinds.EXECUTION_STARTED,
    kinds.ATTEMPT_TRANSFER,
}
_RESULT_KINDS = frozenset({kinds.JOB_ENDED, kinds.DECISION_MADE})


@dataclass
class RunState:
    """The state of one run."""

    run: str
    jobs: dict[str, JobState] = field(default_factory=dict)
    created_event: Event | None = None
    has_matrix: bool = False  # the jobs are points of a matrix
    _supervisor_event: Event | None = None  # the newest `supervisor.started` or `supervisor.ended`
    _stats: OutcomeIndex = field(default_factory=OutcomeIndex)
    _dirty_jobs: set[str] = field(default_factory=set)  # jobs that changed since `_stats` was updated
    _progressed_jobs: set[str] = field(default_factory=set)  # jobs that only made progress since then
    _finished_jobs: set[str] = field(default_factory=set)  # jobs that have a result
    drop_finished: bool = False  # finished jobs keep only their result and ignore further events, to save memory
    _archived_jobs: set[str] = field(default_factory=set)  # jobs that were dropped

    def apply(self, event: Event, received_at: float = 0.0) -> None:
        """Apply one event. Unknown kinds and malformed data are ignored.

        Args:
            event: The event.
            received_at: When the store received it (Unix time by the store's clock).
        """
        try:  # noqa: SIM105  (`suppress` takes longer than the guarded code, and this runs for every event)
            self._apply(event, received_at)
        except (KeyError, TypeError, ValueError, AttributeError):
            pass

    def _apply(self, event: Event, received_at: float) -> None:
        if event.job in self._archived_jobs:
            return
        if event.job:
            (self._progressed_jobs if event.kind in INFORMATIONAL_KINDS else self._dirty_jobs).add(event.job)
            job = self.ensure_job(event.job)
            job.apply(event, received_at)
            if event.kind in _RESULT_KINDS:
                (self._finished_jobs.add if job.result else self._finished_jobs.discard)(job.id)
        elif event.kind == kinds.RUN_CREATED:
            self._apply_created(event)
        elif event.kind in (kinds.SUPERVISOR_STARTED, kinds.SUPERVISOR_ENDED):
            self._supervisor_event = _latest(self._supervisor_event, event)

    def _apply_created(self, event: Event) -> None:
        self.created_event = event
        for job, point in event.data.get("points", {}).items():
            self.ensure_job(job).point = point
            self.has_matrix = self.has_matrix or bool(point)

    def update_progress(self, progress: Mapping[str, Mapping[str, Any]], now: float = 0.0) -> None:
        """Update the live progress of running attempts, as the engine reports it.

        Args:
            progress: Progress snapshots by attempt id.
            now: When they were received (Unix time by the store's clock).
        """
        for attempt_id, snapshot in progress.items():
            job = attempt_id.rpartition("-")[0]
            if job in self.jobs and job not in self._archived_jobs:
                self.jobs[job].update_progress(attempt_id, snapshot, now)
                self._progressed_jobs.add(job)

    def ensure_job(self, job_id: str) -> JobState:
        """Return the job with this id, and create it if necessary."""
        if job_id not in self.jobs:
            self.jobs[job_id] = JobState(job_id)
        return self.jobs[job_id]

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The data of the event that created the run: name, engine, folder, …"""
        return self.created_event.data if self.created_event else {}

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor started and has not ended. Its lease shows whether it is still alive."""
        return self._supervisor_event is not None and self._supervisor_event.kind == kinds.SUPERVISOR_STARTED

    @property
    def is_finished(self) -> bool:
        """Whether every job has a result."""
        return bool(self.jobs) and len(self._finished_jobs) == len(self.jobs)

    @property
    def stats(self) -> OutcomeIndex:
        """The outcomes and timing of all executions."""
        index = self.stats_stale_ok
        for name in self._progressed_jobs & self.jobs.keys():
            index.update_progress(self.jobs[name])
        self._progressed_jobs.clear()
        return index

    @property
    def stats_stale_ok(self) -> OutcomeIndex:
        """The same, for callers that only need what has ended: progress of running executions may be out of date."""
        for name in self._dirty_jobs & self.jobs.keys():
            self._stats.update(self.jobs[name])
            if name in self._finished_jobs:
                self._drop_details(name)
        self._progressed_jobs -= self._dirty_jobs
        self._dirty_jobs.clear()
        return self._stats

    @property
    def is_saturated(self) -> bool:
        """Whether more jobs wait for a node than nodes can be free. Cheap: does not update progress."""
        return self.stats_stale_ok.timing.is_saturated(self._progressed_jobs)

    def _drop_details(self, job_id: str) -> None:
        """Free memory of a finished job.

        A job with a second copy keeps its events, because the cost of the copy is needed later.
        """
        if self.drop_finished and job_id not in self._stats.timing.copied_jobs:
            self.jobs[job_id].drop_events()
            self._archived_jobs.add(job_id)
        else:
            self.jobs[job_id].drop_cache()

    def count_jobs(self, status: JobStatus) -> int:
        """Return the number of jobs with a status."""
        return sum(job.status is status for job in self.jobs.values())


def _latest(latest: Event | None, event: Event) -> Event:
    return event if latest is None or event_order(latest) <= event_order(event) else latest


def run_status(state: RunState, has_live_supervisor: bool) -> str:
    """Return the status of a run as one word.

    A finished run is `failed`, `cancelled` or `succeeded`, in this order of precedence. An unfinished run is `running`
    while a supervisor is alive, `orphaned` if its supervisor died, and `interrupted` if its supervisor ended on
    purpose.
    """
    if state.is_finished:
        precedence = (JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.SUCCEEDED)
        return next(status.value for status in precedence if state.count_jobs(status))
    if has_live_supervisor:
        return "running"
    return "orphaned" if state.is_supervised else "interrupted"


def fold(run: str, events: Iterable[Event]) -> RunState:
    """Return the state of a run after the given events."""
    state = RunState(run)
    for event in events:
        state.apply(event)
    return state
