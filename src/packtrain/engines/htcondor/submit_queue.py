"""Attempts that wait until the schedd accepts them.

A schedd whose answer was lost may have accepted a submission. Therefore the queue and the log are read before anything
is submitted again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from packtrain.engines.api import Overrides, SubmitRequest
from packtrain.engines.htcondor import output_retrieval, shell_runner
from packtrain.engines.htcondor.condor_client import CondorClient, RetryTimer, ScheddUnreachableError
from packtrain.engines.htcondor.input_transfer import (
    CondorInput,
    collect_condor_inputs,
    job_for_worker,
    transfer_input_files,
)
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.submit_description import SubmitBatch, render_items, render_submit_description
from packtrain.engines.htcondor.tracking import JobMonitor
from packtrain.engines.updates import Gone, Queued
from packtrain.errors import FailedError
from packtrain.fileutil import atomic_write
from packtrain.plan import Plan, RunFolder, write_plan

_logger = logging.getLogger("packtrain.engines.htcondor")


class SubmitQueue:
    """Submits attempts of one run, as one cluster per set of overrides."""

    def __init__(
        self, plan: Plan, folder: RunFolder, client: CondorClient, monitor: JobMonitor, retry: RetryTimer
    ) -> None:
        self._plan, self._folder, self._client, self._monitor, self._retry = plan, folder, client, monitor, retry
        self._pending: dict[str, SubmitRequest] = {}  # not known to be in the queue
        self._wait_reasons: dict[str, str] = {}  # the reported reason why an attempt is not in the queue yet

    @cached_property
    def _condor_inputs(self) -> list[CondorInput]:
        return collect_condor_inputs(self._plan)

    def add(self, requests: Iterable[SubmitRequest]) -> None:
        """Add attempts that the pool does not have."""
        self._pending.update({r.attempt_id: r for r in requests if not self._monitor.knows(r.attempt_id)})

    def discard(self, attempt_id: str) -> SubmitRequest | None:
        """Return an attempt that waits here, and do not submit it. Its last submission may have been accepted."""
        return self._pending.pop(attempt_id, None)

    def submit(self) -> None:
        """Submit all attempts that wait here, unless the schedd did not answer a moment ago."""
        if not self._pending or not self._retry.is_due:
            return
        try:
            self._find_accepted()
            for group in _group_by_overrides(self._pending.values()):
                self._submit_group(group)
        except ScheddUnreachableError as error:
            _logger.debug("%d attempts wait: %s", len(self._pending), error)
            self._retry.postpone()
            self._report_waiting(f"{error}; packtrain tries again")

    def _find_accepted(self) -> None:
        self._monitor.read_queue()
        self._monitor.read_log()
        self._remove([attempt_id for attempt_id in self._pending if self._monitor.knows(attempt_id)])

    def _submit_group(self, requests: Sequence[SubmitRequest]) -> None:
        try:
            self._submit_cluster(requests)
        except FailedError as error:
            _logger.debug("the schedd rejected %d attempts: %s", len(requests), error.detail)
            self._find_accepted()
            for request in (request for request in requests if request.attempt_id in self._pending):
                gone = Gone(request.attempt_id, request.job.id, failure_kind=error.kind, detail=error.detail)
                self._monitor.add_update(gone)
        self._remove([request.attempt_id for request in requests])

    def _remove(self, attempt_ids: Iterable[str]) -> None:
        """Remove attempts, and clear the reported reasons why they were waiting."""
        for attempt_id in attempt_ids:
            request = self._pending.pop(attempt_id, None)
            if request and self._wait_reasons.pop(attempt_id, ""):
                self._monitor.add_update(Queued(attempt_id, request.job.id, reason=""))

    def _report_waiting(self, reason: str) -> None:
        for attempt_id, request in self._pending.items():
            if self._wait_reasons.get(attempt_id) != reason:
                self._wait_reasons[attempt_id] = reason
                self._monitor.add_update(Queued(attempt_id, request.job.id, reason=reason))

    def _submit_cluster(self, requests: Sequence[SubmitRequest]) -> None:
        """Write the submit files and submit them. Raises FailedError or ScheddUnreachableError."""
        for request in requests:
            self._write_attempt_folder(request)
        first_id, batch = requests[0].attempt_id, self._make_batch(requests)
        items_path = self._folder.htcondor / f"{first_id}.items"
        atomic_write(items_path, render_items(batch), durable=True)  # `recover` reads it
        settings = RunSettings.read(self._folder.htcondor / "run_settings.json")
        settings = replace(settings, disk_mb=math.ceil(settings.disk_mb * batch.overrides.disk_factor))
        description = render_submit_description(batch, self._folder, items_path, settings)
        atomic_write(self._folder.htcondor / f"{first_id}.sub", description)
        cluster = self._client.submit(description)
        _logger.debug("submitted %d attempts as cluster %d, the first is %s", len(requests), cluster, first_id)
        items = [(request.job.id, request.attempt_id) for request in requests]
        self._monitor.tracker.add_cluster(cluster, items, is_materialized=len(requests) == 1)

    def _write_attempt_folder(self, request: SubmitRequest) -> None:
        attempt_folder = self._folder.attempt_folder(request.job.id, request.attempt_id)
        attempt_folder.root.mkdir(parents=True, exist_ok=True)
        if output_retrieval.has_condor_checkpoints(request.job):
            attempt_folder.checkpoint.mkdir(exist_ok=True)
        if request.overrides.fetch_with_agent:
            job = job_for_worker(request.job, self._condor_inputs)
            write_plan(replace(self._plan, jobs=(job,), htcondor=(), slurm=()), attempt_folder.plan)

    def _make_batch(self, requests: Sequence[SubmitRequest]) -> SubmitBatch:
        inputs_dir = self._folder.htcondor / "inputs"
        transfer_inputs = {
            request.attempt_id: (
                *transfer_input_files(request.job, self._condor_inputs, inputs_dir),
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


def _group_by_overrides(requests: Iterable[SubmitRequest]) -> list[list[SubmitRequest]]:
    """Group requests that can share a submit description."""
    groups: dict[Overrides, list[SubmitRequest]] = {}
    for request in requests:
        groups.setdefault(request.overrides, []).append(request)
    return list(groups.values())
