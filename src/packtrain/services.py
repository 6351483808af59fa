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
from packtrain.engines.api import Capabilities, Engine, Ticket
from packtrain.engines.htcondor import CAPABILITIES as HTCONDOR
from packtrain.engines.htcondor import HtcondorEngine, supervisor_job
from packtrain.engines.htcondor.condor_client import Client
from packtrain.engines.htcondor.run_settings import Hints, RunSettings
from packtrain.engines.local import LocalEngine, capabilities
from packtrain.errors import NotFoundError, PacktrainError, RefusedError, UsageError
from packtrain.events import Event, kinds, new_emitter
from packtrain.plan import Plan, RunFolder, Text, read_plan
from packtrain.report.readers.training_curves import Curves, curves_of, subtitle_of
from packtrain.state import RunState
from packtrain.state.site_history import Knowledge
from packtrain.store import Lease, RunRow, SqliteStore, store_path
from packtrain.supervise import Collector, Supervisor
from packtrain.supervise.policies import Rules
from packtrain.supervise.supervisor import holder_lives
from packtrain.transfer.api import Reveal

if TYPE_CHECKING:
    from packtrain.engines.htcondor.access_point_checks import Finding
    from packtrain.report.build import Report
    from packtrain.report.history import History  # loaded when a report is made

ENGINES = ("local", "htcondor")
_START_S = 60.0  # how long a schedd may take to start a supervisor


def open_store() -> SqliteStore:
    return SqliteStore(store_path())


def engine_capabilities(name: str) -> Capabilities:
    if name not in ENGINES:
        raise UsageError(f"there is no engine {name!r} in this version; known are {', '.join(ENGINES)}")
    return HTCONDOR if name == "htcondor" else capabilities()


def engine_of(row: RunRow, plan: Plan) -> Engine:
    folder = RunFolder(row.folder)
    return HtcondorEngine(plan, folder) if row.engine == "htcondor" else LocalEngine(folder)


def supervisor_of(row: RunRow, store: SqliteStore, lease: Lease | None = None) -> Supervisor:
    """`lease`: taken before, since the plan of many jobs takes a while to read."""
    folder = RunFolder(row.folder)
    plan = read_plan(folder.plan)
    return Supervisor(plan, folder, store, engine_of(row, plan), lease=lease)


def tell_end(row: RunRow, state: RunState) -> str:
    """Tell whom `--notify` names that the run has ended; a sentence if that failed."""
    return notifications.tell_end(RunFolder(row.folder).notify, state, row.name, row.folder)


def knowledge_of(store: SqliteStore, engine: str = "") -> Knowledge:
    """What earlier runs learned of places."""
    return Knowledge.of(store.visits(), time.time(), engine)


def avoided_from_start(row: RunRow) -> dict[str, str]:
    """Places that a run was told to avoid when it was started, and why."""
    path = RunFolder(row.folder).htcondor / "settings.json"
    hints = RunSettings.read(path).hints if path.exists() else Hints()
    return {**hints.avoid_sites, **hints.avoid_machines}


def rules_of(row: RunRow) -> Rules:
    """What policies go by in this run; the usual, if its folder is gone."""
    path = RunFolder(row.folder).plan
    return Rules.of(read_plan(path), engine_capabilities(row.engine)) if path.exists() else Rules()


def detach(row: RunRow, store: SqliteStore, *, reopen: bool) -> int:
    """Start a supervisor that outlives this terminal; its process id, once it holds the lease."""
    command = [sys.executable, "-m", "packtrain", "supervise", row.run]
    if reopen:  # once, however often this command is started again
        before = store.lease(row.run)
        command += ["--reopen-after", str(before.epoch if before else 0)]
    if row.engine == "htcondor":
        return _detach_to_schedd(row, store, command)
    log = RunFolder(row.folder).supervisor_log
    with open(log, "ab") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, cwd="/"
        )
    while not _has_had_lease(store, row.run, process.pid):
        if process.poll() is not None:
            raise RefusedError(f"the supervisor of {row.run} did not start: {_last_line(log)}")
        time.sleep(0.02)
    return process.pid


