"""packtrain supervise: the supervisor as a process of its own, started by `run --detach`. Hidden."""

from __future__ import annotations

import signal

import click

from packtrain import app
from packtrain.supervise import Supervisor
from packtrain.supervise.loop import take_lease


@click.command(name="supervise", hidden=True)
@click.argument("run")
@click.option("--reopen", is_flag=True)
@click.option("--in-schedd", is_flag=True, help="As a job of the schedd: TERM leaves, USR1 ends the jobs.")
def command(run: str, reopen: bool, in_schedd: bool) -> None:
    """Supervise a run until every job has its verdict."""
    store = app.open_store()
    row = app.find_run(store, run)
    supervisor = app.supervisor_of(row, store, take_lease(store, row.run))
    _listen(supervisor, in_schedd)
    state = supervisor.run(reopen=reopen)
    app.forget_secrets(row, state)
    _, undrawn = app.draw_picture(store, row, state)
    for trouble in filter(None, (undrawn, app.tell_end(row, state))):
        click.echo(trouble, err=True)


def _listen(supervisor: Supervisor, in_schedd: bool) -> None:
    """A schedd that shuts down starts the supervisor again later: the jobs go on meanwhile."""
    signal.signal(signal.SIGINT, lambda *_: supervisor.stop())
    signal.signal(signal.SIGUSR1, lambda *_: supervisor.stop())
    signal.signal(signal.SIGTERM, lambda *_: supervisor.leave() if in_schedd else supervisor.stop())
