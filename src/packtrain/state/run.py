"""The state of a run: its jobs, its supervisor, and what its executions show about sites and timing.

`RunState.apply` takes one event, `fold` a sequence of them. The result depends only on the set of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from packtrain.events import Event, kinds
from packtrain.state.job import JobState, event_order
from packtrain.state.job_log import AGENT_KINDS, JobLog
from packtrain.state.outcomes import OutcomeIndex
from packtrain.state.transitions import JobStatus

_PROGRESS_KINDS = (AGENT_KINDS - {kinds.AGENT_STARTED, kinds.AGENT_ENDED}) | {kinds.ATTEMPT_TRANSFER}
# These events report no end and no decision, so no policy has to respond to them.
INFORMATIONAL_KINDS = _PROGRESS_KINDS | {kinds.AGENT_STARTED, kinds.ATTEMPT_SUBMITTED, kinds.EXECUTION_STARTED}
_RESULT_KINDS = frozenset({kinds.JOB_ENDED, kinds.DECISION_MADE})


class JobStates(Mapping[str, JobState]):
    """The states of jobs, by id."""

    def __init__(self, logs: Mapping[str, JobLog]) -> None:
        self._logs = logs

    def __getitem__(self, job_id: str) -> JobState:
        return self._logs[job_id].state

    def __iter__(self) -> Iterator[str]:
        return iter(self._logs)

    def __len__(self) -> int:
        return len(self._logs)


class RunState:
    """The state of one run.

    Args:
        run: The run id.
        job_ids: Jobs that exist, even if there are no events of them yet.
    """

    def __init__(self, run: str, job_ids: Iterable[str] = ()) -> None:
        self.run = run
        self.created_event: Event | None = None
        self._logs = {job_id: JobLog(job_id) for job_id in job_ids}
        self.jobs = JobStates(self._logs)
        self._finished_jobs: set[str] = set()  # jobs that have a result
        self._supervisor_event: Event | None = None  # the newest `supervisor.started` or `supervisor.ended`
        self._stats = OutcomeIndex()
        self._changed_jobs: dict[str, None] = {}  # since `_stats` was updated; an ordered set, like the next one
        self._progressed_jobs: dict[str, None] = {}  # jobs that only made progress since then

    def apply(self, event: Event, received_at: float = 0.0) -> None:
        """Apply one event. Unknown kinds and malformed data are ignored.

        Args:
            event: The event.
            received_at: When the store received it (Unix time by the store's clock).
        """
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            if event.job:
                self._apply_to_job(event, received_at)
            elif event.kind == kinds.RUN_CREATED:
                self.created_event = event
                for job_id, point in event.data.get("points", {}).items():
                    self._log_of(job_id).set_point(point)
            elif event.kind in (kinds.SUPERVISOR_STARTED, kinds.SUPERVISOR_ENDED):
                latest = self._supervisor_event
                if latest is None or event_order(latest) <= event_order(event):
                    self._supervisor_event = event

    def _apply_to_job(self, event: Event, received_at: float) -> None:
        log = self._log_of(event.job)
        (self._progressed_jobs if event.kind in _PROGRESS_KINDS else self._changed_jobs)[event.job] = None
        log.apply(event, received_at)
        if event.kind in _RESULT_KINDS:
            (self._finished_jobs.add if log.result else self._finished_jobs.discard)(event.job)

    def _log_of(self, job_id: str) -> JobLog:
        if job_id not in self._logs:
            self._logs[job_id] = JobLog(job_id)
        return self._logs[job_id]

    def update_progress(self, progress: Mapping[str, Mapping[str, Any]], now: float = 0.0) -> None:
        """Update the live progress of running attempts, as the engine reports it.

        Args:
            progress: Progress snapshots by attempt id.
            now: When they were received (Unix time by the store's clock).
        """
        for attempt_id, snapshot in progress.items():
            job_id = attempt_id.rpartition("-")[0]
            if job_id in self._logs:
                self._logs[job_id].update_progress(attempt_id, snapshot, now)
                self._progressed_jobs[job_id] = None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The data of the event that created the run: name, engine, folder, …"""
        return self.created_event.data if self.created_event else {}

    @property
    def has_matrix(self) -> bool:
        """Whether the jobs are points of a matrix."""
        return any(self.metadata.get("points", {}).values())

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor started and has not ended. Its lease shows whether it is still alive."""
        return self._supervisor_event is not None and self._supervisor_event.kind == kinds.SUPERVISOR_STARTED

    @property
    def is_finished(self) -> bool:
        """Whether every job has a result."""
        return bool(self._logs) and len(self._finished_jobs) == len(self._logs)

    @property
    def stats(self) -> OutcomeIndex:
        """The outcomes and timing of all executions."""
        self._changed_jobs.update(self._progressed_jobs)
        return self.stats_stale_ok

    @property
    def stats_stale_ok(self) -> OutcomeIndex:
        """The same, for callers that do not need the progress of running executions, which may be out of date."""
        for job_id in self._changed_jobs:
            self._stats.update(self.jobs[job_id])
            self._progressed_jobs.pop(job_id, None)
        self._changed_jobs.clear()
        return self._stats

    def count_jobs(self, status: JobStatus) -> int:
        """Return the number of jobs with a status."""
        return sum(job.status is status for job in self.jobs.values())


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
