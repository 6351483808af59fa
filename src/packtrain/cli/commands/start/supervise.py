"""packtrain supervise: a hidden command that runs the supervisor as a background process for --detach."""

from __future__ import annotations

import click

from packtrain import services
from packtrain.cli.ui.output import print_line
from packtrain.errors import EXIT_INTERNAL, UnavailableError
from packtrain.runs.supervise import has_other_supervisor, supervise_run


@click.command(name="supervise", hidden=True)
@click.argument("run")
@click.option(
    "--reopen-after-epoch",
    type=int,
    metavar="EPOCH",
    help="Give jobs a new attempt budget, unless a supervisor after this lease epoch has done so.",
)
@click.option("--in-job", is_flag=True, help="Run as a job of the pool: TERM hands over, USR1 stops the jobs.")
@click.option("--until-stdin-closes", is_flag=True, help="Stop the run when standard input is closed.")
def command(run: str, reopen_after_epoch: int | None, in_job: bool, until_stdin_closes: bool) -> None:
    """Supervise a run until every job has a result."""
    store = services.open_store()
    run_info = services.find_run(store, run)
    try:
        problems = supervise_run(
            run_info,
            store,
            reopen_after_epoch=reopen_after_epoch,
            in_job=in_job,
            until_stdin_closes=until_stdin_closes,
        )
    except UnavailableError as error:
        if not in_job or has_other_supervisor(run_info, store, error):
            raise
        print_line(f"packtrain: {error}; the pool restarts the supervisor", err=True)
        raise click.exceptions.Exit(EXIT_INTERNAL) from None
    for problem in problems:
        print_line(problem, err=True)
