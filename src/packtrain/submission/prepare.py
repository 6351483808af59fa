"""Read, check and plan a workflow file, and create its run.

Not part of `services`, because reading workflows takes half a second to import and most commands never do it.
"""

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
from packtrain.engines.htcondor import run_setup, shell_runner, supervisor_job
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
    """A checked and planned workflow. Nothing is written to disk yet."""

    plan_result: PlanResult | None
    resolved_secrets: ResolvedSecrets
    run_folder: RunFolder
    workflow_dir: Path
    diagnostics: tuple[Diagnostic, ...]
    source_map: SourceMap = field(default_factory=SourceMap)  # line numbers of the workflow file
    disk_bytes: int | None = None  # disk space that one job needs, if known
    without_agent: bool = False  # the image has no Python, so jobs run without the agent
    index_paths: tuple[Path, ...] = ()  # indexes of streamed inputs; the run gets copies

    @property
    def has_errors(self) -> bool:
        return any(diagnostic.is_error for diagnostic in self.diagnostics)

    @property
    def plan(self) -> Plan:
        """The plan. Raises UsageError if the workflow has errors."""
        if self.plan_result is None:
            raise UsageError("the workflow has errors, so there is no plan")
        return self.plan_result.plan


def load_workflow(file: Path, expect: tuple[str, ...] = ()) -> LoadResult:
    """Load a workflow file or a submit file. `expect` adds files that the outputs must contain."""
    return (
        load_submit_file(file, expect).load_result
        if is_submit_file(file)
        else load_workflow_file(file).with_expected_outputs(expect)
    )


def new_run_id(name: str) -> str:
    """Return the workflow's name and four random characters, e.g. cifar10-x7kq."""
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
    """Read, check and plan a workflow file. Problems are returned as diagnostics, not raised.

    Args:
        file: a workflow file or a submit file.
        engine: name of the engine, `local` or `htcondor`.
        strict: report what this machine lacks (a GPU, a variable with a token) as errors; else as warnings.
        no_container: run every step on the host.
        no_gpu: ignore the GPUs that the workflow requests.
        expect: more files that the outputs must contain.
    """
    capabilities = engine_capabilities(engine)
    workflow_dir = file.absolute().parent
    loaded = load_workflow(file, expect)
    if loaded.workflow is None:
        return Submission(None, ResolvedSecrets({}), RunFolder(workflow_dir), workflow_dir, loaded.diagnostics)
    run = new_run_id(loaded.workflow.name or file.stem)
    folder = RunFolder.for_run(Path.cwd(), run)
    plan_result = make_plan(
        loaded.workflow,
        run=run,
        engine=engine,
        workflow_dir=workflow_dir,
        run_folder=folder,
        no_container=no_container,
        no_gpu=no_gpu,
    )
    secrets_ = resolve_secrets(plan_result.secrets, workflow_dir)
    limits = check_engine_limits(plan_result.plan, capabilities, loaded.workflow.source_map)
    lacking = (*secrets_.diagnostics, *limits)
    if not strict:
        lacking = tuple(replace(diagnostic, severity=WARNING) for diagnostic in lacking)
    diagnostics = tuple(dict.fromkeys((*loaded.diagnostics, *plan_result.diagnostics, *lacking)))
    plan_result = replace(plan_result, plan=clamp_memory(plan_result.plan, capabilities))
    return Submission(plan_result, secrets_, folder, workflow_dir, diagnostics, loaded.workflow.source_map)


def add_pool_diagnostics(submission: Submission) -> Submission:
    """Add problems that would make the pool reject or hold the jobs. Needs the sizes of the inputs."""
    if submission.plan.engine != "htcondor":
        return submission
    settings = run_setup.make_run_settings(submission.plan, load_user_config().htcondor, submission.disk_bytes)
    choice = shell_runner.choose_runner(submission.plan, submission.source_map)
    problems = run_setup.find_problems(choice.plan, settings, CondorClient(), submission.source_map)
    diagnostics = tuple(dict.fromkeys((*submission.diagnostics, *choice.problems, *problems)))
    assert submission.plan_result is not None
    return replace(
        submission,
        plan_result=replace(submission.plan_result, plan=choice.plan),
        without_agent=choice.without_agent,
        diagnostics=diagnostics,
    )


def check_detachable(submission: Submission) -> None:
    """Raise UsageError if the run needs settings of this terminal, which a detached supervisor does not have."""
    if submission.plan.engine == "htcondor":
        supervisor_job.reject_getenv(
            run_setup.make_run_settings(submission.plan, load_user_config().htcondor, submission.disk_bytes)
        )


def add_indexes(submission: Submission, indexes: Mapping[Input, Index]) -> Submission:
    """Return the submission with the indexes of its streamed inputs in the plan."""
    assert submission.plan_result is not None
    plan = stream_planner.add_indexes(submission.plan, indexes, submission.run_folder.indexes)
    paths = tuple(dict.fromkeys(index.path for index in indexes.values()))
    return replace(submission, plan_result=replace(submission.plan_result, plan=plan), index_paths=paths)


def create_run(submission: Submission, store: SqliteStore, notify_target: str | None = None) -> RunInfo:
    """Write the folder of a run, then add the run to the store; a crash in between leaves only the folder.

    Args:
        submission: a submission without errors.
        store: the store that gets the run.
        notify_target: a command to run or a URL to notify when the run ends.
    """
    assert submission.plan_result is not None
    site_history = load_site_history(store, submission.plan.engine)
    plan, folder = replace(submission.plan, host_speeds=site_history.source_speeds()), submission.run_folder
    if plan.engine == "htcondor":
        load_bindings()  # raises UsageError before anything is written
    folder.root.mkdir(parents=True, mode=0o700)
    (folder.root.parent.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    write_secrets(folder.secrets, submission.resolved_secrets.values)
    write_secret_sources(folder.secret_sources, submission.plan_result.secrets, submission.workflow_dir)
    _copy_indexes(submission.index_paths, folder.indexes)
    write_plan(plan, folder.plan)
    if notify_target:
        notifications.write_target(folder.notify, notify_target)
    if plan.engine == "htcondor":
        run_setup.write_run_files(
            plan,
            folder,
            run_setup.make_run_settings(plan, load_user_config().htcondor, submission.disk_bytes, site_history),
        )
        if submission.without_agent:
            shell_runner.write_scripts(plan, folder)
    else:
        _write_job_plans(plan, folder)
    build_agent(folder.agent)
    write_launcher(folder.launcher)
    run_info = RunInfo(plan.run, plan.name, plan.engine, folder.root, time.time())
    store.add_run(run_info, _make_run_created_event(plan, run_info))
    return run_info


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
