"""packtrain outputs"""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from packtrain import formatting, services
from packtrain.cli.ui.output import console, dry_run_option, json_option, print_next_commands, print_result
from packtrain.formatting import pluralize
from packtrain.runs.outputs import OutputFile, Outputs, list_outputs


@click.command(name="outputs")
@click.argument("target", metavar="[RUN[.JOB]]", default="")
@click.option("-c", "--copy", "folder", type=click.Path(path_type=Path), help="Copy the outputs to this folder.")
@dry_run_option
@json_option
def command(target: str, folder: Path | None, dry_run: bool, as_json: bool) -> None:
    """List or copy the outputs of a run (default: the newest) or a job. Several jobs get a folder each."""
    store = services.open_store()
    run_info, job_id = services.find_job(store, target)
    outputs = list_outputs(store, run_info, job_id)
    outputs.require_files()
    if folder is not None and not dry_run:
        _copy_outputs(outputs, folder, quiet=as_json)
    data = [{"job": file.job, "name": file.name, "bytes": file.bytes, "url": file.url} for file in outputs.files]
    print_result(as_json, data, lambda out: _print_outputs(out, outputs, folder, dry_run))
    if folder is None and not as_json:
        print_next_commands((f"packtrain outputs {run_info.run} --copy FOLDER", "copy them to a folder"))


def _print_outputs(out: Console, outputs: Outputs, folder: Path | None, dry_run: bool) -> None:
    for file in outputs.files:
        size, path = formatting.format_size(file.bytes), file.url.removeprefix("file://")
        out.print(f"{file.job:>5}  {size:>9}  {path}")
        if file.answer:
            out.print(f"{'':>5}  {'':>9}  the server answered: {file.answer}")
    if folder is not None:
        out.print(f"{'would copy' if dry_run else 'copied'} {pluralize(len(outputs.files), 'file')} to {folder}")


def _copy_outputs(outputs: Outputs, folder: Path, quiet: bool) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    tasks: dict[OutputFile, TaskID] = {}
    with Progress(*columns, console=console(), transient=True, disable=quiet) as bars:

        def on_progress(file: OutputFile, done_bytes: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file.name, total=file.bytes)
            bars.update(tasks[file], completed=done_bytes)

        outputs.download(folder, on_progress)
