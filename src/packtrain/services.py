"""The one composition root: puts engines, store and supervisor together for the commands. `prepare` stands on it and
adds spec and planner. Nothing that most commands do without is loaded here."""

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
from packtrain.engines.htcondor import HtcondorEngine, supervisor_job
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
from packtrain.supervise.policies import PolicyConfig
from packtrain.supervise.supervisor import is_holder_alive
from packtrain.transfer.api import SecretResolver

if TYPE_CHECKING:
    from packtrain.engines.htcondor.access_point_checks import AccessPointCheck
    from packtrain.report.build import Report
    from packtrain.report.history import JobHistory  # loaded when a report is made

ENGINE_NAMES = ("local", "htcondor")
_SUPERVISOR_START_TIMEOUT_S = 60.0  # how long a schedd may take to start a supervisor


def open_store() -> SqliteStore:
    return SqliteStore(store_path())


def engine_capabilities(name: str) -> Capabilities:
    if name not in ENGINE_NAMES:
        raise UsageError(f"there is no engine {name!r} in this version; known are {', '.join(ENGINE_NAMES)}")
    return HTCONDOR if name == "htcondor" else capabilities()


def make_engine(run_info: RunInfo, plan: Plan) -> Engine:
    folder = RunFolder(run_info.folder)
    return HtcondorEngine(plan, folder) if run_info.engine == "htcondor" else LocalEngine(folder)


def make_supervisor(run_info: RunInfo, store: SqliteStore, lease: Lease | None = None) -> Supervisor:
    """`lease`: taken before, since the plan of many jobs takes a while to read."""
    folder = RunFolder(run_info.folder)
    plan = read_plan(folder.plan)
    return Supervisor(plan, folder, store, make_engine(run_info, plan), lease=lease)


def notify_run_ended(run_info: RunInfo, state: RunState) -> str:
    """Tell whom `--notify` names that the run has ended; a sentence if that failed."""
    return notifications.notify_run_ended(RunFolder(run_info.folder).notify, state, run_info.name, run_info.folder)


def load_site_history(store: SqliteStore, engine: str = "") -> SiteHistory:
    """What earlier runs learned of places."""
    return SiteHistory.from_observations(store.observations(), time.time(), engine)


def load_initially_avoided(run_info: RunInfo) -> dict[str, str]:
    """Places that a run was told to avoid when it was started, and why."""
    path = RunFolder(run_info.folder).htcondor / "settings.json"
    hints = RunSettings.read(path).site_preferences if path.exists() else SitePreferences()
    return {**hints.avoid_sites, **hints.avoid_nodes}


def load_policy_config(run_info: RunInfo) -> PolicyConfig:
    """What policies go by in this run; the usual, if its folder is gone."""
    path = RunFolder(run_info.folder).plan
    return (
        PolicyConfig.from_plan(read_plan(path), engine_capabilities(run_info.engine))
        if path.exists()
        else PolicyConfig()
    )


def start_detached_supervisor(run_info: RunInfo, store: SqliteStore, *, reopen: bool) -> int:
    """Start a supervisor that outlives this terminal; its process id, once it holds the lease."""
    command = [sys.executable, "-m", "packtrain", "supervise", run_info.run]
    if reopen:  # once, however often this command is started again
        before = store.get_lease(run_info.run)
        command += ["--reopen-after", str(before.epoch if before else 0)]
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
    before = store.get_lease(run_info.run)
    folder = RunFolder(run_info.folder)
    supervisor_job.reject_getenv(RunSettings.read(folder.htcondor / "settings.json"))
    environ = {**os.environ, "PACKTRAIN_STORE": str(store.path.absolute())}
    job = supervisor_job.submit_supervisor(
        run_info.run, folder, [*command, "--in-schedd"], environ, _secret_env_vars(folder)
    )
    deadline = time.monotonic() + _SUPERVISOR_START_TIMEOUT_S
    while (lease := store.get_lease(run_info.run)) is None or (before and lease.epoch == before.epoch):
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"the supervisor of {run_info.run} is job {job} of the schedd, but has not started within {_SUPERVISOR_START_TIMEOUT_S:g} s; "
                f"look at `condor_q {job}` and {folder.supervisor_log}"
            )
        time.sleep(0.05)
    return lease.pid


