"""packtrain convert"""

from __future__ import annotations

from pathlib import Path

import click

from packtrain.cli.ui.options import expect_option
from packtrain.cli.ui.output import json_option, print_diagnostics, print_result
from packtrain.condor.submitfile import load_submit_file
from packtrain.errors import EXIT_USAGE


@click.command(name="convert")
@click.argument("file", type=click.Path(path_type=Path))
@expect_option
@json_option
def command(file: Path, expect: tuple[str, ...], as_json: bool) -> None:
    """Print the workflow file that a submit file of HTCondor means; `packtrain run` does the same with either.

    Paths in it are relative to the submit file's folder: keep both in one place. Exit code 2 if the submit file uses
    what packtrain cannot do.
    """
    adopted = load_submit_file(file, expect)
    problems = adopted.load_result.diagnostics
    failed = adopted.load_result.workflow is None
    if not as_json:
        print_diagnostics(problems)
    if as_json or not failed:
        data = {"file": str(file), "problems": [p.to_data() for p in problems], "workflow": adopted.document}
        text = adopted.to_workflow_text(file.name)
        print_result(as_json, data, lambda out: click.echo(text, nl=False))
    if failed:
        raise click.exceptions.Exit(EXIT_USAGE)
