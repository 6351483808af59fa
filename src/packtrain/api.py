"""The Python API: submit runs, follow them and get their results. `import packtrain` exports it lazily.

The command line and this module call the same functions (`submission`, `runs`, `services`) and raise the same errors.
"""

from __future__ import annotations

import subprocess
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packtrain import services
from packtrain.errors import NotFoundError, UnavailableError, UsageError
from packtrain.events import Event
from packtrain.plan import Digest
from packtrain.runs import control
from packtrain.runs.logs import JobLogReader
from packtrain.state import JobState, RunState
from packtrain.state.run import run_status
from packtrain.store import RunInfo
from packtrain.views.event_feed import EventFeed

if TYPE_CHECKING:  # slow to import
    from rich.console import Console, ConsoleOptions, RenderableType

    from packtrain.report.build import Report
    from packtrain.runs.outputs import Outputs
    from packtrain.submission.load_workflow import WorkflowSource

_POLL_INTERVAL_S = 0.1
_COLLECT_INTERVAL_S = 2.0  # a run without a supervisor: how often its engine is asked at most

# Supervisors that stop their run when this process ends. Also keeps the pipes open on which they depend.
_owned_supervisors: dict[str, subprocess.Popen[bytes]] = {}


def submit(
    workflow: WorkflowSource,
    *,
    engine: str = "local",
    matrix: Mapping[str, Sequence[Any]] | None = None,
    detach: bool = False,
    expect: Sequence[str] = (),
    no_container: bool = False,
    no_gpu: bool = False,
    offline: bool = False,
    notify: str | None = None,
) -> Run:
    """Start a run of a workflow, as `packtrain run` does, and return without waiting for it.

    A process in the background supervises the run. By default it belongs to this process: when this process ends, in
    whatever way, the attempts save their checkpoints and stop, and `resume` continues the run later. Ctrl-C and
    interrupting a notebook's cell end a `wait`, not the run. With `detach` the run does not depend on this process; on
    HTCondor its supervisor is then a job of the access point.

    Warnings about the workflow are issued as Python warnings.

    Args:
        workflow: The path of a workflow file, submit file or batch script, or a mapping with the keys of a workflow.
        engine: Where the jobs run: `local`, `htcondor` or `slurm`.
        matrix: Replaces the matrix of the workflow, for example `{"lr": [0.1, 0.01]}`.
        detach: Whether the run continues when this process ends.
        expect: Files that the outputs must contain, in addition to those of the workflow.
        no_container: Run every step on the host.
        no_gpu: Run without the GPUs that the workflow requests.
        offline: Do not query the sizes of the inputs first.
        notify: A command to run, or a URL to send JSON to, when the run ends.

    Returns:
        The run.

    Raises:
        WorkflowError: The workflow has errors; `diagnostics` lists them with their lines.
        UsageError: The engine is unknown or not installed, or an argument is invalid.
        FailedError: A streamed input could not be indexed.
        UnavailableError: The supervisor could not be started.
    """
    from packtrain.submission import create_run, prepare

    store = services.open_store()
    submission = prepare(
        workflow,
        engine,
        matrix=matrix,
        expect=tuple(expect),
        no_container=no_container,
        no_gpu=no_gpu,
        offline=offline,
        detach=detach,
        site_history=services.load_site_history(store, engine),
    )
    for diagnostic in submission.diagnostics:
        warnings.warn(str(diagnostic), stacklevel=2)
    run_info = create_run(submission, store, _check_notify_target(notify))
    run = Run(run_info)
    run._start_supervisor(reopen=False, detach=detach)
    return run


def _check_notify_target(notify: str | None) -> str | None:
    from packtrain.notifications import validate_target

    try:
        return None if notify is None else validate_target(notify)
    except ValueError as error:
        raise UsageError(f"notify: {error}") from None


def get_run(id: str = "") -> Run:  # noqa: A002 (the natural name of the argument)
    """Return a run that was started before, by this or any other process.

    Args:
        id: The id of the run, or the beginning of it. Without it, the newest run, preferably of this folder.

    Returns:
        The run.

    Raises:
        NotFoundError: There is no such run.
        UsageError: Runs of several workflows begin with `id`.
    """
    return Run(services.find_run(services.open_store(), id))