def _detach_to_schedd(row: RunRow, store: SqliteStore, command: list[str]) -> int:
    before = store.lease(row.run)
    folder = RunFolder(row.folder)
    supervisor_job.refuse_getenv(RunSettings.read(folder.htcondor / "settings.json"))
    environ = {**os.environ, "PACKTRAIN_STORE": str(store.path.absolute())}
    job = supervisor_job.submit_supervisor(
        row.run, folder, [*command, "--in-schedd"], environ, _secret_variables(folder)
    )
    deadline = time.monotonic() + _START_S
    while (lease := store.lease(row.run)) is None or (before and lease.epoch == before.epoch):
        if time.monotonic() > deadline:
            raise RefusedError(
                f"the supervisor of {row.run} is job {job} of the schedd, but has not started within {_START_S:g} s; "
                f"look at `condor_q {job}` and {folder.supervisor_log}"
            )
        time.sleep(0.05)
    return lease.pid


def _secret_variables(folder: RunFolder) -> set[str]:
    """Those that the workflow refers to."""
    from packtrain.planner.secret_references import read_references
    from packtrain.spec.secret_references import references

    known, _ = read_references(folder.references)
    return {one.name for secret in known.values() for one in references(secret.text) if one.kind == "env"}


def is_reopened(store: SqliteStore, run: str, epoch: int) -> bool:
    """Whether a supervisor that came after this epoch has opened the run's jobs again."""
    decided = (stored.event.data for stored in store.events(run, kind=kinds.DECIDED))
    return any(data.get("action") == "reopen" and data.get("epoch", 0) > epoch for data in decided)


def _has_had_lease(store: SqliteStore, run: str, pid: int) -> bool:
    lease = store.lease(run)
    return lease is not None and lease.pid == pid


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("packtrain: ") if lines else f"it said nothing in {path}"


def restore_secrets(row: RunRow) -> None:
    """Before a run goes on: read its secrets again from where the workflow said."""
    from packtrain.planner.secret_references import read_references
    from packtrain.planner.secret_sources import resolve_secrets, write_secrets

    folder = RunFolder(row.folder)
    secrets_, where = read_references(folder.references)
    for name, secret in secrets_.items():
        if secret.is_literal and not (folder.secrets / name).exists():
            raise _not_kept(row, name)
    resolved = resolve_secrets({name: s for name, s in secrets_.items() if not s.is_literal}, where)
    if resolved.problems:
        raise UsageError(str(resolved.problems[0]))
    write_secrets(folder.secrets, resolved.values)


def _not_kept(row: RunRow, name: str) -> UsageError:
    return UsageError(
        f"the secret {name} of the run {row.run} was written in the workflow itself and is not kept after its end; "
        "name it as ${env:…} or ${file:…} and start the workflow anew"
    )


def forget_secrets(row: RunRow, state: RunState) -> None:
    """Of a finished run nothing secret stays."""
    if state.finished:
        shutil.rmtree(RunFolder(row.folder).secrets, ignore_errors=True)


def reveal_of(row: RunRow) -> Reveal:
    """Secrets of a run for its owner: from the run's folder, else from where the workflow said."""
    from packtrain.planner.secret_references import read_references
    from packtrain.planner.secret_sources import resolve_secrets, revealer

    folder = RunFolder(row.folder)

    def reveal(text: Text) -> str:
        if isinstance(text, str):
            return text
        if (folder.secrets / text.name).exists():
            return (folder.secrets / text.name).read_text(encoding="utf-8")
        known, where = read_references(folder.references)
        if text.name in known and known[text.name].is_literal:
            raise _not_kept(row, text.name)
        return revealer(resolve_secrets(known, where).values)(text)

    return reveal


# Looking


def examine_pool() -> list[Finding]:
    """How the HTCondor pool of this access point stands."""
    from packtrain.engines.htcondor import access_point_checks

    return list(access_point_checks.examine(Client(), Path.cwd()))


def curves_of_run(store: SqliteStore, state: RunState) -> Curves:
    """What the jobs of a run reported."""
    return curves_of(state, (stored.event for stored in store.events(state.run, kind=kinds.METRIC)))


def draw_picture(store: SqliteStore, row: RunRow, state: RunState) -> tuple[Path | None, str]:
    """At the end of a run: where the picture of its training is, or why there is none. A picture that cannot be
    drawn never spoils a run."""
    path = RunFolder(row.folder).picture
    try:
        curves = curves_of_run(store, state)
        if not state.finished or not curves.jobs:
            return None, ""
        from packtrain.report.charts.training import draw_training

        draw_training(curves, path, subtitle_of(state))
    except (ImportError, OSError, RuntimeError, ValueError, PacktrainError) as error:
        return None, f"the picture {path.name} could not be drawn: {error}"
    return path, ""


