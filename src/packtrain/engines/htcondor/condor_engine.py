"""The engine of an HTCondor pool. What was submitted is known by three things that outlive this process: the saved
submit descriptions, the run's user log, and the queue itself."""

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
_LOG_POLL_INTERVAL_S = 0.1  # how often the log's size is looked at while waiting
_MIN_WAIT_S = 0.25  # news of a thousand jobs come all the time; they are read together
_RETRY_INTERVAL_S = 5.0

QueueAction = Callable[[Sequence[str], str], None]


class HtcondorEngine:
    def __init__(self, plan: Plan, folder: RunFolder, client: CondorClient | None = None) -> None:
        self.capabilities = CAPABILITIES
        self._plan, self._folder = plan, folder
        self._jobs = {job.id: job for job in plan.jobs}
        self._client = client or CondorClient()
        self._log_reader = EventLogReader(folder.htcondor / "event.log")
        self._tracker = JobTracker(self._read_items, self._has_all_outputs)
        self._queue = CondorQueue(plan.run, len(plan.jobs), self._client)
        self._tracked_ids: set[str] = set()
        self._pending_submits: dict[str, SubmitRequest] = {}
        self._pending_actions: list[tuple[QueueAction, Sequence[str], str]] = []
        self._retry_at = 0.0
        self._deferred_reasons: dict[str, str] = {}  # why what was asked for is not in the queue yet, as it was told
        self._to_remove: set[str] = set()  # items of clusters, removed when they appear
        self._updates: list[AttemptUpdate] = []

    # What the supervisor asks for

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        self._updates += self._read_log()
        self._pending_submits.update(
            {t.attempt_id: t for t in requests if t.attempt_id not in self._tracker.by_attempt_id}
        )
        self._tracked_ids.update(t.attempt_id for t in requests if not self._is_finished(t.attempt_id))
        self._submit_pending()
        known = self._tracker.by_attempt_id
        return {t.attempt_id: known[t.attempt_id].native_id for t in requests if t.attempt_id in known}

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        self._updates += self._read_log()
        if any(ticket.attempt_id not in self._tracker.by_attempt_id for ticket in requests):
            self._register_queued()
        known = [
            self._tracker.by_attempt_id[t.attempt_id] for t in requests if t.attempt_id in self._tracker.by_attempt_id
        ]
        told = {one.attempt_id for one in known}
        self._updates = [sighting for sighting in self._updates if sighting.attempt_id not in told]
        self._tracked_ids.update(one.attempt_id for one in known if not one.is_finished)
        self._to_remove |= {
            one.attempt_id for one in self._tracker.by_attempt_id.values() if not (one.is_finished or one.n_executions)
        }
        return [sighting for one in known for sighting in _all_updates(one)]

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        for decision in attempt_ids:
            ticket = self._pending_submits.pop(decision, None)
            if ticket:
                self._to_remove.add(decision)  # the schedd may have taken it though its answer was lost
                self._updates.append(
                    AttemptUpdate(decision, ticket.job.id, "gone", detail="it was cancelled before it started")
                )
        known = [self._tracker.by_attempt_id[d] for d in attempt_ids if d in self._tracker.by_attempt_id]
        self._remove_jobs([one for one in known if not one.is_finished])

    def release(self, attempt_ids: Sequence[str]) -> None:
        known = [self._tracker.by_attempt_id[d] for d in attempt_ids if d in self._tracker.by_attempt_id]
        self._run_or_queue(
            self._client.release, [one.native_id for one in known if one.is_held], "packtrain lets it try again"
        )

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        for ticket in requests:
            output_retrieval.commit_outputs(ticket.job, self._folder.attempt_folder(ticket.job.id, ticket.attempt_id))

    def poll(self) -> Sequence[AttemptUpdate]:
        self._submit_pending()
        self._run_pending_actions()
        seen = [*self._updates, *self._read_log(), *self._poll_queue()]
        self._updates = []
        told = [sighting for sighting in seen if sighting.attempt_id in self._tracked_ids]
        self._tracked_ids -= {sighting.attempt_id for sighting in told if sighting.status == "gone"}
        self._remove_unwanted()
        self._remove_redundant()
        return told

    def wait(self, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        time.sleep(min(timeout_s, _MIN_WAIT_S))
        while time.monotonic() < end and not self._log_reader.has_grown:
            time.sleep(_LOG_POLL_INTERVAL_S)

    # Submitting

    def _submit_pending(self) -> None:
        """Everything that was asked for and is not known yet, as one cluster for each way in which attempts are
        amended. If the schedd gives no answer it may still have taken it: the queue, and the log for what has left it
        since, are asked before it is tried again."""
        if not self._pending_submits or time.monotonic() < self._retry_at:
            return
        try:
            self._find_submitted()
            for alike in _group_by_overrides(self._pending_submits.values()):
                self._try_submit_cluster(alike)
        except ScheddUnreachableError as error:
            self._retry_at = time.monotonic() + _RETRY_INTERVAL_S
            self._report_deferred(str(error))

    def _find_submitted(self) -> None:
        self._register_queued()
        self._updates += self._read_log()
        self._clear_submitted(
            decision for decision in list(self._pending_submits) if decision in self._tracker.by_attempt_id
        )

    def _try_submit_cluster(self, requests: Sequence[SubmitRequest]) -> None:
        try:
            self._submit_cluster(requests)
        except FailedError as error:
            self._find_submitted()
            refused = [ticket for ticket in requests if ticket.attempt_id in self._pending_submits]
            self._updates += [
                AttemptUpdate(t.attempt_id, t.job.id, "gone", failure_kind=error.kind, detail=error.detail)
                for t in refused
            ]
        self._clear_submitted(ticket.attempt_id for ticket in requests)

    def _clear_submitted(self, attempt_ids: Iterable[str]) -> None:
        """They wait for the schedd no longer; whoever was told so hears that."""
        for decision in attempt_ids:
            ticket = self._pending_submits.pop(decision, None)
            if ticket and self._deferred_reasons.pop(decision, ""):
                self._updates.append(_waiting_update(ticket, ""))

    def _report_deferred(self, reason: str) -> None:
        fresh = [
            ticket
            for decision, ticket in self._pending_submits.items()
            if self._deferred_reasons.get(decision) != reason
        ]
        self._deferred_reasons.update({ticket.attempt_id: reason for ticket in fresh})
        self._updates += [_waiting_update(ticket, reason) for ticket in fresh]

    def _submit_cluster(self, requests: Sequence[SubmitRequest]) -> None:
        batch = self._make_batch(requests)
        sent = collect_condor_inputs(self._plan)
        for ticket in requests:
            attempt = self._folder.attempt_folder(ticket.job.id, ticket.attempt_id)
            attempt.root.mkdir(parents=True, exist_ok=True)
            if has_condor_checkpoints(ticket.job):
                attempt.checkpoint.mkdir(exist_ok=True)
            if ticket.overrides.fetch_with_agent:
                alone = replace(self._plan, jobs=(job_for_worker(ticket.job, sent),), htcondor=(), slurm=())
                write_plan(alone, attempt.plan)
        first = requests[0].attempt_id
        description, items = self._htcondor_path(f"{first}.sub"), self._htcondor_path(f"{first}.items")
        items.write_text(render_items(batch), encoding="utf-8")
        settings = RunSettings.read(self._htcondor_path("run_settings.json"))
        settings = replace(settings, disk_mb=math.ceil(settings.disk_mb * requests[0].overrides.disk_factor))
        description.write_text(render_submit_description(batch, self._folder, items, settings), encoding="utf-8")
        cluster = self._client.submit(description.read_text(encoding="utf-8"))
        self._tracker.add_cluster(
            cluster, [(t.job.id, t.attempt_id) for t in requests], is_materialized=len(requests) == 1
        )

    def _make_batch(self, requests: Sequence[SubmitRequest]) -> SubmitBatch:
        sent, native = collect_condor_inputs(self._plan), self._htcondor_path("native")
        inputs = {
            t.attempt_id: (
                *transfer_input_files(t.job, sent, native),
                *output_retrieval.previous_checkpoint(t, self._folder),
                *shell_runner.script_inputs(self._folder, t.job.id),
            )
            for t in requests
        }
        has_secrets = self._folder.secrets.is_dir() and any(self._folder.secrets.iterdir())
        attempts = [(ticket.job, ticket.attempt_id) for ticket in requests]
        return SubmitBatch(self._plan.run, len(self._plan.jobs), attempts, inputs, has_secrets, requests[0].overrides)

    def _htcondor_path(self, name: str) -> Path:
        return self._folder.htcondor / name

    def _read_items(self, first_attempt_id: str) -> ClusterItems:
        """What a saved submission was about. Its name comes from a log that others could write."""
        try:
            text = self._htcondor_path(f"{Path(first_attempt_id).name}.items").read_text(encoding="utf-8")
        except OSError:
            return ()
        return [(words[0], words[1]) for line in text.splitlines() if len(words := line.split(maxsplit=2)) >= 2]

    def _register_queued(self) -> None:
        for cluster, decision in self._queue.list_clusters():
            self._tracker.add_cluster(cluster, self._read_items(decision))

    # Following

    def _read_log(self) -> list[AttemptUpdate]:
        return [sighting for record in self._log_reader.read() for sighting in self._tracker.apply(record)]

    def _has_all_outputs(self, job_id: str, attempt_id: str) -> bool:
        planned = self._jobs.get(job_id)
        return planned is not None and output_retrieval.has_all_outputs(
            planned, self._folder.attempt_folder(job_id, attempt_id)
        )

    def _remove_redundant(self) -> None:
        names, self._tracker.redundant_jobs = self._tracker.redundant_jobs, []
        self._run_or_queue(self._client.remove, names, REMOVE_REASON)

    def _remove_unwanted(self) -> None:
        """An item of a cluster cannot be taken out of it: one that nobody wants is removed when it appears, or with its
        cluster when no other is left. Only the one who follows the others may do so: views look, but never poll."""
        self._to_remove -= self._tracked_ids
        known = [one for d in sorted(self._to_remove) if (one := self._tracker.by_attempt_id.get(d))]
        whole = self._clusters_without_others(known)
        ready = [one for one in known if one.is_materialized or one.cluster_proc[0] in whole]
        self._to_remove -= {one.attempt_id for one in ready}
        names = {str(one.cluster_proc[0]) if one.cluster_proc[0] in whole else one.native_id: None for one in ready}
        self._run_or_queue(self._client.remove, list(names), REMOVE_REASON)

    def _poll_queue(self) -> list[AttemptUpdate]:
        alive = [self._tracker.by_attempt_id[d] for d in self._tracked_ids if d in self._tracker.by_attempt_id]
        seen = self._queue.poll_progress(alive)
        return seen + [self._tracker.mark_finished(one, *end) for one, end in self._queue.find_vanished(alive)]

    def _is_finished(self, attempt_id: str) -> bool:
        known = self._tracker.by_attempt_id.get(attempt_id)
        return known is not None and known.is_finished

    def _remove_jobs(self, tracked_jobs: Sequence[TrackedJob]) -> None:
        """Whole clusters where nobody else is left in them, so that their other items never appear."""
        for one in tracked_jobs:
            self._save_checkpoint(one)
        whole = self._clusters_without_others(tracked_jobs)
        names = [str(cluster) for cluster in sorted(whole)]
        for one in tracked_jobs:
            if one.cluster_proc[0] not in whole and one.is_materialized:
                names.append(one.native_id)
            elif one.cluster_proc[0] not in whole:
                self._updates.append(self._tracker.mark_finished(one, "it was cancelled before it started"))
                self._to_remove.add(one.attempt_id)
        self._run_or_queue(self._client.remove, names, REMOVE_REASON)

    def _save_checkpoint(self, tracked: TrackedJob) -> None:
        job = self._jobs.get(tracked.job_id)
        if job and has_condor_checkpoints(job) and tracked.n_executions:
            place = output_retrieval.job_spool_dir(self._client.get_param("SPOOL"), *tracked.cluster_proc)
            output_retrieval.save_spooled_checkpoint(
                job, self._folder.attempt_folder(tracked.job_id, tracked.attempt_id), place
            )

    def _clusters_without_others(self, tracked_jobs: Sequence[TrackedJob]) -> set[int]:
        """The clusters in which nobody else is left."""
        names = {one.attempt_id for one in tracked_jobs}
        return {
            cluster
            for cluster in {one.cluster_proc[0] for one in tracked_jobs}
            if self._tracker.unfinished_attempts(cluster) <= names
        }

    def _run_or_queue(self, action: QueueAction, names: Sequence[str], reason: str) -> None:
        """Acts on jobs; if the schedd gives no answer, until it does. All of them can be repeated."""
        if names:
            self._pending_actions.append((action, names, reason))
            self._run_pending_actions()

    def _run_pending_actions(self) -> None:
        """One that fails goes to the end of the line: it may be the one thing that the schedd never does."""
        while self._pending_actions and time.monotonic() >= self._retry_at:
            act, names, reason = errand = self._pending_actions.pop(0)
            try:
                act(names, reason)
            except ScheddUnreachableError:
                self._pending_actions.append(errand)
                self._retry_at = time.monotonic() + _RETRY_INTERVAL_S
                return


def _group_by_overrides(requests: Iterable[SubmitRequest]) -> Iterable[list[SubmitRequest]]:
    """Those whose attempts get the same: they can share a description."""
    found: dict[Overrides, list[SubmitRequest]] = {}
    for ticket in requests:
        found.setdefault(ticket.overrides, []).append(ticket)
    return found.values()


def _waiting_update(request: SubmitRequest, reason: str) -> AttemptUpdate:
    glimpse = waiting_progress(request.attempt_id, f"{reason}; this is tried again" if reason else "")
    return AttemptUpdate(request.attempt_id, request.job.id, "queued", progress=glimpse)


def _all_updates(tracked: TrackedJob) -> list[AttemptUpdate]:
    """All that happened to it, and how it stands."""
    if tracked.is_finished:
        return list(tracked.updates)
    return [
        *tracked.updates,
        AttemptUpdate(tracked.attempt_id, tracked.job_id, tracked.status, tracked.native_id, tracked.site),
    ]