def list_runs(limit: int | None = None) -> list[Run]:
    """Return the user's runs, the newest first.

    Args:
        limit: The maximum number of runs; None for all.

    Returns:
        The runs.
    """
    return [Run(run_info) for run_info in reversed(services.open_store().list_runs())][:limit]


def fetch(
    urls: str | Sequence[str],
    path: str | Path,
    *,
    sha256: str | None = None,
    unpack: bool = False,
    force: bool = False,
    token: str | None = None,
    retry_timeout_s: float = 10.0,
) -> Path:
    """Download a file as `packtrain get` does: over many connections, from all its sources, resumed and verified.

    Args:
        urls: The URL of the file (https, http, osdf, pelican, s3 or file), or several URLs of the same file.
        path: The file to create; in a folder that exists, it gets the name that the URL has.
        sha256: The digest that the file must have, in hexadecimal or base64.
        unpack: Unpack the archive into the folder `path`, which must be new or empty.
        force: Replace the file if it exists. Otherwise it is verified, and downloaded only if it does not exist.
        token: A bearer token for the host of the first URL.
        retry_timeout_s: How long to retry when all sources fail.

    Returns:
        The path of the file, or of the folder with the unpacked archive.

    Raises:
        FailedError: The file could not be downloaded, verified or unpacked.
        UsageError: An argument is invalid, or another file is at `path`.
    """
    from packtrain.data.credentials import CredentialOptions
    from packtrain.data.download import check_single_file, download
    from packtrain.transfer.http.digest_headers import parse_digest

    url, *mirrors = [urls] if isinstance(urls, str) else urls
    try:
        digest = None if sha256 is None else Digest("sha256", parse_digest("sha256", sha256))
    except ValueError as error:
        raise UsageError(f"sha256: {error}") from None
    check_single_file([url])
    (result,) = download(
        [url],
        str(path),
        CredentialOptions(token=token),
        mirrors=mirrors,
        digest=digest,
        unpack=unpack,
        force=force,
        retry_timeout_s=retry_timeout_s,
    )
    return result.path


