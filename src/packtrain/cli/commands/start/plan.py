"""packtrain plan"""

from __future__ import annotations

from pathlib import Path

import click

from packtrain.cli.ui.options import expect_option, pixi_option, repeat_arguments
from packtrain.cli.ui.output import (
    json_option,
    print_next_commands,
    resource_override_options,
)
from packtrain.cli.ui.submission_progress import SubmissionProgress, exit_on_workflow_error
from packtrain.submission import Goal, prepare


@click.command(name="plan")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--on", "engine", default="local", show_default=True, help="Engine to plan for: local, htcondor or slurm."
)
@resource_override_options
@expect_option
@pixi_option
@click.option("--offline", is_flag=True, help="Do not query the sizes of the inputs.")
@json_option
def command(
    file: Path,
    engine: str,
    no_container: bool,
    no_gpu: bool,
    expect: tuple[str, ...],
    pixi: str,
    offline: bool,
    as_json: bool,
) -> None:
    """Show what `packtrain run` would do: jobs, data and sizes, resources, steps, expected files, outputs."""
    with exit_on_workflow_error():
        prepare(
            file,
            engine,
            goal=Goal.PLAN,
            progress=SubmissionProgress(as_json, show_plan=True),
            strict=False,
            no_container=no_container,
            no_gpu=no_gpu,
            expect=expect,
            pixi=pixi,
            offline=offline,
        )
    if not as_json:
        chosen = engine if engine != "local" else None
        print_next_commands(
            (f"packtrain run {repeat_arguments(file, chosen, no_container, no_gpu, expect, pixi)}", "run it")
        )
