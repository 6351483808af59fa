"""Removes and releases jobs, and repeats that until the schedd answers. All actions are repeatable."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from packtrain.engines.htcondor import output_retrieval
from packtrain.engines.htcondor.condor_client import CondorClient, RetryTimer, ScheddUnreachableError
from packtrain.engines.htcondor.tracking import REMOVE_REASON, JobMonitor, TrackedJob
from packtrain.plan import Plan, RunFolder

_logger = logging.getLogger("packtrain.engines.htcondor")
CANCELLED_DETAIL = "the attempt was cancelled before it started"

_Action = Callable[[Sequence[str], str], None]
"""Acts on jobs: their native ids, and the reason."""


class JobActions:
    """Acts on the jobs of one run."""

    def __init__(
        self, plan: Plan, folder: RunFolder, client: CondorClient, monitor: JobMonitor, retry: RetryTimer
    ) -> None:
        self._folder, self._client, self._monitor, self._retry = folder, client, monitor, retry
        self._jobs = {job.id: job for job in plan.jobs}
        self._pending: list[tuple[_Action, Sequence[str], str]] = []
        self._unwanted_ids: set[str] = set()  # removed when they become jobs

    def release(self, jobs: Iterable[TrackedJob]) -> None:
        """Release the held ones of these jobs."""
        held_ids = [job.native_id for job in jobs if job.is_held]
        self._run(self._client.release, held_ids, "packtrain: released for another try")

    def cancel(self, jobs: Sequence[TrackedJob]) -> None:
        """Remove jobs; where no other job of a cluster is unfinished, remove the cluster with its remaining items."""
        for job in jobs:
            self._save_checkpoint(job)
        whole_clusters = self._clusters_without_others(jobs)
        native_ids = [str(cluster) for cluster in sorted(whole_clusters)]
        for job in (job for job in jobs if job.cluster_proc[0] not in whole_clusters):
            if job.is_materialized:
                native_ids.append(job.native_id)
            else:
                self._monitor.add_update(self._monitor.tracker.finish(job, CANCELLED_DETAIL))
                self._unwanted_ids.add(job.attempt_id)
        self._run(self._client.remove, native_ids, REMOVE_REASON)

    def remove_later(self, attempt_ids: Iterable[str]) -> None:
        """Let `remove_unwanted` remove these attempts, unless the monitor follows them by then."""
        self._unwanted_ids.update(attempt_ids)

    def remove_unwanted(self) -> None:
        """Remove items that the supervisor does not want, and jobs that are complete but that the pool would run again.

        An item cannot be removed before it is a job, unless its whole cluster is removed. Only `poll` may do this, not
        `recover`, because views call `recover`, too.
        """
        self._unwanted_ids -= self._monitor.reported_ids
        unwanted = self._monitor.find(sorted(self._unwanted_ids))
        whole_clusters = self._clusters_without_others(unwanted)
        removable = [job for job in unwanted if job.is_materialized or job.cluster_proc[0] in whole_clusters]
        self._unwanted_ids -= {job.attempt_id for job in removable}
        native_ids = dict.fromkeys(
            str(job.cluster_proc[0]) if job.cluster_proc[0] in whole_clusters else job.native_id for job in removable
        )
        self._run(self._client.remove, list(native_ids), REMOVE_REASON)
        tracker = self._monitor.tracker
        redundant_ids, tracker.redundant_jobs = tracker.redundant_jobs, []
        self._run(self._client.remove, redundant_ids, REMOVE_REASON)

    def run_pending(self) -> None:
        """Run pending actions. One that fails goes to the end, because the schedd may never accept it."""
        while self._pending and self._retry.is_due:
            action, native_ids, reason = pending = self._pending.pop(0)
            try:
                action(native_ids, reason)
            except ScheddUnreachableError as error:
                _logger.debug("%d actions wait: %s", len(self._pending) + 1, error)
                self._pending.append(pending)
                self._retry.postpone()
                return

    def _run(self, action: _Action, native_ids: Sequence[str], reason: str) -> None:
        if native_ids:
            self._pending.append((action, native_ids, reason))
            self.run_pending()

    def _clusters_without_others(self, jobs: Sequence[TrackedJob]) -> set[int]:
        """Return the clusters whose unfinished attempts are all among these jobs."""
        attempt_ids = {job.attempt_id for job in jobs}
        clusters = {job.cluster_proc[0] for job in jobs}
        tracker = self._monitor.tracker
        return {cluster for cluster in clusters if tracker.unfinished_attempts(cluster) <= attempt_ids}

    def _save_checkpoint(self, tracked_job: TrackedJob) -> None:
        job = self._jobs.get(tracked_job.job_id)
        if job and output_retrieval.has_condor_checkpoints(job) and tracked_job.n_executions:
            spool_dir = output_retrieval.job_spool_dir(self._client.get_param("SPOOL"), *tracked_job.cluster_proc)
            attempt_folder = self._folder.attempt_folder(tracked_job.job_id, tracked_job.attempt_id)
            output_retrieval.save_spooled_checkpoint(job, attempt_folder, spool_dir)
