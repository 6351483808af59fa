"""Events in, state out. The result depends on the set of events only, not on their order or number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from packtrain.events import Event, kinds
from packtrain.state.job import AGENT_KINDS, JobState, event_order
from packtrain.state.outcomes import OutcomeIndex
from packtrain.state.transitions import JobStatus

# They tell how far an attempt is, not that it ended or what was decided: no policy has to answer them.
INFORMATIONAL_KINDS = (AGENT_KINDS - {kinds.AGENT_ENDED}) | {
    kinds.ATTEMPT_SUBMITTED,
    kinds.EXECUTION_STARTED,
    kinds.ATTEMPT_TRANSFER,
}
_RESULT_KINDS = frozenset({kinds.JOB_ENDED, kinds.DECISION_MADE})


@dataclass
class RunState:
    run: str
    jobs: dict[str, JobState] = field(default_factory=dict)
    created_event: Event | None = None
    has_matrix: bool = False  # whether its jobs are those of a matrix
    _supervisor_event: Event | None = None  # the newest started or ended
    _stats: OutcomeIndex = field(default_factory=OutcomeIndex)
    _dirty_jobs: set[str] = field(default_factory=set)  # jobs that changed since the record was drawn
    _progressed_jobs: set[str] = field(default_factory=set)  # jobs that are further since then, but not otherwise
    _finished_jobs: set[str] = field(default_factory=set)  # jobs that have their verdict
    drop_finished: bool = (
        False  # such jobs keep nothing but it, and are not spoken of again: memory counts in simulations
    )
    _archived_jobs: set[str] = field(default_factory=set)  # those

    def apply(self, event: Event, received_at: float = 0.0) -> None:
        """Take one event. Unknown kinds are skipped, and so is one whose data is not what its kind says."""
        try:  # noqa: SIM105  (done for every event: `suppress` takes longer than what it guards)
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
        """How far running attempts are, by decision, where a pool tells it."""
        for decision, glimpse in progress.items():
            job = decision.rpartition("-")[0]
            if job in self.jobs and job not in self._archived_jobs:
                self.jobs[job].update_progress(decision, glimpse, now)
                self._progressed_jobs.add(job)

    def ensure_job(self, job_id: str) -> JobState:
        if job_id not in self.jobs:
            self.jobs[job_id] = JobState(job_id)
        return self.jobs[job_id]

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What was said at its creation: name, engine, folder."""
        return self.created_event.data if self.created_event else {}

    @property
    def is_supervised(self) -> bool:
        """Whether the last word of a supervisor was that it started; its lease tells if it still lives."""
        return self._supervisor_event is not None and self._supervisor_event.kind == kinds.SUPERVISOR_STARTED

    @property
    def is_finished(self) -> bool:
        return bool(self.jobs) and len(self._finished_jobs) == len(self.jobs)

    @property
    def stats(self) -> OutcomeIndex:
        """What its attempts tell about places and mistakes."""
        drawn = self.stats_stale_ok
        for name in self._progressed_jobs & self.jobs.keys():
            drawn.update_progress(self.jobs[name])
        self._progressed_jobs.clear()
        return drawn

    @property
    def stats_stale_ok(self) -> OutcomeIndex:
        """The same, where only what ended matters: how far those are that run may be older."""
        for name in self._dirty_jobs & self.jobs.keys():
            self._stats.update(self.jobs[name])
            if name in self._finished_jobs:
                self._drop_details(name)
        self._progressed_jobs -= self._dirty_jobs
        self._dirty_jobs.clear()
        return self._stats

    @property
    def is_saturated(self) -> bool:
        """Whether more wait for a machine than can be free, known without a look at how far those are that run."""
        return self.stats_stale_ok.timing.is_saturated(self._progressed_jobs)

    def _drop_details(self, job_id: str) -> None:
        """Of a job with two copies what they cost is asked for later."""
        if self.drop_finished and job_id not in self._stats.timing.copied_jobs:
            self.jobs[job_id].drop_events()
            self._archived_jobs.add(job_id)
        else:
            self.jobs[job_id].drop_cache()

    def count_jobs(self, status: JobStatus) -> int:
        return sum(job.status is status for job in self.jobs.values())


def _latest(latest: Event | None, event: Event) -> Event:
    return event if latest is None or event_order(latest) <= event_order(event) else latest


def fold(run: str, events: Iterable[Event]) -> RunState:
    state = RunState(run)
    for event in events:
        state.apply(event)
    return state
