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
from packtrain.engines.htcondor.condor_client import CondorClient, load_bindings
from packtrain.errors import UsageError
from packtrain.events import Event, kinds, new_emitter_id
from packtrain.plan import Input, Plan, RunFolder, write_plan
from packtrain.planner import stream_planner
from packtrain.planner.engine_limits import check_engine_limits, clamp_memory
from packtrain.planner.make_plan import PlanResult, make_plan
from packtrain.planner.secret_sources import ResolvedSecrets, resolve_secrets, write_secret_sources, write_secrets
from packtrain.services import engine_capabilities, load_site_history
from packtrain.spec.diagnostics import WARNING, Diagnostic, SourceMap
from packtrain.spec.load import LoadResult, load_workflow_file
from packtrain.spec.user_config import load_user_config
from packtrain.store import RunInfo, SqliteStore
from packtrain.stream.index import Index


@dataclass(frozen=True)
class Submission:
    """A run that could be started: nothing is written yet."""

    plan_result: PlanResult | None
    resolved_secrets: ResolvedSecrets
    run_folder: RunFolder
    workflow_dir: Path  # the workflow's folder
    diagnostics: tuple[Diagnostic, ...]
    source_map: SourceMap = field(default_factory=SourceMap)  # of the workflow, for line numbers
    disk_bytes: int | None = None  # what one job needs, where that is known
    without_agent: bool = False  # the jobs' image has no Python: they go without the agent
    index_paths: tuple[Path, ...] = ()  # of inputs that are streamed; the run gets copies of its own

    @property
    def has_errors(self) -> bool:
        return any(problem.is_error for problem in self.diagnostics)

    @property
    def plan(self) -> Plan:
        if self.plan_result is None:
            raise UsageError("the workflow has errors, so there is no plan")
        return self.plan_result.plan


def load_workflow(file: Path, expect: tuple[str, ...] = ()) -> LoadResult:
    """A workflow, from its own kind of file or from a submit file; `expect` adds to what it expects."""
    return (
        load_submit_file(file, expect).load_result
        if is_submit_file(file)
        else load_workflow_file(file).with_expected_outputs(expect)
    )


