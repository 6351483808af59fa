"""Polls the queue of the schedd for what the event log does not contain.

These are submissions that are not in the log yet, the progress of running jobs, and jobs that vanished from the queue
without a final event in the log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from packtrain.engines.htcondor.condor_client import CondorClient, ScheddUnreachableError
from packtrain.engines.htcondor.tracking.tracked_job import TrackedJob
from packtrain.engines.updates import AttemptUpdate, ProgressReported
from packtrain.errors import UnavailableError

_JOB_STATUS_RUNNING, _JOB_STATUS_REMOVED = 2, 3
_ID_ATTRIBUTES = ("ClusterId", "ProcId", "PacktrainAttempt")
_PROGRESS_ATTRIBUTES = {
    "stage": "PacktrainStage",
    "done": "PacktrainDone",
    "total": "PacktrainTotal",
    "epoch": "PacktrainEpoch",
    "step": "PacktrainStep",
    "loss": "PacktrainLoss",
    "metrics": "PacktrainMetrics",
    "log_tail": "PacktrainLogTail",
    "update_count": "PacktrainUpdateCount",
}
_JSON_FIELDS = ("metrics", "log_tail")
_ENDED_STAGE = "ended"  # not a stage: the agent has ended, but the pool has not returned the outputs yet
_CHIRP_PREFIX = "Chirp"  # begins attributes on pools that allow only delayed updates
_MIN_QUERY_INTERVAL_S = 2.0
_MAX_QUERIED_JOBS_PER_S = 100.0
_VANISHED_CHECK_INTERVAL_S = 30.0
JobExit = tuple[str, int | None, str]  # detail, exit code, failure kind


class CondorQueue:
    """The jobs of one run in the queue."""

    def __init__(
        self, run_id: str, n_jobs: int, client: CondorClient, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._monotonic = client, monotonic
        self._run_constraint = f'PacktrainRun == "{run_id}" && PacktrainAttempt =!= undefined'
        self._query_interval_s = max(_MIN_QUERY_INTERVAL_S, n_jobs / _MAX_QUERIED_JOBS_PER_S)
        self._next_progress_at = self._next_vanished_check_at = 0.0  # monotonic
        self._last_progress: dict[str, Mapping[str, Any]] = {}
        self._missing_ids: set[str] = set()  # attempts that the last check did not find

    def list_clusters(self) -> list[tuple[int, str]]:
        """Return each cluster with the attempt id of its first item. Raises ScheddUnreachableError."""
        ads = self._client.query(self._run_constraint, _ID_ATTRIBUTES, include_clusters=True)
        first_ids = {ad["ClusterId"]: ad["PacktrainAttempt"] for ad in ads if ad.get("ProcId", -1) in (-1, 0)}
        return sorted(first_ids.items())

    def poll_progress(self, tracked_jobs: Sequence[TrackedJob]) -> list[AttemptUpdate]:
        """Return new progress of running jobs, with one query for the whole run every few seconds."""
        now = self._monotonic()
        running_jobs = {job.attempt_id: job for job in tracked_jobs if job.is_running}
        if not running_jobs or now < self._next_progress_at:
            return []
        self._next_progress_at = now + self._query_interval_s
        names = [name for attribute in _PROGRESS_ATTRIBUTES.values() for name in (attribute, _CHIRP_PREFIX + attribute)]
        constraint = f"{self._run_constraint} && JobStatus == {_JOB_STATUS_RUNNING}"
        try:
            ads = self._client.query(constraint, [*_ID_ATTRIBUTES, *names])
        except ScheddUnreachableError:  # progress is optional
            return []
        return list(self._progress_updates(ads, running_jobs))

    def _progress_updates(
        self, ads: Sequence[Mapping[str, Any]], running_jobs: Mapping[str, TrackedJob]
    ) -> Iterator[AttemptUpdate]:
        for ad in ads:
            job = running_jobs.get(str(ad.get("PacktrainAttempt")))
            progress = _parse_progress(ad)
            if job and progress and self._last_progress.get(job.attempt_id) != progress:
                self._last_progress[job.attempt_id] = progress
                yield ProgressReported(job.attempt_id, job.job_id, progress=progress)

    def find_vanished(self, tracked_jobs: Sequence[TrackedJob]) -> list[tuple[TrackedJob, JobExit]]:
        """Return jobs that two checks in a row did not find in the queue, though the log has no end event for them."""
        now = self._monotonic()
        jobs = [job for job in tracked_jobs if job.is_materialized]
        if not jobs or now < self._next_vanished_check_at:
            return []
        self._next_vanished_check_at = now + max(_VANISHED_CHECK_INTERVAL_S, self._query_interval_s)
        try:
            ads = self._client.query(self._run_constraint, _ID_ATTRIBUTES)
        except UnavailableError:
            return []
        missing_ids = {job.attempt_id for job in jobs} - {str(ad.get("PacktrainAttempt")) for ad in ads}
        vanished = [job for job in jobs if job.attempt_id in missing_ids & self._missing_ids]
        self._missing_ids = missing_ids
        return [(job, self._exit_from_history(job)) for job in vanished]

    def _exit_from_history(self, job: TrackedJob) -> JobExit:
        cluster, proc = job.cluster_proc
        attributes = ("ExitCode", "RemoveReason", "JobStatus")
        try:
            ads = self._client.query_history(f"ClusterId == {cluster} && ProcId == {proc}", attributes, 1)
        except UnavailableError:
            ads = []
        if not ads:
            return "it vanished from the queue, and its log has no end event", None, ""
        exit_code, reason = ads[0].get("ExitCode"), ads[0].get("RemoveReason")
        failure_kind = "cancelled" if ads[0].get("JobStatus") == _JOB_STATUS_REMOVED else ""
        return str(reason or f"the agent ended with exit code {exit_code}"), exit_code, failure_kind


def _parse_progress(ad: Mapping[str, Any]) -> dict[str, Any]:
    progress = {}
    for name, attribute in _PROGRESS_ATTRIBUTES.items():
        value = ad.get(attribute, ad.get(_CHIRP_PREFIX + attribute))
        if name in _JSON_FIELDS and isinstance(value, str):
            value = _parse_json(value)
        if value is not None:
            progress[name] = value
    if progress.get("stage") == _ENDED_STAGE:
        del progress["stage"]
    return progress


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
