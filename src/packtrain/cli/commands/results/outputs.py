"""packtrain outputs"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from packtrain import formatting, services
from packtrain.cli.ui.output import console, dry_run_option, json_option, print_next_commands, print_result
from packtrain.errors import NotFoundError, UsageError
from packtrain.formatting import pluralize
from packtrain.plan import Job, RemoteFile, RunFolder, read_plan
from packtrain.state import JobStatus, RunState
from packtrain.transfer.api import ListedObject
from packtrain.transfer.fetch import fetch
from packtrain.transfer.registry import get_source

_RETRY_TIMEOUT_S = 10.0


@click.command(name="outputs")
@click.argument("target", metavar="[RUN[.JOB]]", default="")
@click.option("-c", "--copy", "folder", type=click.Path(path_type=Path), help="Copy the outputs to this folder.")
@dry_run_option
@json_option
def command(target: str, folder: Path | None, dry_run: bool, as_json: bool) -> None:
    """List or copy the outputs of a run (default: the newest) or a job. Several jobs get a folder each."""
    store = services.open_store()
    run_info, job_id = services.find_job(store, target)
    run = run_info.run
    state = services.refresh_state(store, run_info)
    jobs = [job for job in read_plan(RunFolder(run_info.folder).plan).jobs if job_id in (None, job.id)]
    resolve_secret = services.make_secret_resolver(run_info)
    outputs = [(job, entry) for job in jobs if _has_outputs(state, job) for entry in _list_outputs(job, resolve_secret)]
    if not outputs:
        raise NotFoundError(f"the run {run} has no outputs yet; `packtrain ps {run}` shows its status")
    if folder is not None and not dry_run:
        _copy_outputs(outputs, folder, resolve_secret, folder_per_job=len(jobs) > 1, quiet=as_json)
    data = [_entry_data(job, entry) for job, entry in outputs]
    print_result(as_json, data, lambda out: _print_outputs(out, outputs, folder, dry_run))
    if folder is None and not as_json:
        print_next_commands((f"packtrain outputs {run} --copy FOLDER", "copy them to a folder"))


def _has_outputs(state: RunState, job: Job) -> bool:
    return job.output is not None and job.id in state.jobs and state.jobs[job.id].status is JobStatus.SUCCEEDED


def _list_outputs(job: Job, resolve_secret: Any) -> list[ListedObject]:
    assert job.output is not None
    entries = get_source(job.output.location, resolve_secret).list(job.output.location)
    return [entry for entry in entries if ".packtrain" not in PurePosixPath(entry.name).parts]


def _entry_data(job: Job, entry: ListedObject) -> dict[str, Any]:
    return {"job": job.id, "name": entry.name, "bytes": entry.size, "url": entry.location.url}


def _print_outputs(out: Console, outputs: list[tuple[Job, ListedObject]], folder: Path | None, dry_run: bool) -> None:
    for job, entry in outputs:
        out.print(
            f"{job.id:>5}  {formatting.format_size(entry.size):>9}  {entry.location.url.removeprefix('file://')}",
            markup=False,
        )
    if folder is not None:
        out.print(f"{'would copy' if dry_run else 'copied'} {pluralize(len(outputs), 'file')} to {folder}")


def _copy_outputs(
    outputs: list[tuple[Job, ListedObject]], folder: Path, resolve_secret: Any, folder_per_job: bool, quiet: bool
) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console(), transient=True, disable=quiet) as bars:
        for job, entry in outputs:
            bar = bars.add_task(entry.name, total=entry.size)
            target = _target_path(folder / job.id if folder_per_job else folder, entry.name)
            fetch(
                RemoteFile(entry.name, (entry.location,), entry.size),
                target,
                resolve_secret,
                retry_timeout_s=_RETRY_TIMEOUT_S,
                check_cancelled=lambda: None,
                on_progress=lambda done, total, bar=bar: bars.update(bar, completed=done),  # type: ignore[misc]
            )


def _target_path(folder: Path, name: str) -> Path:
    target = folder / name
    if folder.resolve() not in target.resolve().parents:
        raise UsageError(f"the output {name!r} would be written outside of {folder}")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target
