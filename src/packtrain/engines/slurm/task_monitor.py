"""Follows the tasks of a run: knows what was submitted, asks Slurm for their status, and keeps the status log.

One squeue lists all tasks of the run. A task that squeue no longer lists is looked up in the accounting database, if
there is one; else its agent's journal says how it ended.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from packtrain.engines.slurm import submissions
from packtrain.engines.slurm.run_settings import RunSettings
from packtrain.engines.slurm.slurm_client import SlurmClient, SlurmUnreachableError
from packtrain.engines.slurm.status_log import LOST, StatusLog, StatusRecord
from packtrain.engines.slurm.submissions import ArraySubmission
from packtrain.engines.slurm.task_tracker import TaskTracker, TrackedTask
from packtrain.engines.updates import AttemptUpdate
from packtrain.events import FAILURE_KINDS, JournalReader, kinds
from packtrain.plan import RunFolder, claim
from packtrain.slurm.job_states import JobPhase, state_meaning
from packtrain.slurm.squeue import TaskStatus

_logger = logging.getLogger("packtrain.engines.slurm")
_ALREADY_CLAIMED = FAILURE_KINDS["already_claimed"].exit_code
_MANY_TASKS, _MANY_TASKS_FACTOR = 1000, 3  # with this many unfinished tasks Slurm is queried less often by the factor
_MAX_MISSING = 2  # queries without a task before it counts as lost
_MAX_AGENT_WAIT_S = 300.0  # how long a lost task counts as running because its claim is held
_MIN_ESTIMATE_CHANGE_S, _MIN_ESTIMATE_CHANGE = 300.0, 0.2  # smaller changes of an expected start are not logged

Key = tuple[str, int]  # name of the submission, index of the task


class TaskMonitor:
    """The tasks of one run.

    Args:
        folder: The folder of the run.
        client: Calls Slurm's commands.
        settings: The settings of the run.

    Attributes:
        tracker: The tasks and what happened to them.
        array_jobs: Numbers of the arrays that sbatch or squeue reported, by name.
        submissions: All submissions by name.
    """

    def __init__(self, folder: RunFolder, client: SlurmClient, settings: RunSettings) -> None:
        self._folder, self._client, self._settings = folder, client, settings
        self._log, self.tracker = StatusLog(folder.slurm / "status.jsonl"), TaskTracker()
        self.submissions: dict[str, ArraySubmission] = {}
        self.array_jobs: dict[str, int] = {}
        self._missing: defaultdict[Key, int] = defaultdict(int)  # queries without the task
        self._waits_since: dict[Key, float] = {}  # monotonic time since which a lost task's agent is waited for
        self.next_query_at = 0.0  # monotonic

    def read_files(self) -> list[AttemptUpdate]:
        """Read new submissions and new records of the status log, and return the updates that follow from them."""
        for submission in submissions.read_submissions(self._folder, self.submissions):
            self.add_submission(submission)
        updates: list[AttemptUpdate] = []
        for record in self._log.read():
            if record.status and record.status.array_job:
                self.array_jobs.setdefault(record.name, record.status.array_job)
            updates += self.tracker.apply(record)
        return updates

    def add_submission(self, submission: ArraySubmission) -> None:
        """Follow the tasks of a submission."""
        self.submissions[submission.name] = submission
        self.tracker.add_submission(submission)

    def remove_submission(self, submission: ArraySubmission) -> None:
        """Forget a submission that Slurm refused."""
        submissions.remove_submission(submission, self._folder)
        self.submissions.pop(submission.name)
        self.tracker.remove_submission(submission)

    def record(self, tasks: Iterable[tuple[Key, TaskStatus | None]]) -> None:
        """Append to the status log; None stands for a request to cancel."""
        now = time.time()
        self._log.append([StatusRecord(name, index, now, status) for (name, index), status in tasks])

    def native_id(self, tracked: TrackedTask) -> str:
        """Return the name of a task in Slurm, "" if it is not known yet."""
        if tracked.status and tracked.status.array_job:
            return tracked.status.native_id
        array_job = self.array_jobs.get(tracked.submission)
        return f"{array_job}_{tracked.index}" if array_job else ""

    def unfinished(self, attempt_ids: Iterable[str]) -> list[TrackedTask]:
        """Return the tasks of these attempts that have not ended."""
        tracked = (self.tracker.by_attempt_id.get(attempt_id) for attempt_id in attempt_ids)
        return [t for t in tracked if t and t.gone is None]

    def unconfirmed(self) -> list[TrackedTask]:
        """Return the tasks of submissions that Slurm has not confirmed."""
        return [t for t in self.tracker.unfinished() if t.status is None and t.submission not in self.array_jobs]

    @property
    def is_query_due(self) -> bool:
        """Whether enough time has passed since the last query, and there is something to ask for."""
        return time.monotonic() >= self.next_query_at and bool(self.tracker.unfinished_names())

    def query(self) -> None:
        """Ask Slurm for the status of all unfinished tasks, and record what changed.

        Raises:
            SlurmUnreachableError: Slurm does not answer.
        """
        busy_share = min(1.0, len(self.tracker.unfinished()) / _MANY_TASKS)
        factor = 1 + (_MANY_TASKS_FACTOR - 1) * busy_share
        self.next_query_at = time.monotonic() + factor * self._settings.query_interval_s
        found = self._client.query(self.tracker.unfinished_names())
        statuses = choose_statuses(found)
        for status in statuses.values():
            self.array_jobs[status.name] = status.array_job
        self.record([*self._changed_tasks(statuses), *self._ended_tasks(statuses)])
        duplicates = [s.native_id for s in found if not _has_ended(s) and statuses[s.name, s.index] is not s]
        if duplicates:  # the answer of sbatch was lost, so the array was submitted twice
            self._client.cancel(duplicates)

    def _changed_tasks(self, statuses: Mapping[Key, TaskStatus]) -> Iterator[tuple[Key, TaskStatus]]:
        for key, status in statuses.items():
            tracked = self.tracker.find(*key)
            if tracked and tracked.gone is None:
                kept = _keep_estimate(status, tracked.status)
                if _has_ended(status) and status.exit_code == _ALREADY_CLAIMED:
                    # The controller forgot that it had started the task, and started it again.
                    if self._is_agent_alive(tracked):
                        continue
                    kept = replace(status, state=LOST, exit_code=self._agent_exit_code(tracked))
                if kept != tracked.status:
                    yield key, kept

    def _ended_tasks(self, statuses: Mapping[Key, TaskStatus]) -> list[tuple[Key, TaskStatus]]:
        """Return how the tasks ended that Slurm no longer knows: they finished, were cancelled, or lost in a crash."""
        missing = {
            key: tracked
            for tracked in self.tracker.unfinished()
            if (key := (tracked.submission, tracked.index)) not in statuses and tracked.submission in self.array_jobs
        }
        for key in self._missing.keys() - missing:
            del self._missing[key]
            self._waits_since.pop(key, None)
        accounted = self._query_accounting(missing.values())
        ended: list[tuple[Key, TaskStatus]] = []
        for key, tracked in missing.items():
            self._missing[key] += 1
            if key in accounted:
                ended.append((key, accounted[key]))
            elif (self._missing[key] >= _MAX_MISSING or tracked.is_cancelled) and not self._is_agent_alive(tracked):
                exit_code = self._agent_exit_code(tracked)
                ended.append((key, TaskStatus(*key[:1], self.array_jobs[key[0]], key[1], LOST, exit_code=exit_code)))
        return ended

    def _query_accounting(self, tasks: Iterable[TrackedTask]) -> dict[Key, TaskStatus]:
        """Return the tasks that have ended according to the accounting database, if there is one.

        A number may have been given to another job after a crash of the controller, so the name must agree.
        """
        array_jobs = sorted({self.array_jobs[tracked.submission] for tracked in tasks})
        if not array_jobs or not self._settings.has_accounting:
            return {}
        try:
            statuses = self._client.query_accounting(array_jobs)
        except SlurmUnreachableError as error:
            _logger.info("Slurm's accounting does not answer: %s", error)
            return {}
        return {(status.name, status.index): status for status in statuses if _has_ended(status)}

    def _is_agent_alive(self, tracked: TrackedTask) -> bool:
        """Return whether the agent of a task that the controller has lost still holds its claim.

        A file server may keep the lock of a dead node, so the claim counts only for a while.
        """
        waits_since = self._waits_since.setdefault((tracked.submission, tracked.index), time.monotonic())
        folder = self._folder.attempt_folder(tracked.task.job_id, tracked.task.attempt_id)
        has_time = time.monotonic() < waits_since + _MAX_AGENT_WAIT_S
        return has_time and claim.is_claim_held(folder, tracked.started_execution or 1)

    def _agent_exit_code(self, tracked: TrackedTask) -> int | None:
        """Return the exit code that the agent wrote into its journal, or None if it did not report its end."""
        journal = self._folder.attempt_folder(tracked.task.job_id, tracked.task.attempt_id).journal
        ends = [event for event in JournalReader(journal).read() if event.kind == kinds.AGENT_ENDED]
        return ends[-1].data.get("exit_code") if ends else None


def choose_statuses(statuses: Sequence[TaskStatus]) -> dict[Key, TaskStatus]:
    """Return one status for each task.

    There are several if an array was submitted twice because the answer of sbatch was lost. The one that runs or
    waits counts; then one whose agent held the claim.
    """

    def rank(status: TaskStatus) -> tuple[bool, bool, bool, int]:
        meaning = state_meaning(status.state)
        is_pending = meaning.phase is JobPhase.PENDING
        return not _has_ended(status), not is_pending, status.exit_code != _ALREADY_CLAIMED, status.array_job

    chosen: dict[Key, TaskStatus] = {}
    for status in sorted(statuses, key=rank):
        chosen[status.name, status.index] = status
    return chosen


def _has_ended(status: TaskStatus) -> bool:
    return state_meaning(status.state).phase is JobPhase.ENDED


def _keep_estimate(status: TaskStatus, previous: TaskStatus | None) -> TaskStatus:
    """Return the status with the previous estimate of the start if that has hardly changed.

    Slurm's scheduler estimates again all the time, and every change would be a line of the log.
    """
    if previous is None or previous.state != status.state or previous.started_at is None or status.started_at is None:
        return status
    change_s, remaining_s = abs(status.started_at - previous.started_at), max(0.0, status.started_at - time.time())
    is_small = change_s < max(_MIN_ESTIMATE_CHANGE_S, _MIN_ESTIMATE_CHANGE * remaining_s)
    is_pending = state_meaning(status.state).phase is JobPhase.PENDING
    return replace(status, started_at=previous.started_at) if is_pending and is_small else status
