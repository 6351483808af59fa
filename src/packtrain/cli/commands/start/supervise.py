"""packtrain supervise: the supervisor as a process of its own, started by `run --detach`. Hidden."""

from __future__ import annotations

import os
import signal
import time

import click

from packtrain import services
from packtrain.errors import EXIT_INTERNAL, LeaseLostError, RefusedError
from packtrain.store import Lease, RunRow, SqliteStore
from packtrain.supervise import Supervisor
from packtrain.supervise.supervisor import LEASE_S, process_identity, take_lease

_PAUSE_S = 0.5


@click.command(name="supervise", hidden=True)
@click.argument("run")
@click.option("--reopen-after", type=int, metavar="EPOCH", help="Give jobs a fresh start, unless that was done since.")
@click.option("--in-schedd", is_flag=True, help="As a job of the schedd: TERM leaves, USR1 ends the jobs.")
def command(run: str, reopen_after: int | None, in_schedd: bool) -> None:
    """Supervise a run until every job has its verdict."""
    store = services.open_store()
    row = services.find_run(store, run)
    try:
        _supervise(row, store, reopen_after, in_schedd)
    except RefusedError as error:
        if not in_schedd or _has_another(row, store, error):
            raise
        click.echo(f"packtrain: {error}; the schedd starts the supervisor again", err=True)
        raise click.exceptions.Exit(EXIT_INTERNAL) from None


def _supervise(row: RunRow, store: SqliteStore, reopen_after: int | None, in_schedd: bool) -> None:
    lease = _lease(store, row.run, LEASE_S if in_schedd else 0.0)
    supervisor = services.supervisor_of(row, store, lease)
    _listen(supervisor, in_schedd)
    reopen = reopen_after is not None and not services.is_reopened(store, row.run, reopen_after)
    state = supervisor.run(reopen=reopen)
    services.forget_secrets(row, state)
    _, undrawn = services.draw_picture(store, row, state)
    for trouble in filter(None, (undrawn, services.tell_end(row, state))):
        click.echo(trouble, err=True)


def _lease(store: SqliteStore, run: str, patience_s: float) -> Lease:
    """A predecessor that was killed where nobody can see it is believed to live until its lease has run out."""
    deadline = time.monotonic() + patience_s + _PAUSE_S
    while True:
        try:
            return take_lease(store, run)
        except RefusedError:
            if not patience_s or time.monotonic() > deadline or services.supervisor_lease(store, run) is None:
                raise
        time.sleep(_PAUSE_S)


def _has_another(row: RunRow, store: SqliteStore, error: RefusedError) -> bool:
    """Whether somebody else supervises the run; anything else that is refused may pass."""
    lease = services.supervisor_lease(store, row.run)
    other = lease is not None and lease.holder != process_identity(os.getpid())
    return other or isinstance(error, LeaseLostError)


def _listen(supervisor: Supervisor, in_schedd: bool) -> None:
    """A schedd that shuts down starts the supervisor again later: the jobs go on meanwhile."""
    signal.signal(signal.SIGINT, lambda *_: supervisor.stop())
    signal.signal(signal.SIGUSR1, lambda *_: supervisor.stop())
    signal.signal(signal.SIGTERM, lambda *_: supervisor.leave() if in_schedd else supervisor.stop())
