"""Create a run: write its folder, then add it to the store."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from packtrain import notifications
from packtrain.engines.bundle import build_agent, write_launcher
from packtrain.engines.htcondor import run_setup, shell_runner
from packtrain.engines.htcondor.condor_client import load_bindings
from packtrain.engines.slurm.run_settings import SETTINGS_FILE
from packtrain.events import Event, kinds, new_emitter_id
from packtrain.fileutil import durable_mkdir, sync_folder, sync_tree
from packtrain.plan import Input, Location, Plan, RemoteFile, RunFolder, write_plan
from packtrain.plan.secret_files import write_inherited_variables
from packtrain.planner.credentials.secret_sources import write_secret_sources, write_secrets
from packtrain.store import RunInfo, SqliteStore
from packtrain.submission.prepare import Submission
from packtrain.transfer.urls import path_from_file_url

_logger = logging.getLogger(__name__)


def create_run(submission: Submission, store: SqliteStore, notify_target: str | None = None) -> RunInfo:
    """Write the folder of a run, then add the run to the store; a crash in between leaves only the folder.

    The folder is durable before the store names it.

    Args:
        submission: A submission that was prepared with `Goal.RUN`.
        store: The store that gets the run.
        notify_target: A command to run or a URL to notify when the run ends.
    """
    plan, folder = submission.plan, submission.run_folder
    if plan.engine == "htcondor":
        load_bindings()  # raises UsageError before anything is written
    durable_mkdir(folder.root.parent)
    folder.root.mkdir(mode=0o700)
    plan = _take_snapshots(plan, folder)
    (folder.root.parent.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    write_secrets(folder.secrets, submission.secret_values)
    write_secret_sources(folder.secret_sources, submission.secret_sources, submission.workflow_dir)
    if any(job.environment.inherit for job in plan.jobs):
        write_inherited_variables(folder.secrets, os.environ)
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
    if submission.slurm_settings:
        submission.slurm_settings.write(folder.slurm / SETTINGS_FILE)
    build_agent(folder.agent)
    write_launcher(folder.launcher)
    sync_tree(folder.root)
    sync_folder(folder.root.parent)
    run_info = RunInfo(plan.run, plan.name, plan.engine, folder.root, time.time())
    store.add_run(run_info, _make_run_created_event(plan, run_info))
    _logger.info("created the run %s in %s", run_info.run, run_info.folder)
    return run_info


def _copy_files(paths: Iterable[Path], folder: Path) -> None:
    for path in paths:
        folder.mkdir(exist_ok=True)
        shutil.copyfile(path, folder / path.name)


def _take_snapshots(plan: Plan, folder: RunFolder) -> Plan:
    """Copy the files of inputs that have a snapshot, and return the plan with the copies."""
    copies: dict[str, str] = {}  # URLs by URL of the original

    def copy(file: RemoteFile) -> RemoteFile:
        url = file.locations[0].url
        if url not in copies:
            target = folder.snapshots / str(len(copies)) / file.name
            target.parent.mkdir(parents=True)
            shutil.copy(path_from_file_url(url), target)
            copies[url] = target.absolute().as_uri()
        return replace(file, locations=(Location(copies[url]),))

    def with_copies(one: Input) -> Input:
        return replace(one, files=tuple(map(copy, one.files))) if one.snapshot else one

    return replace(plan, jobs=tuple(replace(job, inputs=tuple(map(with_copies, job.inputs))) for job in plan.jobs))


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