def _secret_env_vars(folder: RunFolder) -> set[str]:
    """Those that the workflow refers to."""
    from packtrain.planner.secret_references import read_secret_sources
    from packtrain.spec.secret_references import find_references

    known, _ = read_secret_sources(folder.secret_sources)
    return {one.name for secret in known.values() for one in find_references(secret.text) if one.kind == "env"}


def was_reopened_after(store: SqliteStore, run: str, epoch: int) -> bool:
    """Whether a supervisor that came after this epoch has opened the run's jobs again."""
    decided = (stored.event.data for stored in store.events(run, kind=kinds.DECISION_MADE))
    return any(data.get("action") == "reopen" and data.get("epoch", 0) > epoch for data in decided)


def _is_lease_held_by(store: SqliteStore, run: str, pid: int) -> bool:
    lease = store.get_lease(run)
    return lease is not None and lease.pid == pid


def _last_log_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("packtrain: ") if lines else f"it said nothing in {path}"


def reload_secrets(run_info: RunInfo) -> None:
    """Before a run goes on: read its secrets again from where the workflow said."""
    from packtrain.planner.secret_references import read_secret_sources
    from packtrain.planner.secret_sources import resolve_secrets, write_secrets

    folder = RunFolder(run_info.folder)
    secrets_, where = read_secret_sources(folder.secret_sources)
    for name, secret in secrets_.items():
        if secret.is_literal and not (folder.secrets / name).exists():
            raise _literal_secret_error(run_info, name)
    resolved = resolve_secrets({name: s for name, s in secrets_.items() if not s.is_literal}, where)
    if resolved.diagnostics:
        raise UsageError(str(resolved.diagnostics[0]))
    write_secrets(folder.secrets, resolved.values)


def _literal_secret_error(run_info: RunInfo, name: str) -> UsageError:
    return UsageError(
        f"the secret {name} of the run {run_info.run} was written in the workflow itself and is not kept after its end; "
        "name it as ${env:…} or ${file:…} and start the workflow anew"
    )


def delete_secrets(run_info: RunInfo, state: RunState) -> None:
    """Of a finished run nothing secret stays."""
    if state.is_finished:
        shutil.rmtree(RunFolder(run_info.folder).secrets, ignore_errors=True)


def make_secret_resolver(run_info: RunInfo) -> SecretResolver:
    """Secrets of a run for its owner: from the run's folder, else from where the workflow said."""
    from packtrain.planner.secret_references import read_secret_sources
    from packtrain.planner.secret_sources import resolve_secrets, secret_resolver

    folder = RunFolder(run_info.folder)

    def resolve_secret(value: SecretOrStr) -> str:
        if isinstance(value, str):
            return value
        if (folder.secrets / value.name).exists():
            return (folder.secrets / value.name).read_text(encoding="utf-8")
        known, where = read_secret_sources(folder.secret_sources)
        if value.name in known and known[value.name].is_literal:
            raise _literal_secret_error(run_info, value.name)
        return secret_resolver(resolve_secrets(known, where).values)(value)

    return resolve_secret


# Looking


def check_access_point() -> list[AccessPointCheck]:
    """How the HTCondor pool of this access point stands."""
    from packtrain.engines.htcondor import access_point_checks

    return list(access_point_checks.check_access_point(CondorClient(), Path.cwd()))


def load_training_curves(store: SqliteStore, state: RunState) -> TrainingCurves:
    """What the jobs of a run reported."""
    return build_training_curves(state, (stored.event for stored in store.events(state.run, kind=kinds.METRIC)))


def save_training_chart(store: SqliteStore, run_info: RunInfo, state: RunState) -> tuple[Path | None, str]:
    """At the end of a run: where the picture of its training is, or why there is none. A picture that cannot be
    drawn never spoils a run."""
    path = RunFolder(run_info.folder).training_chart
    try:
        curves = load_training_curves(store, state)
        if not state.is_finished or not curves.jobs:
            return None, ""
        from packtrain.report.charts.training import save_training_plot

        save_training_plot(curves, path, format_subtitle(state))
    except (ImportError, OSError, RuntimeError, ValueError, PacktrainError) as error:
        return None, f"the picture {path.name} could not be drawn: {error}"
    return path, ""


