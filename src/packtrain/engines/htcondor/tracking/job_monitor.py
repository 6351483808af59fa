"""Merges the event log and the queue of the schedd into updates for the attempts of one run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from packtrain.engines.htcondor import output_retrieval
from packtrain.engines.htcondor.tracking.condor_queue import CondorQueue
from packtrain.engines.htcondor.tracking.job_tracker import ClusterItems, JobTracker
from packtrain.engines.htcondor.tracking.log_reader import EventLogReader
from packtrain.engines.htcondor.tracking.tracked_job import TrackedJob
from packtrain.engines.updates import AttemptUpdate, Gone
from packtrain.plan import Plan, RunFolder

_logger = logging.getLogger("packtrain.engines.htcondor")


class JobMonitor:
    """The jobs of one run in the pool, and the updates that have not been reported yet."""

    def __init__(self, plan: Plan, folder: RunFolder, queue: CondorQueue) -> None:
        self._folder, self._queue = folder, queue
        self._jobs = {job.id: job for job in plan.jobs}
        self._log_reader = EventLogReader(folder.htcondor / "event.log")
        self._unreported: list[AttemptUpdate] = []
        self.tracker = JobTracker(self._read_items, self._has_all_outputs)
        self.reported_ids: set[str] = set()  # the attempts that `poll` reports: wanted and not finished

    @property
    def has_news(self) -> bool:
        """Whether the log has grown since it was read."""
        return self._log_reader.has_grown

    def knows(self, attempt_id: str) -> bool:
        """Return whether the pool has or had an attempt."""
        return attempt_id in self.tracker.by_attempt_id

    def find(self, attempt_ids: Iterable[str]) -> list[TrackedJob]:
        """Return the jobs of those attempts that are known."""
        known_jobs = self.tracker.by_attempt_id
        return [known_jobs[attempt_id] for attempt_id in attempt_ids if attempt_id in known_jobs]

    def read_log(self) -> None:
        """Read what is new in the log."""
        events = self._log_reader.read()
        self._unreported += [update for event in events for update in self.tracker.apply(event)]

    def read_queue(self) -> None:
        """Register the clusters of this run that are in the queue. Raises ScheddUnreachableError."""
        for cluster, first_attempt_id in self._queue.list_clusters():
            self.tracker.add_cluster(cluster, self._read_items(first_attempt_id))

    def follow(self, attempt_ids: Sequence[str]) -> None:
        """Report these attempts from now on, except finished ones."""
        finished_ids = {job.attempt_id for job in self.find(attempt_ids) if job.is_finished}
        self.reported_ids |= set(attempt_ids) - finished_ids

    def add_update(self, update: AttemptUpdate) -> None:
        """Let `poll` report an update that comes from neither the log nor the queue."""
        self._unreported.append(update)

    def take_all_updates(self, jobs: Sequence[TrackedJob]) -> list[AttemptUpdate]:
        """Return everything that happened to these jobs. `poll` does not report it again."""
        attempt_ids = {job.attempt_id for job in jobs}
        self._unreported = [update for update in self._unreported if update.attempt_id not in attempt_ids]
        return [update for job in jobs for update in job.all_updates()]

    def poll(self) -> list[AttemptUpdate]:
        """Read the log and the queue, and return the new updates of all attempts that are followed."""
        self.read_log()
        live_jobs = [job for job in self.find(self.reported_ids) if not job.is_finished]
        self._unreported += self._queue.poll_progress(live_jobs)
        for job, (detail, exit_code, failure_kind) in self._queue.find_vanished(live_jobs):
            self._unreported.append(self.tracker.finish(job, detail, exit_code, failure_kind))
        updates, self._unreported = self._unreported, []
        reported = [update for update in updates if update.attempt_id in self.reported_ids]
        self.reported_ids -= {update.attempt_id for update in reported if isinstance(update, Gone)}
        if reported:
            _logger.debug("poll: %d updates, %d attempts are not finished", len(reported), len(self.reported_ids))
        return reported

    def _read_items(self, first_attempt_id: str) -> ClusterItems:
        """Read the saved items of a cluster. The attempt id comes from a log that other users may have written."""
        path = self._folder.htcondor / f"{Path(first_attempt_id).name}.items"
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError:
            return ()
        return [(columns[0], columns[1]) for line in lines if len(columns := line.split(maxsplit=2)) >= 2]

    def _has_all_outputs(self, job_id: str, attempt_id: str) -> bool:
        attempt_folder = self._folder.attempt_folder(job_id, attempt_id)
        return job_id in self._jobs and output_retrieval.has_all_outputs(self._jobs[job_id], attempt_folder)
