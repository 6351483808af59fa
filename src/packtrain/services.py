"""The composition root: connects store, engines and supervisor for the commands.

`submission` builds on it and adds spec and planner, which take half a second to import. Modules that most commands do
not need are imported inside functions.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain import notifications
from packtrain.engines.api import Capabilities, Engine, SubmitRequest
from packtrain.engines.htcondor import CAPABILITIES as HTCONDOR
from packtrain.engines.htcondor import HtcondorEngine, capabilities_for, supervisor_job
from packtrain.engines.htcondor.condor_client import CondorClient
from packtrain.engines.htcondor.run_settings import RunSettings, SitePreferences
from packtrain.engines.local import LocalEngine, capabilities
from packtrain.errors import NotFoundError, PacktrainError, UnavailableError, UsageError
from packtrain.events import Event, kinds, new_emitter_id
from packtrain.plan import Plan, RunFolder, SecretOrStr, read_plan
from packtrain.report.readers.training_curves import TrainingCurves, build_training_curves, format_subtitle
from packtrain.state import RunState
from packtrain.state.site_history import SiteHistory
from packtrain.store import Lease, RunInfo, SqliteStore, store_path
from packtrain.supervise import Collector, Supervisor
from packtrain.supervise.lease import is_holder_alive
from packtrain.supervise.policies import PolicyConfig
from packtrain.transfer.api import SecretResolver

if TYPE_CHECKING:
    from packtrain.engines.htcondor.access_point_checks import AccessPointCheck
    from packtrain.report.build import Report
    from packtrain.report.history import JobHistory  # imported when a report is built

ENGINE_NAMES = ("local", "htcondor")
_SUPERVISOR_START_TIMEOUT_S = 60.0  # how long a schedd may take to start the supervisor


def open_store() -> SqliteStore:
    """Open the user's store of runs."""
    return SqliteStore(store_path())


def engine_capabilities(name: str, plan: Plan | None = None) -> Capabilities:
    """Return the capabilities of an engine, for a plan if given. Raises UsageError for an unknown one."""
    if name not in ENGINE_NAMES:
        raise UsageError(f"there is no engine {name!r}; available are {', '.join(ENGINE_NAMES)}")
    if name == "htcondor":
        return capabilities_for(plan) if plan else HTCONDOR
    return capabilities()


def make_engine(run_info: RunInfo, plan: Plan) -> Engine:
    """Return the engine that a run uses."""
    folder = RunFolder(run_info.folder)
    return HtcondorEngine(plan, folder) if run_info.engine == "htcondor" else LocalEngine(folder)


def make_supervisor(run_info: RunInfo, store: SqliteStore, lease: Lease | None = None) -> Supervisor:
    """Return the supervisor of a run. Acquire `lease` before if the plan is large, since reading it takes a while."""
    folder = RunFolder(run_info.folder)
    plan = read_plan(folder.plan)
    return Supervisor(plan, folder, store, make_engine(run_info, plan), lease=lease)


def notify_run_ended(run_info: RunInfo, state: RunState) -> str:
    """Send the notification of `--notify`. Return a message if that failed, else an empty string."""
    return notifications.notify_run_ended(RunFolder(run_info.folder).notify, state, run_info.name, run_info.folder)


def load_site_history(store: SqliteStore, engine: str = "") -> SiteHistory:
    """Return the history of sites, nodes and caches in earlier runs."""
    return SiteHistory.from_observations(store.observations(), time.time(), engine)


def load_initially_avoided(run_info: RunInfo) -> dict[str, str]:
    """Return the sites and nodes that the run avoids since it was created, with the reasons."""
    path = RunFolder(run_info.folder).htcondor / "run_settings.json"
    preferences = RunSettings.read(path).site_preferences if path.exists() else SitePreferences()
    return {**preferences.avoid_sites, **preferences.avoid_nodes}


def load_policy_config(run_info: RunInfo) -> PolicyConfig:
    """Return the policy configuration of a run, or the defaults if its folder is gone."""
    path = RunFolder(run_info.folder).plan
    if not path.exists():
        return PolicyConfig()
    plan = read_plan(path)
    return PolicyConfig.from_plan(plan, engine_capabilities(run_info.engine, plan))


def start_detached_supervisor(run_info: RunInfo, store: SqliteStore, *, reopen: bool) -> int:
    """Start a supervisor in the background. Return its process id once it holds the lease."""
    command = [sys.executable, "-m", "packtrain", "supervise", run_info.run]
    if reopen:  # the epoch makes it happen once, even if a schedd restarts the command
        previous = store.get_lease(run_info.run)
        command += ["--reopen-after-epoch", str(previous.epoch if previous else 0)]
    if run_info.engine == "htcondor":
        return _submit_supervisor_job(run_info, store, command)
    log = RunFolder(run_info.folder).supervisor_log
    with open(log, "ab") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, cwd="/"
        )
    while not _is_lease_held_by(store, run_info.run, process.pid):
        if process.poll() is not None:
            raise UnavailableError(f"the supervisor of {run_info.run} did not start: {_last_log_line(log)}")
        time.sleep(0.02)
    return process.pid


