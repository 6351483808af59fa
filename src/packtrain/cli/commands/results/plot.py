"""packtrain plot"""

from __future__ import annotations

from pathlib import Path

import click

from packtrain import services
from packtrain.cli.ui.output import count, dry_run_option, json_option, show
from packtrain.errors import NotFoundError, UsageError
from packtrain.plan import RunFolder
from packtrain.report.readers.training_curves import Curves, subtitle_of


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
    state = services.refresh(store, row)
    curves = services.curves_of_run(store, state)
    if not curves.jobs:
        raise NotFoundError(
            f"no job of the run {row.run} has reported anything to draw; call packtrain.torch.metrics(step=…, loss=…)"
        )
    path = output or RunFolder(row.folder).picture
    if not dry_run:
        _draw(curves, path, subtitle_of(state))
    data = {"run": row.run, "picture": str(path), "jobs": len(curves.jobs), "metrics": list(curves.names)}
    told = f"{'would draw' if dry_run else 'drew'} {count(len(curves.jobs), 'job')}: {path}"
    show(as_json, data, lambda out: out.print(told, markup=False))


def _draw(curves: Curves, path: Path, subtitle: str) -> None:
    from packtrain.report.charts.training import draw_training

    try:
        draw_training(curves, path, subtitle)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
