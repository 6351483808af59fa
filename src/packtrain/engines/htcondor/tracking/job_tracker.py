"""Turns events of the HTCondor log into attempt updates. Pure.

The tracker knows which job of the pool belongs to which attempt, from the notes that submit descriptions write into
the log, from the queue, and from the engine itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from packtrain.condor.eventlog import JobEvent, event_types
from packtrain.engines.htcondor.tracking.tracked_job import LOG_PREFIX, ClusterProc, TrackedJob
from packtrain.engines.updates import AttemptUpdate, ExecutionInterrupted, Gone, Held, Queued

ClusterItems = Sequence[tuple[str, str]]  # (job id, attempt id), indexed by proc


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
        if job is None:
            return []
        updates: list[AttemptUpdate] = []
        for update in job.apply(log_event):
            if isinstance(update, (ExecutionInterrupted, Held, Gone)):
                updates += job.take_final_events()
            updates.append(self._finish_if_complete(job, update))
        job.updates += updates
        return updates

    def _finish_if_complete(self, job: TrackedJob, update: AttemptUpdate) -> AttemptUpdate:
        """Finish an attempt that was evicted after it succeeded: the pool would run it again from the beginning."""
        if not isinstance(update, ExecutionInterrupted) or not self._has_all_outputs(job.job_id, job.attempt_id):
            return update
        self.redundant_jobs.append(job.native_id)
        gone = job.finish(f"{update.detail}, but all outputs had already been returned", exit_code=0)
        return replace(gone, seq=update.seq, occurred_at=update.occurred_at)

    @staticmethod
    def finish(job: TrackedJob, detail: str, exit_code: int | None = None, failure_kind: str = "") -> AttemptUpdate:
        """Finish an attempt whose end is not in the log, and return the update."""
        update = job.finish(detail, exit_code, failure_kind)
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
                yield self.finish(job, detail, failure_kind="cancelled")
        elif log_event.event_type in (event_types.FACTORY_PAUSED, event_types.FACTORY_RESUMED):
            is_paused = log_event.event_type == event_types.FACTORY_PAUSED
            reason = f"the schedd has paused the cluster of this job ({log_event.first_detail_line})"
            for job in self._unmaterialized_jobs(log_event.cluster):
                yield Queued(job.attempt_id, job.job_id, reason=reason if is_paused else "")

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


def _parse_submit_note(log_event: JobEvent) -> tuple[str, str] | None:
    """Return the job id and the attempt id of the note that the submit description writes into the log."""
    fields = next((line.split() for line in log_event.detail_lines if line.startswith(f"{LOG_PREFIX} ")), [])
    return (fields[1], fields[2]) if len(fields) == 3 else None
