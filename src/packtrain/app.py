"""The one composition root: puts spec, planner, engines, store and supervisor together for the commands."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.engines.api import Capabilities, Engine, Ticket
from packtrain.engines.bundle import build_agent, write_launcher
from packtrain.engines.htcondor import CAPABILITIES as HTCONDOR
from packtrain.engines.htcondor import HtcondorEngine, bare, detached, examine, make_ready
from packtrain.engines.htcondor import prepare as pool
from packtrain.engines.htcondor.client import Client, bindings
from packtrain.engines.local import LocalEngine, capabilities
from packtrain.errors import NotFoundError, PacktrainError, RefusedError, UsageError
from packtrain.events import Event, kinds, new_emitter
from packtrain.plan import Plan, RunFolder, Text, read_plan, write_plan
from packtrain.planner import Planned, Resolved, make_plan, resolve_secrets, write_secrets
from packtrain.planner.fit import problems_for, within
from packtrain.planner.references import read_references, write_references
from packtrain.planner.secrets import revealer
from packtrain.report.curves import Curves, curves_of, subtitle_of
from packtrain.spec import Loaded, Origin, Problem, load
from packtrain.spec.problems import WARNING
from packtrain.spec.settings import load_settings
from packtrain.spec.submitfile import is_submit_file, load_submit_file
from packtrain.state import RunState
from packtrain.store import Lease, RunRow, SqliteStore, store_path
from packtrain.supervise import Collector, Supervisor
from packtrain.supervise.loop import holder_lives
from packtrain.supervise.policies import Rules
from packtrain.transfer.api import Reveal
from packtrain.watch import notify

if TYPE_CHECKING:
    from packtrain.report.history import History  # loaded when a report is made
    from packtrain.report.write import Report

ENGINES = ("local", "htcondor")
_START_S = 60.0  # how long a schedd may take to start a supervisor


@dataclass(frozen=True)
class Prepared:
    """A run that could be started: nothing is written yet."""

    planned: Planned | None
    resolved: Resolved
    folder: RunFolder
    where: Path  # the workflow's folder
    problems: tuple[Problem, ...]
    origin: Origin = field(default_factory=Origin)  # of the workflow, for line numbers
    disk_bytes: int | None = None  # what one job needs, where that is known
    bare: bool = False  # the jobs' image has no Python: they go without the agent

    @property
    def failed(self) -> bool:
        return any(problem.is_error for problem in self.problems)

    @property
    def plan(self) -> Plan:
        if self.planned is None:
            raise UsageError("the workflow has errors, so there is no plan")
        return self.planned.plan


def open_store() -> SqliteStore:
    return SqliteStore(store_path())


def engine_capabilities(name: str) -> Capabilities:
    if name not in ENGINES:
        raise UsageError(f"there is no engine {name!r} in this version; known are {', '.join(ENGINES)}")
    return HTCONDOR if name == "htcondor" else capabilities()


def engine_of(row: RunRow, plan: Plan) -> Engine:
    folder = RunFolder(row.folder)
    return HtcondorEngine(plan, folder) if row.engine == "htcondor" else LocalEngine(folder)


def load_workflow(file: Path, expect: tuple[str, ...] = ()) -> Loaded:
    """A workflow, from its own kind of file or from a submit file; `expect` adds to what it expects."""
    return load_submit_file(file, expect).loaded if is_submit_file(file) else load(file).expecting(expect)


def new_run_id(name: str) -> str:
    """The workflow's name and four letters, e.g. cifar10-x7kq."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return f"{name}-{''.join(secrets.choice(alphabet) for _ in range(4))}"


def prepare(
    file: Path,
    engine: str,
    *,
    strict: bool = True,
    no_container: bool = False,
    no_gpu: bool = False,
    expect: tuple[str, ...] = (),
) -> Prepared:
    """Read, check and plan a workflow file. Problems are returned, not raised. Not strict: that this
    machine lacks something (a GPU, a variable with a token) is a warning."""
    machine = engine_capabilities(engine)
    where = file.absolute().parent
    loaded = load_workflow(file, expect)
    if loaded.workflow is None:
        return Prepared(None, Resolved({}), RunFolder(where), where, loaded.problems)
    run = new_run_id(loaded.workflow.name or file.stem)
    folder = RunFolder.of(Path.cwd(), run)
    planned = make_plan(
        loaded.workflow,
        run=run,
        engine=engine,
        where=where,
        run_folder=folder,
        no_container=no_container,
        no_gpu=no_gpu,
    )
    resolved = resolve_secrets(planned.secrets, where)
    lacking = (*resolved.problems, *problems_for(planned.plan, machine, loaded.workflow.origin))
    if not strict:
        lacking = tuple(replace(problem, severity=WARNING) for problem in lacking)
    problems = tuple(dict.fromkeys((*loaded.problems, *planned.problems, *lacking)))
    fitting = replace(planned, plan=within(planned.plan, machine))
    return Prepared(fitting, resolved, folder, where, problems, loaded.workflow.origin)


def with_pool_problems(prepared: Prepared) -> Prepared:
    """What the pool would refuse or hold, now that the sizes of inputs are known."""
    if prepared.plan.engine != "htcondor":
        return prepared
    settings = pool.run_settings(prepared.plan, load_settings().htcondor, prepared.disk_bytes)
    chosen = bare.choose(prepared.plan, prepared.origin)
    found = (*chosen.problems, *pool.problems(chosen.plan, settings, Client(), prepared.origin))
    problems = tuple(dict.fromkeys((*prepared.problems, *found)))
    assert prepared.planned is not None
    planned = replace(prepared.planned, plan=chosen.plan)
    return replace(prepared, planned=planned, bare=chosen.bare, problems=problems)


