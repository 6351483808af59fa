"""The engine that runs attempts as jobs of an HTCondor pool.

A later engine object finds what was submitted in three places that outlive this one: the saved submit files, the event
log of the run, and the queue of the schedd.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from packtrain.engines.api import Capabilities, SubmitRequest
from packtrain.engines.htcondor import output_retrieval
from packtrain.engines.htcondor.condor_client import CondorClient, RetryTimer
from packtrain.engines.htcondor.job_actions import CANCELLED_DETAIL, JobActions
from packtrain.engines.htcondor.submit_lines import has_site_requirements
from packtrain.engines.htcondor.submit_queue import SubmitQueue
from packtrain.engines.htcondor.tracking import CondorQueue, JobMonitor
from packtrain.engines.updates import AttemptUpdate, Gone
from packtrain.plan import Plan, RunFolder

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


def capabilities_for(plan: Plan) -> Capabilities:
    """Return the capabilities for a run, whose requirements may name the sites to use.

    Args:
        plan: The plan of the run.
    """
    lines = ((line.key, str(line.value)) for line in plan.htcondor)
    return replace(CAPABILITIES, has_pinned_sites=has_site_requirements(lines))


class HtcondorEngine:
    """Implements `packtrain.engines.api.Engine`.

    Args:
        plan: The plan of the run.
        folder: The folder of the run.
        client: Calls the schedd.
        retry_interval_s: How long to wait before a schedd that did not answer is called again.
    """

    def __init__(
        self, plan: Plan, folder: RunFolder, client: CondorClient | None = None, retry_interval_s: float = 5.0
    ) -> None:
        self.capabilities = capabilities_for(plan)
        self._folder = folder
        client, retry = client or CondorClient(), RetryTimer(retry_interval_s)
        self._monitor = JobMonitor(plan, folder, CondorQueue(plan.run, len(plan.jobs), client))
        self._submits = SubmitQueue(plan, folder, client, self._monitor, retry)
        self._actions = JobActions(plan, folder, client, self._monitor, retry)

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        attempt_ids = [request.attempt_id for request in requests]
        self._monitor.read_log()
        self._submits.add(requests)
        self._monitor.follow(attempt_ids)
        self._submits.submit()
        return {job.attempt_id: job.native_id for job in self._monitor.find(attempt_ids)}

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        attempt_ids = [request.attempt_id for request in requests]
        self._monitor.read_log()
        if not all(map(self._monitor.knows, attempt_ids)):
            self._monitor.read_queue()
        self._monitor.follow([job.attempt_id for job in self._monitor.find(attempt_ids)])
        known_jobs = self._monitor.tracker.by_attempt_id.values()
        self._actions.remove_later(j.attempt_id for j in known_jobs if not (j.is_finished or j.n_executions))
        return self._monitor.take_all_updates(self._monitor.find(attempt_ids))

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        for attempt_id in attempt_ids:
            request = self._submits.discard(attempt_id)
            if request:
                self._actions.remove_later([attempt_id])  # the schedd may have accepted it although its answer was lost
                self._monitor.add_update(Gone(attempt_id, request.job.id, detail=CANCELLED_DETAIL))
        self._actions.cancel([job for job in self._monitor.find(attempt_ids) if not job.is_finished])

    def release(self, attempt_ids: Sequence[str]) -> None:
        self._actions.release(self._monitor.find(attempt_ids))

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        for request in requests:
            attempt_folder = self._folder.attempt_folder(request.job.id, request.attempt_id)
            output_retrieval.commit_outputs(request.job, attempt_folder)

    def poll(self) -> Sequence[AttemptUpdate]:
        self._submits.submit()
        self._actions.run_pending()
        updates = self._monitor.poll()
        self._actions.remove_unwanted()
        return updates

    def wait(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        time.sleep(min(timeout_s, _MIN_WAIT_S))
        while time.monotonic() < deadline and not self._monitor.has_news:
            time.sleep(_LOG_POLL_INTERVAL_S)
