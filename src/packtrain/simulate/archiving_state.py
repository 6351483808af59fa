"""The state of a simulated run, which forgets the events of finished jobs to save memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from packtrain.events import Event
from packtrain.state import OutcomeIndex, RunState
from packtrain.state.job_log import JobLog


class ArchivingRunState(RunState):
    """Keeps only the result of a finished job, once it is part of the statistics, and ignores its further events."""

    def __init__(self, run: str, job_ids: Iterable[str] = ()) -> None:
        super().__init__(run, job_ids)
        self._archived_jobs: set[str] = set()

    def apply(self, event: Event, received_at: float = 0.0) -> None:
        if event.job not in self._archived_jobs:
            super().apply(event, received_at)

    def update_progress(self, progress: Mapping[str, Mapping[str, Any]], now: float = 0.0) -> None:
        live = {one: data for one, data in progress.items() if one.rpartition("-")[0] not in self._archived_jobs}
        super().update_progress(live, now)

    @property
    def stats_stale_ok(self) -> OutcomeIndex:
        finished = self._changed_jobs.keys() & self._finished_jobs
        index = super().stats_stale_ok
        for job_id in finished - index.timing.copied_jobs:  # the cost of a copy is needed later
            archived = JobLog(job_id)
            archived.last_result = self._logs[job_id].last_result
            self._logs[job_id] = archived
            self._archived_jobs.add(job_id)
        return index
