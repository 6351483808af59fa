"""From a workflow file to a run that exists. Not part of `app`: what reads workflows takes half a second to load, and
most commands never read one."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from packtrain import notifications
from packtrain.condor.submitfile import is_submit_file, load_submit_file
from packtrain.engines.bundle import build_agent, write_launcher
from packtrain.engines.htcondor import run_setup as pool
from packtrain.engines.htcondor import shell_runner as bare
from packtrain.engines.htcondor import supervisor_job
from packtrain.engines.htcondor.condor_client import Client, bindings
from packtrain.errors import UsageError
from packtrain.events import Event, kinds, new_emitter
from packtrain.plan import Input, Plan, RunFolder, write_plan
from packtrain.planner import stream_planner
from packtrain.planner.engine_limits import problems_for, within
from packtrain.planner.make_plan import Planned, make_plan
from packtrain.planner.secret_references import write_references
from packtrain.planner.secret_sources import Resolved, resolve_secrets, write_secrets
from packtrain.services import engine_capabilities, knowledge_of
from packtrain.spec.diagnostics import WARNING, Origin, Problem
from packtrain.spec.load import Loaded, load
from packtrain.spec.user_config import load_settings
from packtrain.store import RunRow, SqliteStore
from packtrain.stream.index import Index


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
    indexes: tuple[Path, ...] = ()  # of inputs that are streamed; the run gets copies of its own

    @property
    def failed(self) -> bool:
        return any(problem.is_error for problem in self.problems)

    @property
    def plan(self) -> Plan:
        if self.planned is None:
            raise UsageError("the workflow has errors, so there is no plan")
        return self.planned.plan


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


def refuse_detached(prepared: Prepared) -> None:
    """What counts only as long as this terminal submits the jobs. Raises UsageError."""
    if prepared.plan.engine == "htcondor":
        supervisor_job.refuse_getenv(pool.run_settings(prepared.plan, load_settings().htcondor, prepared.disk_bytes))


def with_indexes(prepared: Prepared, found: Mapping[Input, Index]) -> Prepared:
    """Inputs that are streamed are complete once their samples are known."""
    assert prepared.planned is not None
    plan = stream_planner.with_indexes(prepared.plan, found, prepared.folder.indexes)
    paths = tuple(dict.fromkeys(index.path for index in found.values()))
    return replace(prepared, planned=replace(prepared.planned, plan=plan), indexes=paths)


def create_run(prepared: Prepared, store: SqliteStore, tell: str | None = None) -> RunRow:
    """Make the run's folder complete, then the run known: a crash in between leaves only a folder. `tell`: a command or
    an address for the run's end."""
    assert prepared.planned is not None
    known = knowledge_of(store, prepared.plan.engine)
    plan, folder = replace(prepared.plan, speeds=known.speeds()), prepared.folder
    if plan.engine == "htcondor":
        bindings()  # raises UsageError: better now than when the run is known
    folder.root.mkdir(parents=True, mode=0o700)
    (folder.root.parent.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    write_secrets(folder.secrets, prepared.resolved.values)
    write_references(folder.references, prepared.planned.secrets, prepared.where)
    _copy_indexes(prepared.indexes, folder.indexes)
    write_plan(plan, folder.plan)
    if tell:
        notifications.write_target(folder.notify, tell)
    if plan.engine == "htcondor":
        pool.make_ready(plan, folder, pool.run_settings(plan, load_settings().htcondor, prepared.disk_bytes, known))
        if prepared.bare:
            bare.write_scripts(plan, folder)
    else:
        _write_job_plans(plan, folder)
    build_agent(folder.agent)
    write_launcher(folder.launcher)
    row = RunRow(plan.run, plan.name, plan.engine, folder.root, time.time())
    store.add_run(row, _created(plan, row))
    return row


def _copy_indexes(indexes: tuple[Path, ...], folder: Path) -> None:
    for index in indexes:
        folder.mkdir(exist_ok=True)
        shutil.copyfile(index, folder / index.name)


def _write_job_plans(plan: Plan, folder: RunFolder) -> None:
    for job in plan.jobs:
        folder.job(job.id).mkdir(parents=True, exist_ok=True)
        write_plan(replace(plan, jobs=(job,)), folder.job_plan(job.id))


def _created(plan: Plan, row: RunRow) -> Event:
    points = {job.id: {var.key: str(var.value) for var in job.point} for job in plan.jobs}
    data = {"name": row.name, "engine": row.engine, "folder": str(row.folder), "jobs": len(plan.jobs), "points": points}
    return Event(row.run, "", new_emitter("cli"), 1, kinds.RUN_CREATED, row.created, time.monotonic(), data)
