"""Start the supervisor of a run, cancel jobs, and notify the user when a run has ended."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from packtrain import notifications, services
from packtrain.engines.htcondor import supervisor_job
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.errors import UnavailableError, UsageError
from packtrain.events import Event, kinds, new_emitter_id
from packtrain.plan import RunFolder
from packtrain.runs.secrets import delete_secrets
from packtrain.state import JobStatus, RunState
from packtrain.store import RunInfo, SqliteStore

_SUPERVISOR_START_TIMEOUT_S = 60.0  # how long a schedd may take to start the supervisor
_CANCEL_TIMEOUT_S = 120.0
_logger = logging.getLogger(__name__)


def start_detached_supervisor(run_info: RunInfo, store: SqliteStore, *, reopen: bool) -> int:
    """Start a supervisor that outlives this process. Return its process id once it holds the lease."""
    if run_info.engine == "htcondor":
        return _submit_supervisor_job(run_info, store, _supervise_command(run_info, store, reopen))
    return _start_process(run_info, store, _supervise_command(run_info, store, reopen), subprocess.DEVNULL).pid


def submit_slurm_supervisor(run_info: RunInfo, store: SqliteStore, *, reopen: bool) -> str:
    """Submit the supervisor of a run as a Slurm job and return the job's number. It may have to wait for a node.

    Raises:
        UsageError: The run is not on Slurm.
        FailedError: Slurm rejects the job.
        UnavailableError: Slurm does not answer.
    """
    from packtrain.engines.slurm.supervisor_job import submit_supervisor  # imports the settings, which need pydantic

    if run_info.engine != "slurm":
        raise UsageError(f"--detach=job submits a Slurm job, but the run {run_info.run} is on {run_info.engine}")
    folder = RunFolder(run_info.folder)
    environ = {**os.environ, "PACKTRAIN_STORE": str(store.path.absolute())}
    command = [*_supervise_command(run_info, store, reopen), "--in-job"]
    job = submit_supervisor(run_info.run, folder, command, environ, _secret_env_vars(folder))
    _logger.info("the supervisor of %s is the Slurm job %s", run_info.run, job)
    return job


def start_owned_supervisor(run_info: RunInfo, store: SqliteStore, *, reopen: bool) -> subprocess.Popen[bytes]:
    """Start a supervisor in a process that stops the run when this process ends, even if it is killed.

    The supervisor holds the other end of a pipe, which closes with this process.
    """
    command = [*_supervise_command(run_info, store, reopen), "--until-stdin-closes"]
    return _start_process(run_info, store, command, subprocess.PIPE)


def _supervise_command(run_info: RunInfo, store: SqliteStore, reopen: bool) -> list[str]:
    command = [sys.executable, "-m", "packtrain", "supervise", run_info.run]
    if reopen:  # the epoch makes it happen once, even if a schedd restarts the command
        previous = store.get_lease(run_info.run)
        command += ["--reopen-after-epoch", str(previous.epoch if previous else 0)]
    return command


def _start_process(
    run_info: RunInfo, store: SqliteStore, command: Sequence[str], stdin: int
) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "PACKTRAIN_STORE": str(store.path.absolute())}
    with open(RunFolder(run_info.folder).supervisor_log, "ab") as log:
        process = subprocess.Popen(
            command, stdin=stdin, stdout=log, stderr=log, start_new_session=True, cwd="/", env=environ
        )
    while (lease := store.get_lease(run_info.run)) is None or lease.pid != process.pid:
        if process.poll() is not None:
            raise UnavailableError(f"the supervisor of {run_info.run} did not start: {last_log_line(run_info)}")
        time.sleep(0.02)
    _logger.info("the supervisor of %s is process %d, epoch %d", run_info.run, process.pid, lease.epoch)
    return process


def _submit_supervisor_job(run_info: RunInfo, store: SqliteStore, command: list[str]) -> int:
    previous = store.get_lease(run_info.run)
    folder = RunFolder(run_info.folder)
    supervisor_job.reject_getenv(RunSettings.read(folder.htcondor / "run_settings.json"))
    environ = {**os.environ, "PACKTRAIN_STORE": str(store.path.absolute())}
    job = supervisor_job.submit_supervisor(
        run_info.run, folder, [*command, "--in-job"], environ, _secret_env_vars(folder)
    )
    deadline = time.monotonic() + _SUPERVISOR_START_TIMEOUT_S
    while (lease := store.get_lease(run_info.run)) is None or (previous and lease.epoch == previous.epoch):
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"the supervisor of {run_info.run} was submitted as job {job}, but has not started within "
                f"{_SUPERVISOR_START_TIMEOUT_S:g} s; check `condor_q {job}` and {folder.supervisor_log}"
            )
        time.sleep(0.05)
    _logger.info("the supervisor of %s is job %s, epoch %d", run_info.run, job, lease.epoch)
    return lease.pid


def _secret_env_vars(folder: RunFolder) -> set[str]:
    """Return the environment variables that the workflow reads secrets from."""
    from packtrain.planner.credentials.secret_sources import read_secret_sources  # imports pydantic
    from packtrain.spec.secret_references import find_references

    secret_sources, _ = read_secret_sources(folder.secret_sources)
    references = (ref for secret in secret_sources.values() for ref in find_references(secret.text))
    return {reference.name for reference in references if reference.kind == "env"}


def last_log_line(run_info: RunInfo) -> str:
    """Return the last line that a background supervisor of the run wrote."""
    path: Path = RunFolder(run_info.folder).supervisor_log
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("packtrain: ") if lines else f"{path} is empty"


def find_jobs_to_resume(store: SqliteStore, run_info: RunInfo) -> list[str]:
    """Return the jobs that have not succeeded. Raises UnavailableError if the run has a supervisor."""
    lease = services.live_supervisor_lease(store, run_info.run)
    if lease:
        raise UnavailableError(
            f"the run {run_info.run} already has a supervisor (process {lease.pid} on {lease.host}); "
            f"watch it with `packtrain ps -w {run_info.run}`"
        )
    state = services.refresh_state(store, run_info)
    return [job.id for job in state.jobs.values() if job.status is not JobStatus.SUCCEEDED]


def find_jobs_to_cancel(store: SqliteStore, run_info: RunInfo, job_id: str | None = None) -> list[str]:
    """Return the jobs of the run, or the given one, that have no result yet."""
    state = services.refresh_state(store, run_info)
    return [job for job in ([job_id] if job_id else state.jobs) if not state.jobs[job].result]


def cancel_jobs(
    store: SqliteStore, run_info: RunInfo, jobs: Sequence[str], reason: str = "", *, wait: bool = True
) -> str:
    """Cancel jobs: the supervisor ends their attempts. Without a supervisor, this process acts as one.

    Args:
        store: The store.
        run_info: The run.
        jobs: Jobs without a result.
        reason: Stored with the result of the jobs.
        wait: Wait until a live supervisor has cancelled the jobs, for two minutes at most.

    Returns:
        Why the notification of `--notify` could not be sent, or "".
    """
    emitter = new_emitter_id("cli")
    data = {"action": "cancel", "reason": reason}
    now, mono = time.time(), time.monotonic()
    store.append(
        Event(run_info.run, job, emitter, n, kinds.USER_REQUESTED, now, mono, data) for n, job in enumerate(jobs, 1)
    )
    if services.live_supervisor_lease(store, run_info.run) is None:
        state = services.make_supervisor(run_info, store).run(only_requests=True)
        delete_secrets(run_info, state)
        return notify_run_ended(run_info, state)
    deadline = time.monotonic() + _CANCEL_TIMEOUT_S
    while wait and time.monotonic() < deadline and not _have_results(store, run_info.run, jobs):
        time.sleep(0.2)
    return ""


def _have_results(store: SqliteStore, run: str, jobs: Sequence[str]) -> bool:
    state = services.load_state(store, run)
    return all(state.jobs[job].result for job in jobs)


def notify_run_ended(run_info: RunInfo, state: RunState) -> str:
    """Send the notification of `--notify`. Return a message if that failed, else an empty string."""
    return notifications.notify_run_ended(RunFolder(run_info.folder).notify, state, run_info.name, run_info.folder)
