"""packtrain plot"""

from __future__ import annotations

from pathlib import Path

import click

from packtrain import services
from packtrain.cli.ui.output import dry_run_option, json_option, print_result
from packtrain.formatting import pluralize
from packtrain.runs import reports


@click.command(name="plot")
@click.argument("run", default="")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="A .png, .svg or .pdf file (default: training.png in the folder of the run).",
)
@dry_run_option
@json_option
def command(run: str, output: Path | None, dry_run: bool, as_json: bool) -> None:
    """Plot the loss and metrics of every job of a run (default: the newest) over its steps.

    Executions that resumed from a checkpoint continue the line. A finished run already has the plot in its folder.
    """
    store = services.open_store()
    run_info = services.find_run(store, run)
    curves, path = reports.plot_training(store, run_info, output, dry_run=dry_run)
    data = {
        "run": run_info.run,
        "training_chart": str(path),
        "jobs": len(curves.jobs),
        "metrics": list(curves.metrics),
    }
    text = f"{'would plot' if dry_run else 'plotted'} {pluralize(len(curves.jobs), 'job')}: {path}"
    print_result(as_json, data, lambda out: out.print(text))