def history_of(store: SqliteStore, row: RunRow, state: RunState) -> History:
    """What happened to the jobs of a run, for reports."""
    from packtrain.report.readers.run_store import history_of_run

    plan = RunFolder(row.folder).plan
    gpus = {job.id: float(job.resources.gpus) for job in read_plan(plan).jobs} if plan.exists() else {}
    history = history_of_run(state, (stored.event for stored in store.events(row.run)), gpus)
    return replace(history, name=row.run)  # the workflow's name is that of all its runs


def report_on_run(store: SqliteStore, row: RunRow, state: RunState) -> tuple[Report | None, Path | None, str]:
    """At the end of a run: the report, its page, or why there is none. A report that cannot be made, for whatever
    reason, never spoils a run."""
    from packtrain.report.build import report_on, write_report

    try:
        report = report_on(history_of(store, row, state))
        curves = curves_of_run(store, state)
        return report, write_report(report, RunFolder(row.folder).report, curves=curves, pngs=False), ""
    except Exception as error:
        return None, None, f"the report could not be written: {error}"


def find_run(store: SqliteStore, wanted: str) -> RunRow:
    """By id, by the start of an id, or the newest: of this folder if there is one, else of all."""
    runs = store.runs()
    if not runs:
        raise NotFoundError("there are no runs yet; start one with `packtrain run FILE`")
    if not wanted:
        here = [row for row in runs if Path.cwd() in (row.folder, *row.folder.parents)]
        return (here or runs)[-1]
    found = [row for row in runs if row.run == wanted] or [row for row in runs if row.run.startswith(wanted)]
    if not found:
        raise NotFoundError(f"there is no run {wanted!r}; `packtrain ps` lists them")
    if len({row.name for row in found}) > 1:
        raise UsageError(f"{wanted!r} may mean {', '.join(row.run for row in found[-5:])}; write a longer part")
    return found[-1]


def find_job(store: SqliteStore, target: str) -> tuple[RunRow, str | None]:
    """RUN or RUN.JOB; the job is None if the whole run is meant."""
    run, dot, job = target.rpartition(".")
    if dot and any(row.run.startswith(run) for row in store.runs()):
        row = find_run(store, run)
        if job not in load_state(store, row.run).jobs:
            raise NotFoundError(f"the run {row.run} has no job {job!r}; `packtrain ps {row.run}` lists them")
        return row, job
    return find_run(store, target), None


def load_state(store: SqliteStore, run: str) -> RunState:
    state = RunState(run)
    for stored in store.events(run):
        state.apply(stored.event, stored.arrived)
    state.see(store.glimpses(run))
    return state


def supervisor_lease(store: SqliteStore, run: str) -> Lease | None:
    """The lease of a living supervisor."""
    lease = store.lease(run)
    alive = lease is not None and not lease.released and lease.expires > time.time() and holder_lives(lease)
    return lease if alive else None


def refresh(store: SqliteStore, row: RunRow) -> RunState:
    """The state of a run; where no supervisor collects for it, what its agents wrote is brought in first."""
    state = load_state(store, row.run)
    if state.finished or supervisor_lease(store, row.run) or not RunFolder(row.folder).plan.exists():
        return state
    folder = RunFolder(row.folder)
    plan = read_plan(folder.plan)
    jobs = {job.id: job for job in plan.jobs}
    live = [Ticket(a.decision, jobs[job.id]) for job in state.jobs.values() for a in job.live]
    engine = engine_of(row, plan)
    with contextlib.suppress(RefusedError, UsageError):  # a pool that gives no answer: what is known is shown
        Collector(store, row.run, folder, engine.capabilities.shares_folder).collect(state, engine.look(live))
    return load_state(store, row.run)


def request_cancel(store: SqliteStore, run: str, jobs: list[str], reason: str) -> None:
    """Write the wish down; the supervisor acts on it."""
    emitter = new_emitter("cli")
    data = {"action": "cancel", "reason": reason}
    now, mono = time.time(), time.monotonic()
    store.append(Event(run, job, emitter, n, kinds.REQUESTED, now, mono, data) for n, job in enumerate(jobs, 1))
