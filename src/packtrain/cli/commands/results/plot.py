"""packtrain plot"""

from __future__ import annotations

from pathlib import Path

import click

from packtrain import services
from packtrain.cli.ui.output import dry_run_option, json_option, pluralize, print_result
from packtrain.errors import NotFoundError, UsageError
from packtrain.plan import RunFolder
from packtrain.report.readers.training_curves import TrainingCurves, format_subtitle


@click.command(name="plot")
@click.argument("run", default="")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A .png, .svg or .pdf [default: training.png].")
@dry_run_option
@json_option
def command(run: str, output: Path | None, dry_run: bool, as_json: bool) -> None:
    """Draw the training of a run (the newest, if none is named): loss and metric of every job, over its steps.

    Attempts that went on from a checkpoint continue the line. A finished run has the picture in its folder already.
    """
    store = services.open_store()
    row = services.find_run(store, run)
    state = services.refresh_state(store, row)
    curves = services.load_training_curves(store, state)
    if not curves.jobs:
        raise NotFoundError(
            f"no job of the run {row.run} has reported anything to draw; call packtrain.torch.metrics(step=…, loss=…)"
        )
    path = output or RunFolder(row.folder).training_chart
    if not dry_run:
        _save_plot(curves, path, format_subtitle(state))
    data = {"run": row.run, "picture": str(path), "jobs": len(curves.jobs), "metrics": list(curves.metrics)}
    told = f"{'would draw' if dry_run else 'drew'} {pluralize(len(curves.jobs), 'job')}: {path}"
    print_result(as_json, data, lambda out: out.print(told, markup=False))


def _save_plot(curves: TrainingCurves, path: Path, subtitle: str) -> None:
    from packtrain.report.charts.training import save_training_plot

    try:
        save_training_plot(curves, path, subtitle)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