class Run:
    """One submission of a workflow. Properties read the current state; `wait` and `follow` wait for changes.

    Attributes:
        id: The id of the run, for example `cifar10-x7kq`.
        name: The name of the workflow.
        engine: The name of the engine.
        folder: The folder of the run, with its plan and logs.
        created_at: When the run was created, as Unix time.
    """

    def __init__(self, run_info: RunInfo) -> None:
        self._run_info = run_info
        self.id: str = run_info.run
        self.name: str = run_info.name
        self.engine: str = run_info.engine
        self.folder: Path = run_info.folder
        self.created_at: float = run_info.created_at
        self._per_thread = threading.local()  # a connection to the store belongs to one thread
        self._next_collect_at = 0.0

    def __repr__(self) -> str:
        return f"<packtrain.Run {self.id}: {self.status}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def _start_supervisor(self, *, reopen: bool, detach: bool) -> None:
        store = services.open_store()
        if detach:
            control.start_detached_supervisor(self._run_info, store, reopen=reopen)
        else:
            _owned_supervisors[self.id] = control.start_owned_supervisor(self._run_info, store, reopen=reopen)

    def _feed(self) -> EventFeed:
        if not hasattr(self._per_thread, "feed"):
            self._per_thread.store = services.open_store()
            self._per_thread.feed = EventFeed(self._per_thread.store, self.id)
        feed: EventFeed = self._per_thread.feed
        return feed

    def _load_state(self) -> RunState:
        """Return the current state; without a supervisor, ask the engine for news of the attempts first."""
        feed = self._feed()
        feed.poll()
        if not feed.state.is_finished and time.monotonic() > self._next_collect_at:
            self._next_collect_at = time.monotonic() + _COLLECT_INTERVAL_S
            if not self._has_supervisor():
                services.refresh_state(services.open_store(), self._run_info)
                feed.poll()
        return feed.state

    def _has_supervisor(self) -> bool:
        self._feed()
        return services.live_supervisor_lease(self._per_thread.store, self.id) is not None

    @property
    def status(self) -> str:
        """The status: `running`, `succeeded`, `failed`, `cancelled`, or without a supervisor `interrupted`, `orphaned`.

        A run has failed if one of its jobs has failed. An interrupted run was stopped, an orphaned run lost its
        supervisor; `resume` continues both.
        """
        state = self._load_state()
        return run_status(state, state.is_finished or self._has_supervisor())

    @property
    def jobs(self) -> list[Job]:
        """The jobs, in the order of the matrix."""
        return [Job(self, job_id) for job_id in self._load_state().jobs]

    @property
    def job_counts(self) -> dict[str, int]:
        """The number of jobs by status, without statuses that no job has."""
        return dict(Counter(job.status.value for job in self._load_state().jobs.values()))

    def job(self, id: str | int) -> Job:  # noqa: A002
        """Return one job.

        Args:
            id: The id of the job, for example `"0"`.

        Returns:
            The job.

        Raises:
            NotFoundError: The run has no such job.
        """
        if str(id) not in self._load_state().jobs:
            raise NotFoundError(f"the run {self.id} has no job {str(id)!r}; `packtrain ps {self.id}` lists them")
        return Job(self, str(id))

    def done(self) -> bool:
        """Return whether every job has a result."""
        return self._load_state().is_finished

    def wait(self, timeout: float | None = None) -> str:
        """Wait until every job has a result, or until the run has no supervisor any more.

        Args:
            timeout: The maximum number of seconds to wait; None for no limit.

        Returns:
            The status.

        Raises:
            TimeoutError: The run has not ended within `timeout`.
            UnavailableError: The supervisor that this process started has failed.
        """
        for _ in self._until_ended(timeout):
            pass
        return self.status

    def follow(self, timeout: float | None = None) -> Iterator[Event]:
        """Yield the events of the run from its beginning, like `tail -f`, until the run has ended.

        Args:
            timeout: The maximum number of seconds to wait; None for no limit.

        Yields:
            Events with `job`, `kind` and `data`; docs/formats/events.md lists the kinds.

        Raises:
            TimeoutError: The run has not ended within `timeout`.
            UnavailableError: The supervisor that this process started has failed.
        """
        feed = EventFeed(services.open_store(), self.id)
        for _ in self._until_ended(timeout):
            yield from feed.poll()
        yield from feed.poll()

    def show(self, timeout: float | None = None) -> str:
        """Show the jobs and their progress until the run has ended: in a notebook's cell, or in the terminal.

        Args:
            timeout: The maximum number of seconds to wait; None for no limit.

        Returns:
            The status.

        Raises:
            TimeoutError: The run has not ended within `timeout`.
            UnavailableError: The supervisor that this process started has failed.
        """
        from packtrain.views.live_display import open_live_display

        with open_live_display(self) as update:
            for _ in self._until_ended(timeout):
                update()
        return self.status

    def _until_ended(self, timeout: float | None) -> Iterator[None]:
        """Yield repeatedly while the run is running, and once more."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            has_supervisor = self._has_supervisor()
            yield
            if not has_supervisor or (self._load_state().is_finished and self.id not in _owned_supervisors):
                break
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"the run {self.id} has not ended within {timeout:g} s")
            time.sleep(_POLL_INTERVAL_S)
        self._reap_supervisor()
        yield

    def _reap_supervisor(self) -> None:
        process = _owned_supervisors.pop(self.id, None)
        if process is None:
            return
        with process:  # closes the pipe and waits
            pass
        if process.returncode and not self._load_state().is_finished:
            raise UnavailableError(f"the supervisor of {self.id} failed: {control.last_log_line(self._run_info)}")

    def cancel(self, reason: str = "", *, wait: bool = True) -> None:
        """Cancel all jobs that have no result. Attempts get SIGTERM and their grace period; outputs are kept.

        Args:
            reason: Stored with the results of the jobs.
            wait: Wait until the jobs are cancelled, for two minutes at most.
        """
        store = services.open_store()
        jobs = control.find_jobs_to_cancel(store, self._run_info)
        problem = control.cancel_jobs(store, self._run_info, jobs, reason, wait=wait) if jobs else ""
        if problem:
            warnings.warn(problem, stacklevel=2)
        if wait and self.done():
            self._reap_supervisor()

    def resume(self, *, detach: bool = False) -> Run:
        """Continue a run without a supervisor: live attempts are found again, jobs that did not succeed are retried.

        Args:
            detach: Whether the run continues when this process ends.

        Returns:
            This run. If every job has succeeded, nothing is done.

        Raises:
            UnavailableError: The run already has a supervisor.
            UsageError: A secret of the workflow cannot be read any more.
        """
        from packtrain.runs.secrets import reload_secrets

        if control.find_jobs_to_resume(services.open_store(), self._run_info):
            reload_secrets(self._run_info)
            self._start_supervisor(reopen=True, detach=detach)
        return self

    def outputs(self, job_id: str | int | None = None) -> Outputs:
        """Return the outputs of the jobs that succeeded: `files` lists them, `download(folder)` copies them.

        Args:
            job_id: Only the outputs of this job.

        Returns:
            The outputs.

        Raises:
            NotFoundError: The run has no such job.
            FailedError: The outputs cannot be listed.
        """
        from packtrain.runs.outputs import list_outputs

        job = None if job_id is None else self.job(job_id).id
        return list_outputs(services.open_store(), self._run_info, job)

    def report(self) -> Report:
        """Return how slot time was used: `stats.useful_share`, `stats.success_rate`, `findings` and more.

        Returns:
            The report; docs/formats/report.md explains the statistics.
        """
        from packtrain.report.build import build_report
        from packtrain.runs.reports import load_job_history

        store = services.open_store()
        return build_report(load_job_history(store, self._run_info, services.refresh_state(store, self._run_info)))

    def to_dict(self) -> dict[str, Any]:
        """Return the run and its jobs as `packtrain ps --json` prints them.

        Returns:
            Values of JSON.
        """
        from packtrain.views.job_json import run_to_json

        return run_to_json(self._run_info, self._load_state(), self._has_supervisor())

    def render(self, width: int = 120, max_rows: int = 20) -> RenderableType:
        """Return the jobs as a table for a terminal, which `rich` can print.

        Args:
            width: Number of columns.
            max_rows: Maximum number of jobs.

        Returns:
            The table.
        """
        from packtrain.views.run_table import render_run
        from packtrain.views.terminal import SafeView

        return SafeView(render_run(self._load_state(), self._has_supervisor(), width, max_rows))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield self.render(options.max_width, max(5, console.height - 4))

    def _repr_html_(self) -> str:
        """Return the jobs as a table for notebooks."""
        from packtrain.views.live_display import render_html

        return render_html(self.render())


@dataclass(frozen=True)
class JobResult:
    """The result of a job.

    Attributes:
        status: `succeeded`, `failed` or `cancelled`.
        failure: The kind of the failure, as in docs/reference/failures.md; "" if the job did not fail.
        message: Why the job has this status: what failed, or why it was cancelled.
        metrics: The last value of each metric that the program logged.
    """

    status: str
    failure: str = ""
    message: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)


class Job:
    """One job of a run. Properties read the current state.

    Attributes:
        id: The id of the job within its run: `0`, `1`, …
        run: The run.
    """

    def __init__(self, run: Run, job_id: str) -> None:
        self.run, self.id = run, job_id

    def __repr__(self) -> str:
        return f"<packtrain.Job {self.run.id}.{self.id}: {self.status}>"

    @property
    def _state(self) -> JobState:
        return self.run._load_state().jobs[self.id]

    @property
    def matrix(self) -> dict[str, str]:
        """The job's values of the matrix."""
        return dict(self._state.point)

    @property
    def status(self) -> str:
        """The status: `waiting`, `queued`, `running`, `held`, `succeeded`, `failed` or `cancelled`."""
        return self._state.status.value

    @property
    def metrics(self) -> dict[str, Any]:
        """The last value of each metric that the program logged, in the newest execution."""
        latest = self._state.latest_execution
        return dict(latest.metrics) if latest else {}

    @property
    def attempts(self) -> int:
        """The number of attempts so far."""
        return self._state.n_attempts

    @property
    def result(self) -> JobResult | None:
        """The result, or None while the job has none."""
        result = self._state.result
        if result is None:
            return None
        failure = result.failure
        message = failure.detail if failure else result.reason
        return JobResult(result.status.value, failure.kind if failure else "", message, self.metrics)

    def logs(self, *, agent: bool = False) -> str:
        """Return the output of the job's steps, of the newest execution.

        Args:
            agent: Return the agent's log instead.

        Returns:
            The text.
        """
        reader = JobLogReader(self.run.folder, agent_logs=agent)
        return "".join(f"{line}\n" for _, line in reader.read_new_lines(self._state, final=True))

    def outputs(self) -> Outputs:
        """Return the outputs of the job, as `Run.outputs` does.

        Returns:
            The outputs; there are none unless the job succeeded.
        """
        return self.run.outputs(self.id)
