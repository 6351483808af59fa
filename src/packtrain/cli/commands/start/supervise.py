"""packtrain supervise: the supervisor as a process of its own, started by `run --detach`. Hidden."""

from __future__ import annotations

import os
import signal
import time

import click

from packtrain import services
from packtrain.errors import EXIT_INTERNAL, LeaseLostError, UnavailableError
from packtrain.store import Lease, RunInfo, SqliteStore
from packtrain.supervise import Supervisor
from packtrain.supervise.lease import LEASE_TTL_S, acquire_lease, process_identity

_LEASE_RETRY_INTERVAL_S = 0.5


@click.command(name="supervise", hidden=True)
@click.argument("run")
@click.option("--reopen-after", type=int, metavar="EPOCH", help="Give jobs a fresh start, unless that was done since.")
@click.option("--in-schedd", is_flag=True, help="As a job of the schedd: TERM leaves, USR1 ends the jobs.")
def command(run: str, reopen_after_epoch: int | None, in_schedd: bool) -> None:
    """Supervise a run until every job has its verdict."""
    store = services.open_store()
    row = services.find_run(store, run)
    try:
        _supervise(row, store, reopen_after_epoch, in_schedd)
    except UnavailableError as error:
        if not in_schedd or _has_other_supervisor(row, store, error):
            raise
        click.echo(f"packtrain: {error}; the schedd starts the supervisor again", err=True)
        raise click.exceptions.Exit(EXIT_INTERNAL) from None


def _supervise(run_info: RunInfo, store: SqliteStore, reopen_after: int | None, in_schedd: bool) -> None:
    lease = _wait_for_lease(store, run_info.run, LEASE_TTL_S if in_schedd else 0.0)
    supervisor = services.make_supervisor(run_info, store, lease)
    _install_signal_handlers(supervisor, in_schedd)
    reopen = reopen_after is not None and not services.was_reopened_after(store, run_info.run, reopen_after)
    state = supervisor.run(reopen=reopen)
    services.delete_secrets(run_info, state)
    _, undrawn = services.save_training_chart(store, run_info, state)
    for trouble in filter(None, (undrawn, services.notify_run_ended(run_info, state))):
        click.echo(trouble, err=True)


def _wait_for_lease(store: SqliteStore, run: str, timeout_s: float) -> Lease:
    """A predecessor that was killed where nobody can see it is believed to live until its lease has run out."""
    deadline = time.monotonic() + timeout_s + _LEASE_RETRY_INTERVAL_S
    while True:
        try:
            return acquire_lease(store, run)
        except UnavailableError:
            if not timeout_s or time.monotonic() > deadline or services.live_supervisor_lease(store, run) is None:
                raise
        time.sleep(_LEASE_RETRY_INTERVAL_S)


def _has_other_supervisor(run_info: RunInfo, store: SqliteStore, error: UnavailableError) -> bool:
    """Whether somebody else supervises the run; anything else that is refused may pass."""
    lease = services.live_supervisor_lease(store, run_info.run)
    other = lease is not None and lease.holder != process_identity(os.getpid())
    return other or isinstance(error, LeaseLostError)


def _install_signal_handlers(supervisor: Supervisor, in_schedd: bool) -> None:
    """A schedd that shuts down starts the supervisor again later: the jobs go on meanwhile."""
    signal.signal(signal.SIGINT, lambda *_: supervisor.stop())
    signal.signal(signal.SIGUSR1, lambda *_: supervisor.stop())
    signal.signal(signal.SIGTERM, lambda *_: supervisor.hand_over() if in_schedd else supervisor.stop())
