"""packtrain check"""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from packtrain.cli.ui.options import expect_option
from packtrain.cli.ui.output import (
    json_option,
    pluralize,
    print_diagnostics,
    print_next_commands,
    print_result,
    resource_override_options,
)
from packtrain.errors import EXIT_USAGE
from packtrain.submission import prepare


@click.command(name="check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--on", "engine", help="Could it run there, now? Without it, what is missing is a warning.")
@resource_override_options
@expect_option
@json_option
def command(
    file: Path, engine: str | None, no_container: bool, no_gpu: bool, expect: tuple[str, ...], as_json: bool
) -> None:
    """Check a workflow or submit file: all problems at once, each with its line. Exit code 2 if there are errors."""
    prepared = prepare.prepare_submission(
        file,
        engine or "local",
        strict=engine is not None,
        no_container=no_container,
        no_gpu=no_gpu,
        expect=expect,
    )
    errors = sum(problem.is_error for problem in prepared.diagnostics)
    data = {"file": str(file), "errors": errors, "problems": [p.to_data() for p in prepared.diagnostics]}

    def print_text(out: Console) -> None:
        print_diagnostics(prepared.diagnostics)
        warnings = len(prepared.diagnostics) - errors
        told = f"{pluralize(errors, 'error')}, {pluralize(warnings, 'warning')}"
        if errors:
            out.print(f"{file}: {told}", style="red")
        else:
            out.print(
                f"{file} is a valid workflow of {pluralize(len(prepared.plan.jobs), 'job')} ({told})", style="green"
            )
            print_next_commands((f"packtrain plan {file}", "what would be done"), (f"packtrain run {file}", "do it"))

    print_result(as_json, data, print_text)
    if errors:
        raise click.exceptions.Exit(EXIT_USAGE)
