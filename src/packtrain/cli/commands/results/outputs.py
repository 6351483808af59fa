"""packtrain outputs"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from packtrain import formatting, services
from packtrain.cli.ui.output import console, count, dry_run_option, json_option, say_next, show
from packtrain.errors import NotFoundError, UsageError
from packtrain.plan import Item, Job, RunFolder, read_plan
from packtrain.state import JobStatus, RunState
from packtrain.transfer.api import Entry
from packtrain.transfer.fetch import fetch
from packtrain.transfer.registry import source_for

_PATIENCE_S = 10.0


@click.command(name="outputs")
@click.argument("target", metavar="[RUN[.JOB]]", default="")
@click.option("-c", "--copy", "folder", type=click.Path(path_type=Path), help="Copy them into this folder.")
@dry_run_option
@json_option
def command(target: str, folder: Path | None, dry_run: bool, as_json: bool) -> None:
    """List what a run brought home, or copy it; several jobs get a folder each."""
    store = services.open_store()
    row, wanted = services.find_job(store, target)
    state = services.refresh(store, row)
    jobs = [job for job in read_plan(RunFolder(row.folder).plan).jobs if wanted in (None, job.id)]
    reveal = services.reveal_of(row)
    found = [(job, entry) for job in jobs if _has_outputs(state, job) for entry in _list(job, reveal)]
    data = [_entry_data(job, entry) for job, entry in found]
    if not found:
        raise NotFoundError(f"the run {row.run} has no outputs yet; `packtrain ps {row.run}` shows how it stands")
    if folder is not None and not dry_run:
        _copy(found, folder, reveal, several=len(jobs) > 1, quiet=as_json)
    show(as_json, data, lambda out: _text(out, found, folder, dry_run))
    if folder is None and not as_json:
        say_next((f"packtrain outputs {row.run} --copy FOLDER", "bring them here"))


def _has_outputs(state: RunState, job: Job) -> bool:
    return job.output is not None and job.id in state.jobs and state.jobs[job.id].status is JobStatus.SUCCEEDED


def _list(job: Job, reveal: Any) -> list[Entry]:
    assert job.output is not None
    entries = source_for(job.output.ref, reveal).list(job.output.ref)
    return [entry for entry in entries if ".packtrain" not in PurePosixPath(entry.name).parts]


def _entry_data(job: Job, entry: Entry) -> dict[str, Any]:
    return {"job": job.id, "name": entry.name, "bytes": entry.size, "url": entry.ref.url}


def _text(out: Console, found: list[tuple[Job, Entry]], folder: Path | None, dry_run: bool) -> None:
    for job, entry in found:
        out.print(
            f"{job.id:>5}  {formatting.size(entry.size):>9}  {entry.ref.url.removeprefix('file://')}", markup=False
        )
    if folder is not None:
        out.print(f"{'would copy' if dry_run else 'copied'} {count(len(found), 'file')} to {folder}")


def _copy(found: list[tuple[Job, Entry]], folder: Path, reveal: Any, several: bool, quiet: bool) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console(), transient=True, disable=quiet) as bars:
        for job, entry in found:
            bar = bars.add_task(entry.name, total=entry.size)
            target = _target(folder / job.id if several else folder, entry.name)
            item = Item(entry.name, (entry.ref,), entry.size)
            fetch(
                item,
                target,
                reveal,
                patience_s=_PATIENCE_S,
                stop=lambda: None,
                progress=lambda done, total, bar=bar: bars.update(bar, completed=done),  # type: ignore[misc]
            )


def _target(folder: Path, name: str) -> Path:
    target = folder / name
    if folder.resolve() not in target.resolve().parents:
        raise UsageError(f"the output {name!r} would lie outside of {folder}")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target