def create_run(prepared: Prepared, store: SqliteStore, tell: str | None = None) -> RunRow:
    """Make the run's folder complete, then the run known: a crash in between leaves only a folder. `tell`: a command or
    an address for the run's end."""
    assert prepared.planned is not None
    plan, folder = prepared.plan, prepared.folder
    if plan.engine == "htcondor":
        bindings()  # raises UsageError: better now than when the run is known
    folder.root.mkdir(parents=True, mode=0o700)
    (folder.root.parent.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    write_secrets(folder.secrets, prepared.resolved.values)
    write_references(folder.references, prepared.planned.secrets, prepared.where)
    write_plan(plan, folder.plan)
    if tell:
        notify.write_target(folder.notify, tell)
    if plan.engine == "htcondor":
        make_ready(plan, folder, pool.run_settings(plan, load_settings().htcondor, prepared.disk_bytes))
        if prepared.bare:
            bare.write_scripts(plan, folder)
    else:
        _write_job_plans(plan, folder)
    build_agent(folder.agent)
    write_launcher(folder.launcher)
    row = RunRow(plan.run, plan.name, plan.engine, folder.root, time.time())
    store.add_run(row, _created(plan, row))
    return row


def _write_job_plans(plan: Plan, folder: RunFolder) -> None:
    for job in plan.jobs:
        folder.job(job.id).mkdir(parents=True, exist_ok=True)
        write_plan(replace(plan, jobs=(job,)), folder.job_plan(job.id))


def _created(plan: Plan, row: RunRow) -> Event:
    points = {job.id: {var.key: str(var.value) for var in job.point} for job in plan.jobs}
    data = {"name": row.name, "engine": row.engine, "folder": str(row.folder), "jobs": len(plan.jobs), "points": points}
    return Event(row.run, "", new_emitter("cli"), 1, kinds.RUN_CREATED, row.created, time.monotonic(), data)


def supervisor_of(row: RunRow, store: SqliteStore, lease: Lease | None = None) -> Supervisor:
    """`lease`: taken before, since the plan of many jobs takes a while to read."""
    folder = RunFolder(row.folder)
    plan = read_plan(folder.plan)
    return Supervisor(plan, folder, store, engine_of(row, plan), lease=lease)


def tell_end(row: RunRow, state: RunState) -> str:
    """Tell whom `--notify` names that the run has ended; a sentence if that failed."""
    return notify.tell_end(RunFolder(row.folder).notify, state, row.name, row.folder)


def rules_of(row: RunRow) -> Rules:
    """What policies go by in this run; the usual, if its folder is gone."""
    path = RunFolder(row.folder).plan
    return Rules.of(read_plan(path), engine_capabilities(row.engine)) if path.exists() else Rules()


def detach(row: RunRow, store: SqliteStore, *, reopen: bool) -> int:
    """Start a supervisor that outlives this terminal; its process id, once it holds the lease."""
    command = [sys.executable, "-m", "packtrain", "supervise", row.run, *(["--reopen"] if reopen else [])]
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
    environ = {**os.environ, "PACKTRAIN_STORE": str(store.path.absolute())}
    job = detached.submit_supervisor(row.run, folder, [*command, "--in-schedd"], environ)
    deadline = time.monotonic() + _START_S
    while (lease := store.lease(row.run)) is None or (before and lease.epoch == before.epoch):
        if time.monotonic() > deadline:
            raise RefusedError(
                f"the supervisor of {row.run} is job {job} of the schedd, but has not started within {_START_S:g} s; "
                f"look at `condor_q {job}` and {folder.supervisor_log}"
            )
        time.sleep(0.05)
    return lease.pid


def _has_had_lease(store: SqliteStore, run: str, pid: int) -> bool:
    lease = store.lease(run)
    return lease is not None and lease.pid == pid


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("packtrain: ") if lines else f"it said nothing in {path}"


def restore_secrets(row: RunRow) -> None:
    """Before a run goes on: read its secrets again from where the workflow said."""
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


def examine_pool() -> list[examine.Finding]:
    """How the HTCondor pool of this access point stands."""
    return list(examine.examine(Client(), Path.cwd()))


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
        from packtrain.report.plots import draw_training

        draw_training(curves, path, subtitle_of(state))
    except (ImportError, OSError, RuntimeError, ValueError, PacktrainError) as error:
        return None, f"the picture {path.name} could not be drawn: {error}"
    return path, ""


def history_of(store: SqliteStore, row: RunRow, state: RunState) -> History:
    """What happened to the jobs of a run, for reports."""
    from packtrain.report.from_store import history_of_run

    plan = RunFolder(row.folder).plan
    gpus = {job.id: float(job.resources.gpus) for job in read_plan(plan).jobs} if plan.exists() else {}
    history = history_of_run(state, (stored.event for stored in store.events(row.run)), gpus)
    return replace(history, name=row.run)  # the workflow's name is that of all its runs


def report_on_run(store: SqliteStore, row: RunRow, state: RunState) -> tuple[Report | None, Path | None, str]:
    """At the end of a run: the report, its page, or why there is none. A report that cannot be made, for whatever
    reason, never spoils a run."""
    from packtrain.report.write import report_on, write_report

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