def new_run_id(name: str) -> str:
    """The workflow's name and four letters, e.g. cifar10-x7kq."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return f"{name}-{''.join(secrets.choice(alphabet) for _ in range(4))}"


def prepare_submission(
    file: Path,
    engine: str,
    *,
    strict: bool = True,
    no_container: bool = False,
    no_gpu: bool = False,
    expect: tuple[str, ...] = (),
) -> Submission:
    """Read, check and plan a workflow file. Problems are returned, not raised. Not strict: that this
    machine lacks something (a GPU, a variable with a token) is a warning."""
    machine = engine_capabilities(engine)
    where = file.absolute().parent
    loaded = load_workflow(file, expect)
    if loaded.workflow is None:
        return Submission(None, ResolvedSecrets({}), RunFolder(where), where, loaded.diagnostics)
    run = new_run_id(loaded.workflow.name or file.stem)
    folder = RunFolder.for_run(Path.cwd(), run)
    planned = make_plan(
        loaded.workflow,
        run=run,
        engine=engine,
        workflow_dir=where,
        run_folder=folder,
        no_container=no_container,
        no_gpu=no_gpu,
    )
    resolved = resolve_secrets(planned.secrets, where)
    lacking = (*resolved.diagnostics, *check_engine_limits(planned.plan, machine, loaded.workflow.source_map))
    if not strict:
        lacking = tuple(replace(problem, severity=WARNING) for problem in lacking)
    problems = tuple(dict.fromkeys((*loaded.diagnostics, *planned.diagnostics, *lacking)))
    fitting = replace(planned, plan=clamp_memory(planned.plan, machine))
    return Submission(fitting, resolved, folder, where, problems, loaded.workflow.source_map)


def add_pool_diagnostics(submission: Submission) -> Submission:
    """What the pool would refuse or hold, now that the sizes of inputs are known."""
    if submission.plan.engine != "htcondor":
        return submission
    settings = pool.make_run_settings(submission.plan, load_user_config().htcondor, submission.disk_bytes)
    chosen = bare.choose_runner(submission.plan, submission.source_map)
    found = (*chosen.problems, *pool.find_problems(chosen.plan, settings, CondorClient(), submission.source_map))
    problems = tuple(dict.fromkeys((*submission.diagnostics, *found)))
    assert submission.plan_result is not None
    planned = replace(submission.plan_result, plan=chosen.plan)
    return replace(submission, plan_result=planned, without_agent=chosen.without_agent, diagnostics=problems)


def check_detachable(submission: Submission) -> None:
    """What counts only as long as this terminal submits the jobs. Raises UsageError."""
    if submission.plan.engine == "htcondor":
        supervisor_job.reject_getenv(
            pool.make_run_settings(submission.plan, load_user_config().htcondor, submission.disk_bytes)
        )


def add_indexes(submission: Submission, indexes: Mapping[Input, Index]) -> Submission:
    """Inputs that are streamed are complete once their samples are known."""
    assert submission.plan_result is not None
    plan = stream_planner.add_indexes(submission.plan, indexes, submission.run_folder.indexes)
    paths = tuple(dict.fromkeys(index.path for index in indexes.values()))
    return replace(submission, plan_result=replace(submission.plan_result, plan=plan), index_paths=paths)


def create_run(submission: Submission, store: SqliteStore, notify_target: str | None = None) -> RunInfo:
    """Make the run's folder complete, then the run known: a crash in between leaves only a folder. `tell`: a command or
    an address for the run's end."""
    assert submission.plan_result is not None
    known = load_site_history(store, submission.plan.engine)
    plan, folder = replace(submission.plan, host_speeds=known.source_speeds()), submission.run_folder
    if plan.engine == "htcondor":
        load_bindings()  # raises UsageError: better now than when the run is known
    folder.root.mkdir(parents=True, mode=0o700)
    (folder.root.parent.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    write_secrets(folder.secrets, submission.resolved_secrets.values)
    write_secret_sources(folder.secret_sources, submission.plan_result.secrets, submission.workflow_dir)
    _copy_indexes(submission.index_paths, folder.indexes)
    write_plan(plan, folder.plan)
    if notify_target:
        notifications.write_target(folder.notify, notify_target)
    if plan.engine == "htcondor":
        pool.write_run_files(
            plan, folder, pool.make_run_settings(plan, load_user_config().htcondor, submission.disk_bytes, known)
        )
        if submission.without_agent:
            bare.write_scripts(plan, folder)
    else:
        _write_job_plans(plan, folder)
    build_agent(folder.agent)
    write_launcher(folder.launcher)
    row = RunInfo(plan.run, plan.name, plan.engine, folder.root, time.time())
    store.add_run(row, _make_run_created_event(plan, row))
    return row


def _copy_indexes(index_paths: tuple[Path, ...], folder: Path) -> None:
    for index in index_paths:
        folder.mkdir(exist_ok=True)
        shutil.copyfile(index, folder / index.name)


def _write_job_plans(plan: Plan, run_folder: RunFolder) -> None:
    for job in plan.jobs:
        run_folder.job_folder(job.id).mkdir(parents=True, exist_ok=True)
        write_plan(replace(plan, jobs=(job,)), run_folder.job_plan(job.id))


def _make_run_created_event(plan: Plan, run_info: RunInfo) -> Event:
    points = {job.id: {var.key: str(var.value) for var in job.point} for job in plan.jobs}
    data = {
        "name": run_info.name,
        "engine": run_info.engine,
        "folder": str(run_info.folder),
        "jobs": len(plan.jobs),
        "points": points,
    }
    return Event(
        run_info.run, "", new_emitter_id("cli"), 1, kinds.RUN_CREATED, run_info.created_at, time.monotonic(), data
    )
