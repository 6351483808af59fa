"""Publishes outputs in threads, so that a slow destination does not hold up the other jobs of a run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from packtrain.plan import Job, Plan, RunFolder
from packtrain.plan.secret_files import read_secret
from packtrain.publication.destination import JobOutputs
from packtrain.publication.intermediate import CheckpointId, ShownOutputs, show_checkpoint, show_synced_files
from packtrain.publication.publish import Publication, publish_outputs
from packtrain.state import Execution, ExecutionStatus, JobState
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.urls import is_federated, is_http, url_scheme

_MAX_WORKERS = 8
_BATCH_S = 0.1  # how long the supervisor waits for further ends, which it then stores together
_MAX_SHOWING = 2  # jobs whose intermediate outputs are copied at once
_MAX_SCANNED_PER_S = 1000  # jobs
_MAX_QUEUED_SHOWS = 50
_SHOW_INTERVAL_S = 5.0  # for each job
_logger = logging.getLogger("packtrain.publication")


class _PublicationCancelled(Exception):
    """The supervisor ends, or a user cancelled the job."""


@dataclass
class _JobTasks:
    """The tasks of one job: at most one at a time shows intermediate outputs, and then one publishes."""

    publication: Future[Publication] | None = None
    showing: Future[None] | None = None
    shown: ShownOutputs = field(default_factory=ShownOutputs)
    next_show_at: float = 0.0
    is_cancelled: bool = False
    is_accepted: bool = False
    reported_errors: set[str] = field(default_factory=set)


class Publisher:
    """Publishes the outputs of a run's jobs, as many at once as the threads allow.

    Args:
        plan: The plan of the run.
        folder: The folder of the run, with its secrets.
        has_shared_folder: Whether attempts write to the destinations of type `file` themselves.
        show_interval_s: Minimum time between two copies of intermediate outputs of one job, in seconds.
        max_parallel_copies: How many objects of one job are copied at once.
    """

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        has_shared_folder: bool,
        show_interval_s: float = _SHOW_INTERVAL_S,
        max_parallel_copies: int = 4,
    ) -> None:
        self._run, self._folder, self._has_shared_folder = plan.run, folder, has_shared_folder
        self._jobs = {job.id: job for job in plan.jobs}
        self._shows_outputs = any(map(self._can_show, plan.jobs))
        self._tasks: dict[str, _JobTasks] = {}
        self._is_closed = False
        self._finished = threading.Event()
        self._pool = ThreadPoolExecutor(_MAX_WORKERS, thread_name_prefix="publish")
        self._show_interval_s, self._max_parallel_copies = show_interval_s, max_parallel_copies
        self._scan_interval_s = max(min(1.0, show_interval_s), len(self._jobs) / _MAX_SCANNED_PER_S)
        self._next_scan_at = 0.0
        self._show_pool = ThreadPoolExecutor(_MAX_SHOWING, thread_name_prefix="show")
        self._is_lease_current: Callable[[], bool] = lambda: True

    def handles(self, job_id: str) -> bool:
        """Return whether the outputs of a job are published here, and not moved by the engine that retrieved them."""
        output = self._jobs[job_id].output
        return output is not None and (url_scheme(output.location.url) != "file" or self._has_shared_folder)

    # Publication

    def start(self, job_id: str, attempt_id: str, emitter: str) -> None:
        """Start to publish the outputs of the accepted attempt, unless that has been started."""
        tasks = self._tasks_of(job_id)
        tasks.is_accepted = True
        if tasks.publication is not None:
            return
        tasks.is_cancelled = False
        outputs, showing = self._make_outputs(self._jobs[job_id], tasks, self._check_running), tasks.showing

        def publish() -> Publication:
            if showing is not None and not showing.cancel():
                showing.exception()  # wait for its end: it must not write after the publication
            return publish_outputs(outputs, attempt_id, emitter)

        tasks.publication = self._pool.submit(publish)
        tasks.publication.add_done_callback(lambda future: self._finished.set())

    def take_result(self, job_id: str) -> Publication | None:
        """Return what was published, or None if that takes longer. Raises FailedError if it failed for good."""
        tasks = self._tasks_of(job_id)
        if tasks.publication is None or not tasks.publication.done():
            return None
        future, tasks.publication = tasks.publication, None
        return future.result()

    def is_publishing(self) -> bool:
        """Return whether any publication has not ended."""
        return self._n_publishing() > 0

    def _n_publishing(self) -> int:
        return sum(tasks.publication is not None for tasks in self._tasks.values())

    def finished_jobs(self) -> list[str]:
        """Return the jobs whose publication has ended and whose result has not been taken."""
        return [job for job, t in self._tasks.items() if t.publication is not None and t.publication.done()]

    def wait(self, timeout_s: float) -> None:
        """Wait until a publication ends, or the timeout expires; and a little longer for others if there are many."""
        if self._finished.wait(timeout_s) and self._n_publishing() > _MAX_WORKERS:
            time.sleep(min(timeout_s, _BATCH_S))
        self._finished.clear()

    def cancel(self, job_id: str) -> None:
        """Stop to publish the outputs of a job."""
        if job_id in self._tasks:
            self._tasks[job_id].is_cancelled, self._tasks[job_id].publication = True, None

    def close(self) -> None:
        """Stop everything. What is not complete is repeated by the next supervisor."""
        self._is_closed = True
        for pool in (self._pool, self._show_pool):
            pool.shutdown(wait=False, cancel_futures=True)

    # Intermediate outputs

    def show_intermediate(self, jobs: Iterable[JobState], is_lease_current: Callable[[], bool]) -> None:
        """Show new intermediate outputs of running jobs. It costs nothing if the workflow has none to show.

        Args:
            jobs: The jobs of the run.
            is_lease_current: Returns whether this process may still act for the run; called before each write.
        """
        now = time.monotonic()
        if not self._shows_outputs or now < self._next_scan_at:
            return
        self._is_lease_current, self._next_scan_at = is_lease_current, now + self._scan_interval_s
        n_showing = sum(tasks.showing is not None for tasks in self._tasks.values())
        for job in jobs:
            tasks = self._tasks_of(job.id)
            if tasks.showing is not None and tasks.showing.done():
                self._report_error(job.id, tasks, tasks.showing)
                tasks.showing, n_showing = None, n_showing - 1
            if (
                n_showing >= _MAX_QUEUED_SHOWS
                or tasks.showing is not None
                or tasks.is_accepted
                or now < tasks.next_show_at
            ):
                continue
            if self._start_to_show(job, tasks):
                tasks.next_show_at, n_showing = now + self._show_interval_s, n_showing + 1

    def _start_to_show(self, job: JobState, tasks: _JobTasks) -> bool:
        planned = self._jobs[job.id]
        if job.result or job.winning_execution or not self._can_show(planned):
            return False
        synced_emitter = _running_emitter(job) if planned.output and planned.output.continuous_sync else ""
        min_step = tasks.shown.checkpoint.step + 1 if tasks.shown.checkpoint else 0
        checkpoint = _newest_checkpoint(job.recent_executions, min_step) if _shows_checkpoints(planned) else None
        if not synced_emitter and checkpoint is None:
            return False
        outputs = self._make_outputs(planned, tasks, self._check_showing)

        def show() -> None:
            if synced_emitter:
                show_synced_files(outputs, synced_emitter, tasks.shown)
            if checkpoint is not None:
                show_checkpoint(outputs, checkpoint, tasks.shown)

        tasks.showing = self._show_pool.submit(show)
        return True

    def _can_show(self, job: Job) -> bool:
        if job.output is None or not self.handles(job.id):
            return False
        url = job.output.location.url  # a federation's objects never change, and an http URL holds one file
        return (_shows_checkpoints(job) or job.output.continuous_sync) and not (is_http(url) or is_federated(url))

    def _report_error(self, job_id: str, tasks: _JobTasks, showing: Future[None]) -> None:
        """Log each error once: what is not shown will be published in the end."""
        error = None if showing.cancelled() else showing.exception()
        if error is None or isinstance(error, _PublicationCancelled) or str(error) in tasks.reported_errors:
            return
        tasks.reported_errors.add(str(error))
        _logger.warning("job %s: intermediate outputs are not shown: %s", job_id, error)

    # What tasks need

    def _tasks_of(self, job_id: str) -> _JobTasks:
        return self._tasks.setdefault(job_id, _JobTasks())

    def _make_outputs(self, job: Job, tasks: _JobTasks, check: Callable[[_JobTasks], None]) -> JobOutputs:
        resolve_secret = _secret_resolver(self._folder)
        return JobOutputs(self._run, job, self._folder, resolve_secret, lambda: check(tasks), self._max_parallel_copies)

    def _check_running(self, tasks: _JobTasks) -> None:
        if self._is_closed or tasks.is_cancelled:
            raise _PublicationCancelled

    def _check_showing(self, tasks: _JobTasks) -> None:
        if self._is_closed or tasks.is_accepted or not self._is_lease_current():
            raise _PublicationCancelled


def _shows_checkpoints(job: Job) -> bool:
    return job.checkpoint is not None and job.checkpoint.is_in_output


def _running_emitter(job: JobState) -> str:
    """Return the agent of the newest execution if it runs, or ""."""
    newest = job.executions[-1] if job.executions else None
    return newest.emitter if newest is not None and newest.status is ExecutionStatus.RUNNING else ""


def _newest_checkpoint(executions: Iterable[Execution], min_step: int) -> CheckpointId | None:
    checkpoints = [
        CheckpointId(e.checkpoint_step, e.emitter, int(e.checkpoint["generation"]))
        for e in executions
        if e.emitter and e.checkpoint_step >= min_step and isinstance(e.checkpoint.get("generation"), int)
    ]
    return max(checkpoints, key=lambda checkpoint: checkpoint.step, default=None)


def _secret_resolver(folder: RunFolder) -> SecretResolver:
    return lambda value: value if isinstance(value, str) else read_secret(folder.secrets, value.name)
