"""packtrain check"""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from packtrain.cli.ui.options import expect_option, pixi_option, repeat_arguments
from packtrain.cli.ui.output import (
    json_option,
    print_diagnostics,
    print_next_commands,
    print_result,
    resource_override_options,
)
from packtrain.errors import EXIT_USAGE
from packtrain.formatting import pluralize
from packtrain.submission import Goal, WorkflowError, prepare


@click.command(name="check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--on",
    "engine",
    help="Also check that the workflow can run on this engine now. Without it, missing resources are only warnings.",
)
@resource_override_options
@expect_option
@pixi_option
@json_option
def command(
    file: Path, engine: str | None, no_container: bool, no_gpu: bool, expect: tuple[str, ...], pixi: str, as_json: bool
) -> None:
    """Check a workflow or submit file and list every problem with its line. Exits with 2 if there are errors."""
    n_jobs = 0
    try:
        submission = prepare(
            file,
            engine or "local",
            goal=Goal.CHECK,
            strict=engine is not None,
            no_container=no_container,
            no_gpu=no_gpu,
            expect=expect,
            pixi=pixi,
        )
        diagnostics, n_jobs = submission.diagnostics, len(submission.plan.jobs)
    except WorkflowError as error:
        diagnostics = error.diagnostics
    n_errors = sum(diagnostic.is_error for diagnostic in diagnostics)
    data = {
        "file": str(file),
        "errors": n_errors,
        "diagnostics": [diagnostic.to_data() for diagnostic in diagnostics],
    }

    def print_text(out: Console) -> None:
        print_diagnostics(diagnostics)
        counts = f"{pluralize(n_errors, 'error')}, {pluralize(len(diagnostics) - n_errors, 'warning')}"
        if n_errors:
            out.print(f"{file}: {counts}", style="red")
            return
        out.print(f"{file} is a valid workflow of {pluralize(n_jobs, 'job')} ({counts})", style="green")
        arguments = repeat_arguments(file, engine, no_container, no_gpu, expect, pixi)
        print_next_commands(
            (f"packtrain plan {arguments}", "show what it would do"), (f"packtrain run {arguments}", "run it")
        )

    print_result(as_json, data, print_text)
    if n_errors:
        raise click.exceptions.Exit(EXIT_USAGE)