def _submit_supervisor_job(run_info: RunInfo, store: SqliteStore, command: list[str]) -> int:
    previous = store.get_lease(run_info.run)
    folder = RunFolder(run_info.folder)
    supervisor_job.reject_getenv(RunSettings.read(folder.htcondor / "run_settings.json"))
    environ = {**os.environ, "PACKTRAIN_STORE": str(store.path.absolute())}
    job = supervisor_job.submit_supervisor(
        run_info.run, folder, [*command, "--in-schedd"], environ, _secret_env_vars(folder)
    )
    deadline = time.monotonic() + _SUPERVISOR_START_TIMEOUT_S
    while (lease := store.get_lease(run_info.run)) is None or (previous and lease.epoch == previous.epoch):
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"the supervisor of {run_info.run} was submitted as job {job}, but has not started within "
                f"{_SUPERVISOR_START_TIMEOUT_S:g} s; check `condor_q {job}` and {folder.supervisor_log}"
            )
        time.sleep(0.05)
    return lease.pid


def _secret_env_vars(folder: RunFolder) -> set[str]:
    """Return the environment variables that the workflow reads secrets from."""
    from packtrain.planner.secret_sources import read_secret_sources
    from packtrain.spec.secret_references import find_references

    secret_sources, _ = read_secret_sources(folder.secret_sources)
    references = (ref for secret in secret_sources.values() for ref in find_references(secret.text))
    return {reference.name for reference in references if reference.kind == "env"}


def was_reopened_after(store: SqliteStore, run: str, epoch: int) -> bool:
    """Return True if a supervisor with a later lease epoch has reopened the jobs of the run."""
    decisions = (stored.event.data for stored in store.events(run, kind=kinds.DECISION_MADE))
    return any(data.get("action") == "reopen" and data.get("epoch", 0) > epoch for data in decisions)


def _is_lease_held_by(store: SqliteStore, run: str, pid: int) -> bool:
    lease = store.get_lease(run)
    return lease is not None and lease.pid == pid


def _last_log_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("packtrain: ") if lines else f"{path} is empty"


def reload_secrets(run_info: RunInfo) -> None:
    """Read the secrets of a run again from the sources that the workflow names, before it resumes."""
    from packtrain.planner.secret_sources import read_secret_sources, resolve_secrets, write_secrets

    folder = RunFolder(run_info.folder)
    secret_sources, workflow_dir = read_secret_sources(folder.secret_sources)
    for name, secret in secret_sources.items():
        if secret.is_literal and not (folder.secrets / name).exists():
            raise _literal_secret_error(run_info, name)
    references = {name: secret for name, secret in secret_sources.items() if not secret.is_literal}
    resolved = resolve_secrets(references, workflow_dir)
    if resolved.diagnostics:
        raise UsageError(str(resolved.diagnostics[0]))
    write_secrets(folder.secrets, resolved.values)


def _literal_secret_error(run_info: RunInfo, name: str) -> UsageError:
    return UsageError(
        f"the secret {name} of the run {run_info.run} was written in the workflow itself and was deleted when the run "
        "ended; refer to it as ${env:…} or ${file:…} and run the workflow again"
    )


def delete_secrets(run_info: RunInfo, state: RunState) -> None:
    """Delete the secrets of a run if it is finished."""
    if state.is_finished:
        shutil.rmtree(RunFolder(run_info.folder).secrets, ignore_errors=True)


def make_secret_resolver(run_info: RunInfo) -> SecretResolver:
    """Return a resolver that reads secrets from the run's folder, or else from the sources that the workflow names."""
    from packtrain.planner.secret_sources import read_secret_sources, resolve_secrets, secret_resolver

    folder = RunFolder(run_info.folder)

    def resolve_secret(value: SecretOrStr) -> str:
        if isinstance(value, str):
            return value
        if (folder.secrets / value.name).exists():
            return (folder.secrets / value.name).read_text(encoding="utf-8")
        secret_sources, workflow_dir = read_secret_sources(folder.secret_sources)
        if value.name in secret_sources and secret_sources[value.name].is_literal:
            raise _literal_secret_error(run_info, value.name)
        return secret_resolver(resolve_secrets(secret_sources, workflow_dir).values)(value)

    return resolve_secret


def check_access_point() -> list[AccessPointCheck]:
    """Check the HTCondor pool of this access point."""
    from packtrain.engines.htcondor import access_point_checks

    return list(access_point_checks.check_access_point(CondorClient(), Path.cwd()))


def load_training_curves(store: SqliteStore, state: RunState) -> TrainingCurves:
    """Return the metrics that the jobs of a run reported."""
    return build_training_curves(state, (stored.event for stored in store.events(state.run, kind=kinds.METRIC)))


