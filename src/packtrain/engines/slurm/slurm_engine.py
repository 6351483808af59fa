"""The engine that runs attempts as tasks of Slurm job arrays.

All engine objects of a run find what was submitted and what Slurm reported in the run's folder: the records of the
submissions and the status log. So a new object needs no answer from Slurm to know which attempts exist.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from packtrain.backoff import Backoff
from packtrain.engines.api import Capabilities, SubmitRequest
from packtrain.engines.slurm import submissions
from packtrain.engines.slurm.batch_script import render_batch_script
from packtrain.engines.slurm.run_settings import SETTINGS_FILE, RunSettings
from packtrain.engines.slurm.sbatch_options import merge_options, sbatch_options
from packtrain.engines.slurm.slurm_client import SlurmClient, SlurmUnreachableError, SubmitLimitError
from packtrain.engines.slurm.status_log import REJECTED
from packtrain.engines.slurm.submissions import ArraySubmission, Task
from packtrain.engines.slurm.task_monitor import TaskMonitor
from packtrain.engines.slurm.task_tracker import TrackedTask
from packtrain.engines.updates import AttemptUpdate, Gone, Queued, Running
from packtrain.errors import FailedError
from packtrain.plan import Plan, RunFolder
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
_MAX_RETRY_INTERVAL_S = 300.0
_KILL_MARGIN_S = 10.0
_NODE_LIST_OPTIONS = ("nodelist", "nodefile")


def capabilities_for(plan: Plan) -> Capabilities:
    """Return the capabilities for a run, whose options may name the nodes to use.

    Args:
        plan: The plan of the run.
    """
    return replace(CAPABILITIES, has_pinned_sites=any(option.key in _NODE_LIST_OPTIONS for option in plan.slurm))


class SlurmEngine:
    """Implements `packtrain.engines.api.Engine`. The site of an execution is its node.

    Args:
        plan: The plan of the run.
        folder: The folder of the run, on a file system that the nodes share.
        client: Calls Slurm's commands.
        settings: The settings of the run; None: those in its folder.
        retry_interval_s: How long to wait at first before a controller that did not answer is called again.
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
        self.capabilities = capabilities_for(plan)
        self._plan, self._folder, self._client = plan, folder, client or SlurmClient()
        self._settings = settings or _read_settings(plan, folder)
        self._monitor = TaskMonitor(folder, self._client, self._settings)
        self._queue: dict[str, SubmitRequest] = {}  # attempts that are not in a submission yet
        self._followed: set[str] = set()
        self._updates: list[AttemptUpdate] = []  # not returned by `poll` yet
        self._actions: dict[Callable[[Sequence[str]], None], set[str]] = {}  # attempts by what to do with them
        self._kill_at: dict[str, float] = {}  # monotonic time by cancelled attempt
        self._grace_s = {job.id: job.limits.grace_s for job in plan.jobs}
        self._max_array = self._settings.max_array_tasks  # 0 if unknown
        self._backoff = Backoff(retry_interval_s, _MAX_RETRY_INTERVAL_S)
        self._n_unanswered = 0  # times in a row that Slurm did not answer
        self._call_at = self._submit_at = 0.0  # monotonic; when Slurm may be called, and when arrays may be submitted

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        self._read_files()
        by_attempt_id = self._monitor.tracker.by_attempt_id
        for request in requests:
            self._followed.add(request.attempt_id)
            if request.attempt_id not in by_attempt_id:
                self._queue.setdefault(request.attempt_id, request)
        self._call_slurm(self._submit_queued)
        tracked = (by_attempt_id.get(request.attempt_id) for request in requests)
        return {t.task.attempt_id: native_id for t in tracked if t and (native_id := self._monitor.native_id(t))}

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        self._read_files()
        recovered: list[AttemptUpdate] = []
        for request in requests:
            tracked = self._monitor.tracker.by_attempt_id.get(request.attempt_id)
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
        unfinished = self._monitor.unfinished(attempt_ids)
        self._monitor.record([((tracked.submission, tracked.index), None) for tracked in unfinished])
        self._read_files()
        for tracked in unfinished:
            grace_s = self._grace_s.get(tracked.task.job_id, 0.0)
            kill_s = 2 * grace_s + _KILL_MARGIN_S if tracked.is_running else 0.0
            self._kill_at.setdefault(tracked.task.attempt_id, time.monotonic() + kill_s)
        self._schedule(self._client.terminate, (t.task.attempt_id for t in unfinished if t.is_running))
        self._call_slurm(self._run_actions)

    def release(self, attempt_ids: Sequence[str]) -> None:
        held = (t.task.attempt_id for t in self._monitor.unfinished(attempt_ids) if t.is_held)
        self._schedule(self._client.release, held)
        self._call_slurm(self._run_actions)

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        """Do nothing: the agent has already moved the outputs to their location."""

    def poll(self) -> Sequence[AttemptUpdate]:
        self._call_slurm(self._submit_queued, self._run_actions, self._query)
        self._read_files()
        updates, self._updates = self._updates, []
        return updates

    def wait(self, timeout_s: float) -> None:
        next_at = max(self._monitor.next_query_at, self._call_at)
        time.sleep(max(0.0, min(timeout_s, next_at - time.monotonic())))

    def _read_files(self) -> None:
        self._updates += [update for update in self._monitor.read_files() if update.attempt_id in self._followed]

    def _call_slurm(self, *calls: Callable[[], None]) -> None:
        """Make calls until Slurm does not answer. Then nothing calls it for a while, which grows with each time.

        A command takes up to half a minute to give up, during which the supervisor can do nothing else.
        """
        if time.monotonic() < self._call_at:
            return
        try:
            for call in calls:
                call()
        except SlurmUnreachableError as error:
            self._n_unanswered += 1
            self._call_at = time.monotonic() + self._backoff.delay_s(self._n_unanswered)
            self._report_wait(error)

    def _report_wait(self, error: Exception) -> None:
        """Report why attempts are not in Slurm's queue yet."""
        _logger.info("Slurm does not accept jobs: %s", error)
        waiting = {attempt_id: request.job.id for attempt_id, request in self._queue.items()}
        waiting.update({t.task.attempt_id: t.task.job_id for t in self._monitor.unconfirmed()})
        self._updates += [
            Queued(attempt_id, job_id, reason=f"waits for Slurm: {error}") for attempt_id, job_id in waiting.items()
        ]

    # Submitting

    def _submit_queued(self) -> None:
        if not self._queue or time.monotonic() < self._submit_at:
            return
        groups: dict[tuple[tuple[str, str], ...], list[Task]] = {}
        for request in self._queue.values():
            options = sbatch_options(request.job, request.overrides, self._settings)
            groups.setdefault(tuple(options.items()), []).append(Task(request.attempt_id, request.job.id))
        try:
            for options_key, tasks in groups.items():
                for array_tasks in submissions.split_tasks(tasks, self._array_size()):
                    self._submit_array(array_tasks, dict(options_key))
        except SubmitLimitError as error:
            self._submit_at = time.monotonic() + self._backoff.initial_s
            self._report_wait(error)

    def _array_size(self) -> int:
        if not self._max_array:
            self._max_array = self._client.read_config().max_array_tasks
        return self._max_array

    def _submit_array(self, tasks: tuple[Task, ...], options: Mapping[str, str]) -> None:
        submission = ArraySubmission(submissions.new_name(self._plan.run), tasks)
        script = render_batch_script(submission.name, len(tasks), options, self._folder, self._settings)
        submissions.write_submission(submission, script, self._folder)
        self._monitor.add_submission(submission)
        requests = {task.attempt_id: self._queue.pop(task.attempt_id) for task in tasks}
        try:
            self._call_sbatch(submission)
        except SubmitLimitError:  # the site has refused the array, so its attempts wait for smaller arrays
            self._max_array = max(1, len(tasks) // 2)
            self._monitor.remove_submission(submission)
            self._queue.update(requests)
            raise

    def _call_sbatch(self, submission: ArraySubmission) -> None:
        """Call sbatch. If its answer is lost, the next query shows whether Slurm has the array."""
        script = submissions.script_path(submission, self._folder)
        try:
            try:
                number = self._client.submit(script)
            except FailedError:
                exclude = f"--exclude={merge_options(self._settings.options).get('exclude', '')}"
                excluded = [line for line in script.read_text().splitlines() if line.startswith("#SBATCH --exclude=")]
                if excluded in ([], [f"#SBATCH {exclude}"]):
                    raise
                # No node is left, or one that failed in an earlier run no longer exists: exclude only the user's.
                number = self._client.submit(script, [exclude])
            self._monitor.array_jobs[submission.name] = number
            _logger.debug("submitted %s with %d tasks", submission.name, len(submission.tasks))
        except FailedError as error:
            status = TaskStatus(submission.name, 0, 0, REJECTED, reason=error.detail)
            self._monitor.record([((submission.name, index), status) for index in range(len(submission.tasks))])
            self._read_files()

    # Following

    def _query(self) -> None:
        if not self._monitor.is_query_due:
            return
        self._monitor.query()
        self._n_unanswered = 0
        self._read_files()
        # The answer of sbatch, or sbatch itself, was lost, and Slurm does not have these arrays. If it has one after
        # all, an attempt still runs once: the claim file lets only one agent run it.
        for name in {tracked.submission for tracked in self._monitor.unconfirmed()}:
            self._call_sbatch(self._monitor.submissions[name])

    # Cancelling and releasing

    def _schedule(self, action: Callable[[Sequence[str]], None], attempt_ids: Iterable[str]) -> None:
        self._actions.setdefault(action, set()).update(attempt_ids)

    def _run_actions(self) -> None:
        """Carry out pending actions on tasks whose number is known; they are repeated if Slurm does not answer."""
        now = time.monotonic()
        due = [attempt_id for attempt_id, kill_at in self._kill_at.items() if kill_at <= now]
        self._schedule(self._client.cancel, (t.task.attempt_id for t in self._monitor.unfinished(due)))
        for action, attempt_ids in self._actions.items():
            native_ids = {t.task.attempt_id: self._monitor.native_id(t) for t in self._monitor.unfinished(attempt_ids)}
            ready = {attempt_id: native_id for attempt_id, native_id in native_ids.items() if native_id}
            if ready:
                action(sorted(ready.values()))
            attempt_ids -= ready.keys()
            for attempt_id in ready:
                if action == self._client.cancel:
                    self._kill_at.pop(attempt_id, None)


def _read_settings(plan: Plan, folder: RunFolder) -> RunSettings:
    path = folder.slurm / SETTINGS_FILE
    return RunSettings.read(path) if path.exists() else RunSettings.for_plan(plan)


def _current_status(tracked: TrackedTask) -> list[AttemptUpdate]:
    ids = tracked.task.attempt_id, tracked.task.job_id
    if tracked.gone is not None:
        return []
    return [Running(*ids)] if tracked.is_running else [Queued(*ids)]