def load_job_history(store: SqliteStore, run_info: RunInfo, state: RunState) -> JobHistory:
    """What happened to the jobs of a run, for reports."""
    from packtrain.report.readers.run_store import read_run_history

    plan = RunFolder(run_info.folder).plan
    gpus = {job.id: float(job.resources.gpus) for job in read_plan(plan).jobs} if plan.exists() else {}
    history = read_run_history(state, (stored.event for stored in store.events(run_info.run)), gpus)
    return replace(history, name=run_info.run)  # the workflow's name is that of all its runs


def write_run_report(store: SqliteStore, run_info: RunInfo, state: RunState) -> tuple[Report | None, Path | None, str]:
    """At the end of a run: the report, its page, or why there is none. A report that cannot be made, for whatever
    reason, never spoils a run."""
    from packtrain.report.build import build_report, write_report

    try:
        report = build_report(load_job_history(store, run_info, state))
        curves = load_training_curves(store, state)
        return report, write_report(report, RunFolder(run_info.folder).report, curves=curves, write_pngs=False), ""
    except Exception as error:
        return None, None, f"the report could not be written: {error}"


def find_run(store: SqliteStore, id_prefix: str) -> RunInfo:
    """By id, by the start of an id, or the newest: of this folder if there is one, else of all."""
    runs = store.list_runs()
    if not runs:
        raise NotFoundError("there are no runs yet; start one with `packtrain run FILE`")
    if not id_prefix:
        here = [row for row in runs if Path.cwd() in (row.folder, *row.folder.parents)]
        return (here or runs)[-1]
    found = [row for row in runs if row.run == id_prefix] or [row for row in runs if row.run.startswith(id_prefix)]
    if not found:
        raise NotFoundError(f"there is no run {id_prefix!r}; `packtrain ps` lists them")
    if len({row.name for row in found}) > 1:
        raise UsageError(f"{id_prefix!r} may mean {', '.join(row.run for row in found[-5:])}; write a longer part")
    return found[-1]


def find_job(store: SqliteStore, target: str) -> tuple[RunInfo, str | None]:
    """RUN or RUN.JOB; the job is None if the whole run is meant."""
    run, dot, job = target.rpartition(".")
    if dot and any(row.run.startswith(run) for row in store.list_runs()):
        row = find_run(store, run)
        if job not in load_state(store, row.run).jobs:
            raise NotFoundError(f"the run {row.run} has no job {job!r}; `packtrain ps {row.run}` lists them")
        return row, job
    return find_run(store, target), None


def load_state(store: SqliteStore, run: str) -> RunState:
    state = RunState(run)
    for stored in store.events(run):
        state.apply(stored.event, stored.received_at)
    state.update_progress(store.progress(run))
    return state


def live_supervisor_lease(store: SqliteStore, run: str) -> Lease | None:
    """The lease of a living supervisor."""
    lease = store.get_lease(run)
    alive = lease is not None and not lease.is_released and lease.expires_at > time.time() and is_holder_alive(lease)
    return lease if alive else None


def refresh_state(store: SqliteStore, run_info: RunInfo) -> RunState:
    """The state of a run; where no supervisor collects for it, what its agents wrote is brought in first."""
    state = load_state(store, run_info.run)
    if state.is_finished or live_supervisor_lease(store, run_info.run) or not RunFolder(run_info.folder).plan.exists():
        return state
    folder = RunFolder(run_info.folder)
    plan = read_plan(folder.plan)
    jobs = {job.id: job for job in plan.jobs}
    live = [SubmitRequest(a.attempt_id, jobs[job.id]) for job in state.jobs.values() for a in job.live_executions]
    engine = make_engine(run_info, plan)
    with contextlib.suppress(UnavailableError, UsageError):  # a pool that gives no answer: what is known is shown
        Collector(store, run_info.run, folder, engine.capabilities.has_shared_folder).collect(
            state, engine.recover(live)
        )
    return load_state(store, run_info.run)


def request_cancel(store: SqliteStore, run: str, jobs: list[str], reason: str) -> None:
    """Write the wish down; the supervisor acts on it."""
    emitter = new_emitter_id("cli")
    data = {"action": "cancel", "reason": reason}
    now, mono = time.time(), time.monotonic()
    store.append(Event(run, job, emitter, n, kinds.USER_REQUESTED, now, mono, data) for n, job in enumerate(jobs, 1))