def save_training_chart(store: SqliteStore, run_info: RunInfo, state: RunState) -> tuple[Path | None, str]:
    """Write the training chart of a finished run. Return its path, or None and a message if that failed.

    Errors are returned, not raised: a missing chart must not fail a run.
    """
    path = RunFolder(run_info.folder).training_chart
    try:
        curves = load_training_curves(store, state)
        if not state.is_finished or not curves.jobs:
            return None, ""
        from packtrain.report.charts.training import save_training_plot

        save_training_plot(curves, path, format_subtitle(state))
    except (ImportError, OSError, RuntimeError, ValueError, PacktrainError) as error:
        return None, f"could not write the chart {path.name}: {error}"
    return path, ""


def load_job_history(store: SqliteStore, run_info: RunInfo, state: RunState) -> JobHistory:
    """Return the history of the jobs of a run, for reports."""
    from packtrain.report.readers.run_store import read_run_history

    plan = RunFolder(run_info.folder).plan
    gpus = {job.id: float(job.resources.gpus) for job in read_plan(plan).jobs} if plan.exists() else {}
    history = read_run_history(state, (stored.event for stored in store.events(run_info.run)), gpus)
    return replace(history, name=run_info.run)  # all runs of a workflow have the workflow's name


def write_run_report(store: SqliteStore, run_info: RunInfo, state: RunState) -> tuple[Report | None, Path | None, str]:
    """Write the report of a run. Return the report and its page, or None and a message if that failed.

    Errors are returned, not raised: a missing report must not fail a run.
    """
    from packtrain.report.build import build_report, write_report

    try:
        report = build_report(load_job_history(store, run_info, state))
        curves = load_training_curves(store, state)
        return report, write_report(report, RunFolder(run_info.folder).report, curves=curves, write_pngs=False), ""
    except Exception as error:
        return None, None, f"could not write the report: {error}"


def find_run(store: SqliteStore, id_prefix: str) -> RunInfo:
    """Find a run by its id or the beginning of it. Without one, return the newest run, preferably of this folder."""
    runs = store.list_runs()
    if not runs:
        raise NotFoundError("there are no runs yet; start one with `packtrain run FILE`")
    if not id_prefix:
        here = [row for row in runs if Path.cwd() in (row.folder, *row.folder.parents)]
        return (here or runs)[-1]
    matches = [row for row in runs if row.run == id_prefix] or [row for row in runs if row.run.startswith(id_prefix)]
    if not matches:
        raise NotFoundError(f"there is no run {id_prefix!r}; `packtrain ps` lists them")
    if len({row.name for row in matches}) > 1:
        raise UsageError(f"{id_prefix!r} matches {', '.join(row.run for row in matches[-5:])}; give more characters")
    return matches[-1]


def find_job(store: SqliteStore, target: str) -> tuple[RunInfo, str | None]:
    """Find RUN or RUN.JOB. The job is None if the target is a run."""
    run, dot, job = target.rpartition(".")
    if dot and any(row.run.startswith(run) for row in store.list_runs()):
        row = find_run(store, run)
        if job not in load_state(store, row.run).jobs:
            raise NotFoundError(f"the run {row.run} has no job {job!r}; `packtrain ps {row.run}` lists them")
        return row, job
    return find_run(store, target), None


def load_state(store: SqliteStore, run: str) -> RunState:
    """Build the state of a run from its stored events and progress."""
    state = RunState(run)
    for stored in store.events(run):
        state.apply(stored.event, stored.received_at)
    state.update_progress(store.progress(run))
    return state


def live_supervisor_lease(store: SqliteStore, run: str) -> Lease | None:
    """Return the lease of the run if its supervisor is alive."""
    lease = store.get_lease(run)
    is_alive = lease is not None and not lease.is_released and lease.expires_at > time.time() and is_holder_alive(lease)
    return lease if is_alive else None


def refresh_state(store: SqliteStore, run_info: RunInfo) -> RunState:
    """Return the state of a run; without a live supervisor, collect the events of its agents first."""
    state = load_state(store, run_info.run)
    if state.is_finished or live_supervisor_lease(store, run_info.run) or not RunFolder(run_info.folder).plan.exists():
        return state
    folder = RunFolder(run_info.folder)
    plan = read_plan(folder.plan)
    jobs = {job.id: job for job in plan.jobs}
    live = [
        SubmitRequest(execution.attempt_id, jobs[job.id])
        for job in state.jobs.values()
        for execution in job.live_executions
    ]
    engine = make_engine(run_info, plan)
    with contextlib.suppress(UnavailableError, UsageError):  # the pool does not respond; show the stored state
        Collector(store, run_info.run, folder, engine.capabilities.has_shared_folder).collect(
            state, engine.recover(live)
        )
    return load_state(store, run_info.run)


def request_cancel(store: SqliteStore, run: str, jobs: list[str], reason: str) -> None:
    """Store the request to cancel jobs; the supervisor acts on it."""
    emitter = new_emitter_id("cli")
    data = {"action": "cancel", "reason": reason}
    now, mono = time.time(), time.monotonic()
    store.append(Event(run, job, emitter, n, kinds.USER_REQUESTED, now, mono, data) for n, job in enumerate(jobs, 1))
