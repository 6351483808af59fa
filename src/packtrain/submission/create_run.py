"""Create a run: write its folder, then add it to the store."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from packtrain import notifications
from packtrain.engines.bundle import build_agent, write_launcher
from packtrain.engines.htcondor import run_setup, shell_runner
from packtrain.engines.htcondor.condor_client import load_bindings
from packtrain.events import Event, kinds, new_emitter_id
from packtrain.plan import Plan, RunFolder, write_plan
from packtrain.planner.credentials.secret_sources import write_secret_sources, write_secrets
from packtrain.store import RunInfo, SqliteStore
from packtrain.submission.prepare import Submission

_logger = logging.getLogger(__name__)


def create_run(submission: Submission, store: SqliteStore, notify_target: str | None = None) -> RunInfo:
    """Write the folder of a run, then add the run to the store; a crash in between leaves only the folder.

    Args:
        submission: A submission that was prepared with `Goal.RUN`.
        store: The store that gets the run.
        notify_target: A command to run or a URL to notify when the run ends.
    """
    plan, folder = submission.plan, submission.run_folder
    if plan.engine == "htcondor":
        load_bindings()  # raises UsageError before anything is written
    folder.root.mkdir(parents=True, mode=0o700)
    (folder.root.parent.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    write_secrets(folder.secrets, submission.secret_values)
    write_secret_sources(folder.secret_sources, submission.secret_sources, submission.workflow_dir)
    _copy_files(submission.index_paths, folder.indexes)
    submission.workspaces.write(folder)
    write_plan(plan, folder.plan)
    if notify_target:
        notifications.write_target(folder.notify, notify_target)
    if submission.run_settings:
        run_setup.write_run_files(plan, folder, submission.run_settings)
        if submission.without_agent:
            shell_runner.write_scripts(plan, folder)
    else:
        _write_job_plans(plan, folder)
    build_agent(folder.agent)
    write_launcher(folder.launcher)
    run_info = RunInfo(plan.run, plan.name, plan.engine, folder.root, time.time())
    store.add_run(run_info, _make_run_created_event(plan, run_info))
    _logger.info("created the run %s in %s", run_info.run, run_info.folder)
    return run_info


def _copy_files(paths: Iterable[Path], folder: Path) -> None:
    for path in paths:
        folder.mkdir(exist_ok=True)
        shutil.copyfile(path, folder / path.name)


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
