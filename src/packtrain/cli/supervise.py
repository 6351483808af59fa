"""packtrain supervise: the supervisor as a process of its own, started by `run --detach`. Hidden."""

from __future__ import annotations

import signal

import click

from packtrain import app


@click.command(name="supervise", hidden=True)
@click.argument("run")
@click.option("--reopen", is_flag=True)
def command(run: str, reopen: bool) -> None:
    """Supervise a run until every job has its verdict."""
    store = app.open_store()
    row = app.find_run(store, run)
    supervisor = app.supervisor_of(row, store)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.stop())
    supervisor.acquire()
    state = supervisor.run(reopen=reopen)
    app.forget_secrets(row, state)
    _, trouble = app.draw_picture(store, row, state)
    if trouble:
        click.echo(trouble, err=True)
