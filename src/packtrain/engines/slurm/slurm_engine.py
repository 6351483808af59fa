"""The engine that runs attempts as tasks of Slurm job arrays.

All engine objects of a run find what was submitted and what Slurm reported in the run's folder: the records of the
submissions and the status log. So a new object needs no answer from Slurm to know which attempts exist.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from packtrain.engines.api import Capabilities, SubmitRequest
from packtrain.engines.slurm import submissions
from packtrain.engines.slurm.batch_script import render_batch_script
from packtrain.engines.slurm.run_settings import SETTINGS_FILE, RunSettings
from packtrain.engines.slurm.sbatch_options import sbatch_options
from packtrain.engines.slurm.slurm_client import SlurmClient, SlurmUnreachableError, SubmitLimitError
from packtrain.engines.slurm.status_log import LOST, REJECTED, StatusLog, StatusRecord
from packtrain.engines.slurm.submissions import ArraySubmission, Task
from packtrain.engines.slurm.task_tracker import TaskTracker, TrackedTask
from packtrain.engines.updates import AttemptUpdate, Gone, Queued, Running
from packtrain.errors import FailedError, UnavailableError
from packtrain.events import FAILURE_KINDS, JournalReader, kinds
from packtrain.plan import Plan, RunFolder
from packtrain.slurm.job_states import JobPhase, state_meaning
from packtrain.slurm.squeue import TaskStatus

CAPABILITIES = Capabilities(
    name="slurm",
    supports_containers=True,
    cpus=1 << 20,
    memory_mb=1 << 40,
    gpus=1 << 20,
    poll_interval_s=2.0,
    has_multiple_sites=True,
)
_logger = logging.getLogger("packtrain.engines.slurm")
_ALREADY_CLAIMED = FAILURE_KINDS["already_claimed"].exit_code
_MANY_TASKS = 1000  # with more unfinished tasks Slurm is queried less often
_MANY_TASKS_FACTOR = 3
_MAX_MISSING = 2  # queries without a task before it counts as lost
_KILL_MARGIN_S = 10.0


class SlurmEngine:
    """Implements `packtrain.engines.api.Engine`.

    Args:
        plan: The plan of the run.
        folder: The folder of the run, on a file system that the nodes share.
        client: Calls Slurm's commands.
        settings: The settings of the run; None: those in its folder.
        retry_interval_s: How long to wait before a controller that did not answer is called again.
    """

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        client: SlurmClient | None = None,
        *,
        settings: RunSettings | None = None,
        retry_interval_s: float = 10.0,
    ) -> None:
        self.capabilities = CAPABILITIES
        self._plan, self._folder, self._client = plan, folder, client or SlurmClient()
        self._settings = settings or _read_settings(plan, folder)
        self._retry_interval_s = retry_interval_s
        self._log, self._tracker = StatusLog(folder.slurm / "status.jsonl"), TaskTracker()
        self._known: dict[str, ArraySubmission] = {}  # by name
        self._array_jobs: dict[str, int] = {}  # numbers of the arrays that sbatch or squeue reported, by name
        self._queue: dict[str, SubmitRequest] = {}  # attempts that are not in a submission yet
        self._followed: set[str] = set()
        self._updates: list[AttemptUpdate] = []  # not returned by `poll` yet
        self._missing: defaultdict[str, int] = defaultdict(int)  # queries without the attempt's task
        self._actions: dict[Callable[[Sequence[str]], None], set[str]] = {}  # attempts by what to do with them
        self._kill_at: dict[str, float] = {}  # monotonic time by cancelled attempt
        self._grace_s = {job.id: job.limits.grace_s for job in plan.jobs}
        self._max_array: int | None = None
        self._next_query_at = self._retry_at = 0.0  # monotonic

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        self._read_files()
        for request in requests:
            self._followed.add(request.attempt_id)
            if request.attempt_id not in self._tracker.by_attempt_id:
                self._queue.setdefault(request.attempt_id, request)
        self._submit_queued()
        tracked = (self._tracker.by_attempt_id.get(request.attempt_id) for request in requests)
        return {t.task.attempt_id: native_id for t in tracked if t and (native_id := self._native_id(t))}

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        self._read_files()
        recovered: list[AttemptUpdate] = []
        for request in requests:
            tracked = self._tracker.by_attempt_id.get(request.attempt_id)
            if tracked is not None:
                self._followed.add(request.attempt_id)
                self._updates = [update for update in self._updates if update.attempt_id != request.attempt_id]
                recovered += [*tracked.updates, *_current_status(tracked)]
        return recovered

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        for attempt_id in attempt_ids:
            if request := self._queue.pop(attempt_id, None):
                self._updates.append(
                    Gone(attempt_id, request.job.id, detail="the attempt was cancelled before it started")
                )
        running = self._unfinished(attempt_ids)
        self._log.append([StatusRecord(t.submission, t.index, time.time(), None) for t in running])
        self._read_log()
        for tracked in running:
            grace_s = self._grace_s.get(tracked.task.job_id, 0.0)
            kill_s = 2 * grace_s + _KILL_MARGIN_S if tracked.is_running else 0.0
            self._kill_at.setdefault(tracked.task.attempt_id, time.monotonic() + kill_s)
        self._schedule(self._client.terminate, (t.task.attempt_id for t in running if t.is_running))
        self._run_actions()

    def release(self, attempt_ids: Sequence[str]) -> None:
        self._schedule(self._client.release, (t.task.attempt_id for t in self._unfinished(attempt_ids) if t.is_held))
        self._run_actions()

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        """Do nothing: the agent has already moved the outputs to their location."""

    def poll(self) -> Sequence[AttemptUpdate]:
        self._submit_queued()
        self._run_actions()
        self._read_files()
        if time.monotonic() >= self._next_query_at and self._tracker.unfinished_names():
            self._query()
        updates, self._updates = self._updates, []
        return updates

    def wait(self, timeout_s: float) -> None:
        time.sleep(max(0.0, min(timeout_s, self._next_query_at - time.monotonic())))

    # Submitting

    def _submit_queued(self) -> None:
        if not self._queue or time.monotonic() < self._retry_at:
            return
        groups: dict[tuple[tuple[str, str], ...], list[Task]] = {}
        for request in self._queue.values():
            options = sbatch_options(request.job, request.overrides, self._settings)
            groups.setdefault(tuple(options.items()), []).append(Task(request.attempt_id, request.job.id))
        try:
            for options_key, tasks in groups.items():
                for array_tasks in submissions.split_tasks(tasks, self._array_size()):
                    self._submit_array(array_tasks, dict(options_key))
        except UnavailableError as error:
            self._postpone(error)

    def _array_size(self) -> int:
        if self._max_array is None:
            self._max_array = self._client.read_config().max_array_tasks
        return self._max_array

    def _submit_array(self, tasks: tuple[Task, ...], options: Mapping[str, str]) -> None:
        submission = ArraySubmission(submissions.new_name(self._plan.run), tasks)
        script = render_batch_script(submission.name, len(tasks), options, self._folder, self._settings)
        submissions.write_submission(submission, script, self._folder)
        self._add_submission(submission)
        requests = {task.attempt_id: self._queue.pop(task.attempt_id) for task in tasks}
        try:
            self._call_sbatch(submission)
        except SubmitLimitError:  # the site has refused the array, so its attempts wait for smaller arrays
            self._max_array = max(1, len(tasks) // 2)
            self._remove_submission(submission)
            self._queue.update(requests)
            raise

    def _call_sbatch(self, submission: ArraySubmission) -> None:
        """Call sbatch. If its answer is lost, the next query shows whether Slurm has the array."""
        try:
            self._array_jobs[submission.name] = self._client.submit(submissions.script_path(submission, self._folder))
            _logger.debug("submitted %s with %d tasks", submission.name, len(submission.tasks))
        except FailedError as error:
            status = TaskStatus(submission.name, 0, 0, REJECTED, reason=error.detail)
            self._log.append(
                [StatusRecord(submission.name, i, time.time(), status) for i in range(len(submission.tasks))]
            )
            self._read_log()

    def _postpone(self, error: UnavailableError) -> None:
        self._retry_at = time.monotonic() + self._retry_interval_s
        _logger.info("Slurm does not answer: %s", error)
        waiting = {**{a: r.job.id for a, r in self._queue.items()}}
        waiting.update({t.task.attempt_id: t.task.job_id for t in self._unconfirmed()})
        self._updates += [Queued(a, job_id, reason=f"waits for Slurm: {error}") for a, job_id in waiting.items()]

    def _unconfirmed(self) -> list[TrackedTask]:
        """Return the tasks of submissions that Slurm has not confirmed."""
        return [t for t in self._tracker.unfinished() if t.status is None and t.submission not in self._array_jobs]

    # Following

    def _query(self) -> None:
        names = self._tracker.unfinished_names()
        factor = _MANY_TASKS_FACTOR if len(self._tracker.unfinished()) > _MANY_TASKS else 1
        self._next_query_at = time.monotonic() + factor * self._settings.query_interval_s
        try:
            statuses = self._client.query(names)
        except SlurmUnreachableError as error:
            _logger.info("Slurm does not answer: %s", error)
            return
        newest = _newest_statuses(statuses)
        for status in newest.values():
            self._array_jobs[status.name] = status.array_job
        now = time.time()
        records = [
            StatusRecord(name, index, now, status)
            for (name, index), status in newest.items()
            if (tracked := self._tracker.find(name, index)) and tracked.gone is None and tracked.status != status
        ]
        records += self._lost_records(newest, now)
        self._log.append(records)
        self._read_log()
        self._resubmit_unconfirmed()

    def _lost_records(self, statuses: Mapping[tuple[str, int], TaskStatus], now: float) -> list[StatusRecord]:
        """Return records for tasks that Slurm no longer knows: they ended, were cancelled, or were lost in a crash."""
        records = []
        for tracked in self._tracker.unfinished():
            key, attempt_id = (tracked.submission, tracked.index), tracked.task.attempt_id
            if key in statuses or tracked.submission not in self._array_jobs:
                self._missing.pop(attempt_id, None)
                continue
            self._missing[attempt_id] += 1
            if self._missing[attempt_id] >= _MAX_MISSING or tracked.is_cancelled:
                array_job = self._array_jobs[tracked.submission]
                status = TaskStatus(*key[:1], array_job, tracked.index, LOST, exit_code=self._agent_exit_code(tracked))
                records.append(StatusRecord(*key, now, status))
        return records

    def _agent_exit_code(self, tracked: TrackedTask) -> int | None:
        """Return the exit code that the agent wrote into its journal, or None if it did not report its end."""
        journal = self._folder.attempt_folder(tracked.task.job_id, tracked.task.attempt_id).journal
        ends = [event for event in JournalReader(journal).read() if event.kind == kinds.AGENT_ENDED]
        return ends[-1].data.get("exit_code") if ends else None

    def _resubmit_unconfirmed(self) -> None:
        """Submit arrays again that Slurm does not have: the answer of sbatch, or sbatch itself, was lost.

        If Slurm has the array after all, an attempt runs once: the claim file lets only one agent run it.
        """
        if time.monotonic() < self._retry_at:
            return
        try:
            for name in {tracked.submission for tracked in self._unconfirmed()}:
                self._call_sbatch(self._known[name])
        except UnavailableError as error:
            self._postpone(error)

    def _read_files(self) -> None:
        for submission in submissions.read_submissions(self._folder, self._known):
            self._add_submission(submission)
        self._read_log()

    def _add_submission(self, submission: ArraySubmission) -> None:
        self._known[submission.name] = submission
        self._tracker.add_submission(submission)

    def _remove_submission(self, submission: ArraySubmission) -> None:
        submissions.remove_submission(submission, self._folder)
        self._known.pop(submission.name)
        self._tracker.remove_submission(submission)

    def _read_log(self) -> None:
        for record in self._log.read():
            if record.status and record.status.array_job:
                self._array_jobs.setdefault(record.name, record.status.array_job)
            self._updates += [u for u in self._tracker.apply(record) if u.attempt_id in self._followed]

    # Cancelling and releasing

    def _unfinished(self, attempt_ids: Iterable[str]) -> list[TrackedTask]:
        tracked = (self._tracker.by_attempt_id.get(attempt_id) for attempt_id in attempt_ids)
        return [t for t in tracked if t and t.gone is None]

    def _schedule(self, action: Callable[[Sequence[str]], None], attempt_ids: Iterable[str]) -> None:
        self._actions.setdefault(action, set()).update(attempt_ids)

    def _run_actions(self) -> None:
        """Carry out pending actions on tasks whose number is known; repeat them later if Slurm does not answer."""
        now = time.monotonic()
        due = [attempt_id for attempt_id, kill_at in self._kill_at.items() if kill_at <= now]
        self._schedule(self._client.cancel, (t.task.attempt_id for t in self._unfinished(due)))
        for action, attempt_ids in self._actions.items():
            native_ids = {t.task.attempt_id: self._native_id(t) for t in self._unfinished(attempt_ids)}
            ready = {attempt_id: native_id for attempt_id, native_id in native_ids.items() if native_id}
            try:
                if ready:
                    action(sorted(ready.values()))
            except SlurmUnreachableError as error:
                _logger.info("Slurm does not answer: %s", error)
                return
            attempt_ids -= ready.keys()
            for attempt_id in ready:
                if action == self._client.cancel:
                    self._kill_at.pop(attempt_id, None)

    def _native_id(self, tracked: TrackedTask) -> str:
        if tracked.status and tracked.status.array_job:
            return tracked.status.native_id
        array_job = self._array_jobs.get(tracked.submission)
        return f"{array_job}_{tracked.index}" if array_job else ""


def _read_settings(plan: Plan, folder: RunFolder) -> RunSettings:
    path = folder.slurm / SETTINGS_FILE
    return RunSettings.read(path) if path.exists() else RunSettings.for_plan(plan)


def _newest_statuses(statuses: Iterable[TaskStatus]) -> dict[tuple[str, int], TaskStatus]:
    """Return one status for each task.

    There are several if an array was submitted twice because the answer of sbatch was lost. The one that runs or
    waits counts; then one whose agent held the claim.
    """

    def rank(status: TaskStatus) -> tuple[bool, bool, int]:
        has_ended = state_meaning(status.state).phase is JobPhase.ENDED
        return not has_ended, status.exit_code != _ALREADY_CLAIMED, status.array_job

    newest: dict[tuple[str, int], TaskStatus] = {}
    for status in sorted(statuses, key=rank):
        newest[status.name, status.index] = status
    return newest


def _current_status(tracked: TrackedTask) -> list[AttemptUpdate]:
    ids = tracked.task.attempt_id, tracked.task.job_id
    if tracked.gone is not None:
        return []
    return [Running(*ids)] if tracked.is_running else [Queued(*ids)]
