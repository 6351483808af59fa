"""The engine that runs attempts as jobs of an HTCondor pool.

A later engine object finds what was submitted in three places that outlive this one: the saved submit files, the event
log of the run, and the queue of the schedd.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packtrain.engines.api import AttemptUpdate, Capabilities, Overrides, SubmitRequest
from packtrain.engines.htcondor import output_retrieval, shell_runner
from packtrain.engines.htcondor.condor_client import CondorClient, ScheddUnreachableError
from packtrain.engines.htcondor.condor_queue import CondorQueue
from packtrain.engines.htcondor.input_transfer import collect_condor_inputs, job_for_worker, transfer_input_files
from packtrain.engines.htcondor.job_tracker import REMOVE_REASON, ClusterItems, JobTracker, TrackedJob, waiting_progress
from packtrain.engines.htcondor.log_reader import EventLogReader
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.submit_description import (
    SubmitBatch,
    has_condor_checkpoints,
    has_site_requirements,
    render_items,
    render_submit_description,
)
from packtrain.errors import FailedError
from packtrain.plan import Plan, RunFolder, write_plan

CAPABILITIES = Capabilities(
    name="htcondor",
    supports_containers=True,
    cpus=1 << 20,
    memory_mb=1 << 40,
    gpus=1 << 20,
    has_shared_folder=False,
    poll_interval_s=1.0,
    has_multiple_sites=True,
)
_LOG_POLL_INTERVAL_S = 0.1  # how often `wait` checks the size of the event log
_MIN_WAIT_S = 0.25  # with a thousand jobs the log grows all the time; read many events at once
_RETRY_INTERVAL_S = 5.0
_CANCELLED_DETAIL = "the attempt was cancelled before it started"

QueueAction = Callable[[Sequence[str], str], None]
"""Removes or releases jobs: their native ids, and the reason."""


def capabilities_for(plan: Plan) -> Capabilities:
    """Return the capabilities for a run, whose requirements may name the sites to use.

    Args:
        plan: The plan of the run.
    """
    lines = ((line.key, str(line.value)) for line in plan.htcondor)
    return replace(CAPABILITIES, has_pinned_sites=has_site_requirements(lines))


class HtcondorEngine:
    """Implements `packtrain.engines.api.Engine`."""

    def __init__(self, plan: Plan, folder: RunFolder, client: CondorClient | None = None) -> None:
        self.capabilities = capabilities_for(plan)
        self._plan, self._folder = plan, folder
        self._jobs = {job.id: job for job in plan.jobs}
        self._client = client or CondorClient()
        self._log_reader = EventLogReader(folder.htcondor / "event.log")
        self._tracker = JobTracker(self._read_items, self._has_all_outputs)
        self._queue = CondorQueue(plan.run, len(plan.jobs), self._client)
        self._tracked_ids: set[str] = set()  # attempts that `poll` reports
        self._pending_submits: dict[str, SubmitRequest] = {}  # not known to be in the queue
        self._pending_actions: list[tuple[QueueAction, Sequence[str], str]] = []
        self._retry_at = 0.0  # monotonic time before which the schedd is not called again
        self._deferred_reasons: dict[str, str] = {}  # the reported reason why an attempt is not in the queue yet
        self._to_remove: set[str] = set()  # unwanted items of clusters, removed when they become jobs
        self._updates: list[AttemptUpdate] = []

    # The protocol

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        self._updates += self._read_log()
        known_jobs = self._tracker.by_attempt_id
        self._pending_submits.update({r.attempt_id: r for r in requests if r.attempt_id not in known_jobs})
        self._tracked_ids.update(r.attempt_id for r in requests if not self._is_finished(r.attempt_id))
        self._submit_pending()
        return {r.attempt_id: known_jobs[r.attempt_id].native_id for r in requests if r.attempt_id in known_jobs}

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        self._updates += self._read_log()
        attempt_ids = [request.attempt_id for request in requests]
        if any(attempt_id not in self._tracker.by_attempt_id for attempt_id in attempt_ids):
            self._register_queued()
        recovered = self._known_jobs(attempt_ids)
        recovered_ids = {job.attempt_id for job in recovered}
        self._updates = [update for update in self._updates if update.attempt_id not in recovered_ids]
        self._tracked_ids.update(job.attempt_id for job in recovered if not job.is_finished)
        self._to_remove |= {
            job.attempt_id for job in self._tracker.by_attempt_id.values() if not (job.is_finished or job.n_executions)
        }
        return [update for job in recovered for update in _all_updates(job)]

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        for attempt_id in attempt_ids:
            request = self._pending_submits.pop(attempt_id, None)
            if request:
                self._to_remove.add(attempt_id)  # the schedd may have accepted it although its answer was lost
                self._updates.append(AttemptUpdate(attempt_id, request.job.id, "gone", detail=_CANCELLED_DETAIL))
        self._remove_jobs([job for job in self._known_jobs(attempt_ids) if not job.is_finished])

    def release(self, attempt_ids: Sequence[str]) -> None:
        held_ids = [job.native_id for job in self._known_jobs(attempt_ids) if job.is_held]
        self._run_or_queue(self._client.release, held_ids, "packtrain: released for another try")

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        for request in requests:
            attempt_folder = self._folder.attempt_folder(request.job.id, request.attempt_id)
            output_retrieval.commit_outputs(request.job, attempt_folder)

    def poll(self) -> Sequence[AttemptUpdate]:
        self._submit_pending()
        self._run_pending_actions()
        updates = [*self._updates, *self._read_log(), *self._poll_queue()]
        self._updates = []
        reported = [update for update in updates if update.attempt_id in self._tracked_ids]
        self._tracked_ids -= {update.attempt_id for update in reported if update.status == "gone"}
        self._remove_unwanted()
        self._remove_redundant()
        return reported

    def wait(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        time.sleep(min(timeout_s, _MIN_WAIT_S))
        while time.monotonic() < deadline and not self._log_reader.has_grown:
            time.sleep(_LOG_POLL_INTERVAL_S)

    # Submitting

    def _submit_pending(self) -> None:
        """Submit all attempts that are not in the queue yet, as one cluster per set of overrides.

        A schedd whose answer was lost may have accepted the cluster. Therefore check the queue, and the log for
        attempts that have already left the queue, before submitting again.
        """
        if not self._pending_submits or time.monotonic() < self._retry_at:
            return
        try:
            self._find_submitted()
            for group in _group_by_overrides(self._pending_submits.values()):
                self._try_submit_cluster(group)
        except ScheddUnreachableError as error:
            self._retry_at = time.monotonic() + _RETRY_INTERVAL_S
            self._report_deferred(str(error))

    def _find_submitted(self) -> None:
        self._register_queued()
        self._updates += self._read_log()
        self._clear_submitted([id_ for id_ in self._pending_submits if id_ in self._tracker.by_attempt_id])

    def _try_submit_cluster(self, requests: Sequence[SubmitRequest]) -> None:
        try:
            self._submit_cluster(requests)
        except FailedError as error:
            self._find_submitted()
            rejected = [request for request in requests if request.attempt_id in self._pending_submits]
            self._updates += [
                AttemptUpdate(r.attempt_id, r.job.id, "gone", failure_kind=error.kind, detail=error.detail)
                for r in rejected
            ]
        self._clear_submitted([request.attempt_id for request in requests])

    def _clear_submitted(self, attempt_ids: Iterable[str]) -> None:
        """Remove attempts from the pending ones, and clear the reported reasons why they were waiting."""
        for attempt_id in attempt_ids:
            request = self._pending_submits.pop(attempt_id, None)
            if request and self._deferred_reasons.pop(attempt_id, ""):
                self._updates.append(_waiting_update(request, ""))

    def _report_deferred(self, reason: str) -> None:
        changed = [
            request
            for attempt_id, request in self._pending_submits.items()
            if self._deferred_reasons.get(attempt_id) != reason
        ]
        self._deferred_reasons.update({request.attempt_id: reason for request in changed})
        self._updates += [_waiting_update(request, reason) for request in changed]

    def _submit_cluster(self, requests: Sequence[SubmitRequest]) -> None:
        """Write the submit files and submit them. Raises FailedError or ScheddUnreachableError."""
        batch = self._make_batch(requests)
        condor_inputs = collect_condor_inputs(self._plan)
        for request in requests:
            attempt_folder = self._folder.attempt_folder(request.job.id, request.attempt_id)
            attempt_folder.root.mkdir(parents=True, exist_ok=True)
            if has_condor_checkpoints(request.job):
                attempt_folder.checkpoint.mkdir(exist_ok=True)
            if request.overrides.fetch_with_agent:
                job = job_for_worker(request.job, condor_inputs)
                write_plan(replace(self._plan, jobs=(job,), htcondor=(), slurm=()), attempt_folder.plan)
        first_id = requests[0].attempt_id
        description_path, items_path = self._htcondor_path(f"{first_id}.sub"), self._htcondor_path(f"{first_id}.items")
        items_path.write_text(render_items(batch), encoding="utf-8")
        settings = RunSettings.read(self._htcondor_path("run_settings.json"))
        settings = replace(settings, disk_mb=math.ceil(settings.disk_mb * requests[0].overrides.disk_factor))
        description = render_submit_description(batch, self._folder, items_path, settings)
        description_path.write_text(description, encoding="utf-8")
        cluster = self._client.submit(description)
        items = [(request.job.id, request.attempt_id) for request in requests]
        self._tracker.add_cluster(cluster, items, is_materialized=len(requests) == 1)

    def _make_batch(self, requests: Sequence[SubmitRequest]) -> SubmitBatch:
        condor_inputs, inputs_dir = collect_condor_inputs(self._plan), self._htcondor_path("inputs")
        transfer_inputs = {
            request.attempt_id: (
                *transfer_input_files(request.job, condor_inputs, inputs_dir),
                *output_retrieval.previous_checkpoint(request, self._folder),
                *shell_runner.script_inputs(self._folder, request.job.id),
            )
            for request in requests
        }
        return SubmitBatch(
            run_id=self._plan.run,
            n_jobs=len(self._plan.jobs),
            attempts=[(request.job, request.attempt_id) for request in requests],
            transfer_inputs=transfer_inputs,
            has_secrets=self._folder.secrets.is_dir() and any(self._folder.secrets.iterdir()),
            overrides=requests[0].overrides,
        )

    def _htcondor_path(self, name: str) -> Path:
        return self._folder.htcondor / name

    def _read_items(self, first_attempt_id: str) -> ClusterItems:
        """Read the saved items of a cluster. The attempt id comes from a log that other users may have written."""
        try:
            text = self._htcondor_path(f"{Path(first_attempt_id).name}.items").read_text(encoding="utf-8")
        except OSError:
            return ()
        return [(columns[0], columns[1]) for line in text.splitlines() if len(columns := line.split(maxsplit=2)) >= 2]

    def _register_queued(self) -> None:
        """Register the clusters of this run that are in the queue. Raises ScheddUnreachableError."""
        for cluster, first_attempt_id in self._queue.list_clusters():
            self._tracker.add_cluster(cluster, self._read_items(first_attempt_id))

    # Following

    def _known_jobs(self, attempt_ids: Iterable[str]) -> list[TrackedJob]:
        known_jobs = self._tracker.by_attempt_id
        return [known_jobs[attempt_id] for attempt_id in attempt_ids if attempt_id in known_jobs]

    def _read_log(self) -> list[AttemptUpdate]:
        return [update for event in self._log_reader.read() for update in self._tracker.apply(event)]

    def _poll_queue(self) -> list[AttemptUpdate]:
        live_jobs = self._known_jobs(self._tracked_ids)
        updates = self._queue.poll_progress(live_jobs)
        vanished = self._queue.find_vanished(live_jobs)
        return updates + [self._tracker.mark_finished(job, *job_exit) for job, job_exit in vanished]

    def _is_finished(self, attempt_id: str) -> bool:
        job = self._tracker.by_attempt_id.get(attempt_id)
        return job is not None and job.is_finished

    def _has_all_outputs(self, job_id: str, attempt_id: str) -> bool:
        job = self._jobs.get(job_id)
        attempt_folder = self._folder.attempt_folder(job_id, attempt_id)
        return job is not None and output_retrieval.has_all_outputs(job, attempt_folder)

    # Removing

    def _remove_redundant(self) -> None:
        """Remove jobs that are already complete, but that the pool would run again."""
        native_ids, self._tracker.redundant_jobs = self._tracker.redundant_jobs, []
        self._run_or_queue(self._client.remove, native_ids, REMOVE_REASON)

    def _remove_unwanted(self) -> None:
        """Remove items that the supervisor does not want.

        An item cannot be removed before it is a job, unless its whole cluster is removed. Only `poll` may do this, not
        `recover`, because views call `recover`, too.
        """
        self._to_remove -= self._tracked_ids
        unwanted = self._known_jobs(sorted(self._to_remove))
        whole_clusters = self._clusters_without_others(unwanted)
        removable = [job for job in unwanted if job.is_materialized or job.cluster_proc[0] in whole_clusters]
        self._to_remove -= {job.attempt_id for job in removable}
        native_ids = dict.fromkeys(
            str(job.cluster_proc[0]) if job.cluster_proc[0] in whole_clusters else job.native_id for job in removable
        )
        self._run_or_queue(self._client.remove, list(native_ids), REMOVE_REASON)

    def _remove_jobs(self, jobs: Sequence[TrackedJob]) -> None:
        """Remove jobs; where no other job of a cluster is unfinished, remove the cluster with its remaining items."""
        for job in jobs:
            self._save_checkpoint(job)
        whole_clusters = self._clusters_without_others(jobs)
        native_ids = [str(cluster) for cluster in sorted(whole_clusters)]
        for job in jobs:
            if job.cluster_proc[0] in whole_clusters:
                continue
            if job.is_materialized:
                native_ids.append(job.native_id)
            else:
                self._updates.append(self._tracker.mark_finished(job, _CANCELLED_DETAIL))
                self._to_remove.add(job.attempt_id)
        self._run_or_queue(self._client.remove, native_ids, REMOVE_REASON)

    def _save_checkpoint(self, tracked_job: TrackedJob) -> None:
        job = self._jobs.get(tracked_job.job_id)
        if job and has_condor_checkpoints(job) and tracked_job.n_executions:
            spool_dir = output_retrieval.job_spool_dir(self._client.get_param("SPOOL"), *tracked_job.cluster_proc)
            attempt_folder = self._folder.attempt_folder(tracked_job.job_id, tracked_job.attempt_id)
            output_retrieval.save_spooled_checkpoint(job, attempt_folder, spool_dir)

    def _clusters_without_others(self, jobs: Sequence[TrackedJob]) -> set[int]:
        """Return the clusters whose unfinished attempts are all among these jobs."""
        attempt_ids = {job.attempt_id for job in jobs}
        clusters = {job.cluster_proc[0] for job in jobs}
        return {cluster for cluster in clusters if self._tracker.unfinished_attempts(cluster) <= attempt_ids}

    def _run_or_queue(self, action: QueueAction, native_ids: Sequence[str], reason: str) -> None:
        """Act on jobs, and repeat that until the schedd answers. All actions are repeatable."""
        if native_ids:
            self._pending_actions.append((action, native_ids, reason))
            self._run_pending_actions()

    def _run_pending_actions(self) -> None:
        """Run pending actions. One that fails goes to the end, because the schedd may never accept it."""
        while self._pending_actions and time.monotonic() >= self._retry_at:
            action, native_ids, reason = pending = self._pending_actions.pop(0)
            try:
                action(native_ids, reason)
            except ScheddUnreachableError:
                self._pending_actions.append(pending)
                self._retry_at = time.monotonic() + _RETRY_INTERVAL_S
                return


def _group_by_overrides(requests: Iterable[SubmitRequest]) -> Iterable[list[SubmitRequest]]:
    """Group requests that can share a submit description."""
    groups: dict[Overrides, list[SubmitRequest]] = {}
    for request in requests:
        groups.setdefault(request.overrides, []).append(request)
    return groups.values()


def _waiting_update(request: SubmitRequest, reason: str) -> AttemptUpdate:
    progress = waiting_progress(request.attempt_id, f"{reason}; packtrain tries again" if reason else "")
    return AttemptUpdate(request.attempt_id, request.job.id, "queued", progress=progress)


def _all_updates(job: TrackedJob) -> list[AttemptUpdate]:
    """Return everything that happened to an attempt, and its current status."""
    if job.is_finished:
        return list(job.updates)
    return [*job.updates, AttemptUpdate(job.attempt_id, job.job_id, job.status, job.native_id, job.site)]
