"""packtrain convert"""

from __future__ import annotations

from pathlib import Path

import click

from packtrain.cli.ui.options import expect_option
from packtrain.cli.ui.output import json_option, print_diagnostics, print_result
from packtrain.errors import EXIT_USAGE, UsageError
from packtrain.submission import convert_file


@click.command(name="convert")
@click.argument("file", type=click.Path(path_type=Path))
@expect_option
@json_option
def command(file: Path, expect: tuple[str, ...], as_json: bool) -> None:
    """Convert an HTCondor submit file or a Slurm batch script to a workflow file and print it.

    `packtrain run` accepts all of them. Paths in the workflow are relative to the folder of the file: keep both files
    there. A batch script runs in the folder in which this command is called. Exits with 2 if the file uses a feature
    that packtrain does not support.
    """
    draft = convert_file(file, expect)
    if draft is None:
        raise UsageError(f"{file} is neither a submit file of HTCondor nor a script with #SBATCH lines")
    diagnostics = draft.load_result.diagnostics
    failed = draft.load_result.workflow is None
    if not as_json:
        print_diagnostics(diagnostics)
    if as_json or not failed:
        data = {
            "file": str(file),
            "diagnostics": [diagnostic.to_data() for diagnostic in diagnostics],
            "workflow": draft.document,
        }
        text = draft.to_workflow_text(file.name)
        print_result(as_json, data, lambda out: click.echo(text, nl=False))
    if failed:
        raise click.exceptions.Exit(EXIT_USAGE)
