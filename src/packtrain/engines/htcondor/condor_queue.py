"""What only the queue knows: submissions that the log has not told of yet, how far running jobs are, and jobs that
left without a word in the log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packtrain.engines.api import AttemptUpdate
from packtrain.engines.htcondor.condor_client import CondorClient, ScheddUnreachableError
from packtrain.engines.htcondor.job_tracker import TrackedJob
from packtrain.errors import UnavailableError

_JOB_STATUS_RUNNING = 2
_ID_ATTRIBUTES = ("ClusterId", "ProcId", "PacktrainAttempt")
_PROGRESS_ATTRIBUTES = {
    "stage": "PacktrainStage",
    "done": "PacktrainDone",
    "total": "PacktrainTotal",
    "epoch": "PacktrainEpoch",
    "step": "PacktrainStep",
    "loss": "PacktrainLoss",
    "metric": "PacktrainMetrics",
    "tail": "PacktrainLogTail",
    "seen": "PacktrainUpdateCount",
}
_JSON_FIELDS = ("metric", "tail")
_ENDED_STAGE = "ended"  # no stage, but what an agent says of itself before the pool has brought its outputs home
_CHIRP_PREFIX = "Chirp"  # the prefix of attributes where a pool allows delayed updates only
_MIN_QUERY_INTERVAL_S, _MAX_QUERIED_JOBS_PER_S = 2.0, 100.0
_VANISHED_CHECK_INTERVAL_S = 30.0
JobExit = tuple[str, int | None, str]  # detail, exit code, kind


class CondorQueue:
    def __init__(self, run_id: str, n_jobs: int, client: CondorClient) -> None:
        self._run_id, self._client = run_id, client
        self._run_constraint = f'PacktrainRun == "{run_id}" && PacktrainAttempt =!= undefined'
        self._query_interval_s = max(_MIN_QUERY_INTERVAL_S, n_jobs / _MAX_QUERIED_JOBS_PER_S)
        self._next_progress_at = self._next_vanished_check_at = 0.0
        self._last_progress: dict[str, Mapping[str, Any]] = {}
        self._missing: set[str] = set()

    def list_clusters(self) -> list[tuple[int, str]]:
        """Each cluster with the decision of its first item. Raises UnreachableError."""
        ads = self._client.query(self._run_constraint, _ID_ATTRIBUTES, include_clusters=True)
        first = {(ad["ClusterId"]): ad["PacktrainAttempt"] for ad in ads if ad.get("ProcId", -1) in (-1, 0)}
        return sorted(first.items())

    def poll_progress(self, tracked_jobs: Sequence[TrackedJob]) -> list[AttemptUpdate]:
        """One question for the whole run, every few seconds; only what is new."""
        now = time.monotonic()
        running = {one.attempt_id: one for one in tracked_jobs if one.is_running}
        if not running or now < self._next_progress_at:
            return []
        self._next_progress_at = now + self._query_interval_s
        names = [name for word in _PROGRESS_ATTRIBUTES.values() for name in (word, _CHIRP_PREFIX + word)]
        ads = self._query_or_empty(
            f"{self._run_constraint} && JobStatus == {_JOB_STATUS_RUNNING}", [*_ID_ATTRIBUTES, *names]
        )
        return list(self._progress_updates(ads, running))

    def _progress_updates(
        self, ads: Sequence[Mapping[str, Any]], running_jobs: Mapping[str, TrackedJob]
    ) -> Iterator[AttemptUpdate]:
        for ad in ads:
            one = running_jobs.get(str(ad.get("PacktrainAttempt")))
            words = _parse_progress(ad)
            if one and words and self._last_progress.get(one.attempt_id) != words:
                self._last_progress[one.attempt_id] = words
                glimpse = {"attempt": one.attempt_id, **words}
                yield AttemptUpdate(one.attempt_id, one.job_id, "running", one.native_id, one.site, progress=glimpse)

    def find_vanished(self, tracked_jobs: Sequence[TrackedJob]) -> list[tuple[TrackedJob, JobExit]]:
        """Those that are not in the queue twice in a row, though the log says nothing of their end."""
        now = time.monotonic()
        made = [one for one in tracked_jobs if one.is_materialized]
        if not made or now < self._next_vanished_check_at:
            return []
        self._next_vanished_check_at = now + max(_VANISHED_CHECK_INTERVAL_S, self._query_interval_s)
        try:
            there = {str(ad.get("PacktrainAttempt")) for ad in self._client.query(self._run_constraint, _ID_ATTRIBUTES)}
        except UnavailableError:
            return []
        missing = {one.attempt_id for one in made} - there
        lost = [one for one in made if one.attempt_id in missing & self._missing]
        self._missing = missing
        return [(one, self._exit_from_history(one)) for one in lost]

    def _exit_from_history(self, tracked: TrackedJob) -> JobExit:
        cluster, proc = tracked.cluster_proc
        found = self._query_history(f"ClusterId == {cluster} && ProcId == {proc}")
        if not found:
            return "it vanished from the queue without a word in its log", None, ""
        code, reason = found[0].get("ExitCode"), found[0].get("RemoveReason")
        kind = "cancelled" if found[0].get("JobStatus") == 3 else ""
        return str(reason or f"the agent ended with exit code {code}"), code, kind

    def _query_history(self, constraint: str) -> list[dict[str, Any]]:
        try:
            return self._client.query_history(constraint, ("ExitCode", "RemoveReason", "JobStatus"), 1)
        except UnavailableError:
            return []

    def _query_or_empty(self, constraint: str, projection: Sequence[str]) -> list[dict[str, Any]]:
        """How far jobs are is nice to know, no more."""
        try:
            return self._client.query(constraint, projection)
        except ScheddUnreachableError:
            return []


def _parse_progress(ad: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, attribute in _PROGRESS_ATTRIBUTES.items():
        value = ad.get(attribute, ad.get(_CHIRP_PREFIX + attribute))
        if name in _JSON_FIELDS and isinstance(value, str):
            value = _parse_json(value)
        if value is not None:
            found[name] = value
    if found.get("stage") == _ENDED_STAGE:
        del found["stage"]
    return found


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
