"""packtrain supervise: a hidden command that runs the supervisor as a background process for --detach."""

from __future__ import annotations

import os
import signal
import sys
import time

import click

from packtrain import services
from packtrain.errors import EXIT_INTERNAL, LeaseLostError, UnavailableError
from packtrain.runs import control
from packtrain.runs.reports import save_training_chart
from packtrain.runs.secrets import delete_secrets
from packtrain.store import Lease, RunInfo, SqliteStore
from packtrain.supervise import Supervisor
from packtrain.supervise.lease import LEASE_TTL_S, acquire_lease, process_identity

_LEASE_RETRY_INTERVAL_S = 0.5


@click.command(name="supervise", hidden=True)
@click.argument("run")
@click.option(
    "--reopen-after-epoch",
    type=int,
    metavar="EPOCH",
    help="Give jobs a new attempt budget, unless a supervisor after this lease epoch has done so.",
)
@click.option("--in-schedd", is_flag=True, help="Run as a job of the schedd: TERM hands over, USR1 stops the jobs.")
@click.option("--until-stdin-closes", is_flag=True, help="Stop the run when standard input is closed.")
def command(run: str, reopen_after_epoch: int | None, in_schedd: bool, until_stdin_closes: bool) -> None:
    """Supervise a run until every job has a result."""
    store = services.open_store()
    run_info = services.find_run(store, run)
    try:
        _supervise(run_info, store, reopen_after_epoch, in_schedd, until_stdin_closes)
    except UnavailableError as error:
        if not in_schedd or _has_other_supervisor(run_info, store, error):
            raise
        click.echo(f"packtrain: {error}; the schedd restarts the supervisor", err=True)
        raise click.exceptions.Exit(EXIT_INTERNAL) from None


def _supervise(
    run_info: RunInfo, store: SqliteStore, reopen_after_epoch: int | None, in_schedd: bool, until_stdin_closes: bool
) -> None:
    lease = _wait_for_lease(store, run_info.run, LEASE_TTL_S if in_schedd else 0.0)
    supervisor = services.make_supervisor(run_info, store, lease)
    _install_signal_handlers(supervisor, in_schedd)
    if until_stdin_closes:
        control.stop_at_end_of(sys.stdin.buffer, supervisor)
    reopen = reopen_after_epoch is not None and not control.was_reopened_after(store, run_info.run, reopen_after_epoch)
    state = supervisor.run(reopen=reopen)
    delete_secrets(run_info, state)
    _, chart_problem = save_training_chart(store, run_info, state)
    for problem in filter(None, (chart_problem, control.notify_run_ended(run_info, state))):
        click.echo(problem, err=True)


def _wait_for_lease(store: SqliteStore, run: str, timeout_s: float) -> Lease:
    """Acquire the lease; a predecessor killed on another host counts as alive until its lease expires."""
    deadline = time.monotonic() + timeout_s + _LEASE_RETRY_INTERVAL_S
    while True:
        try:
            return acquire_lease(store, run)
        except UnavailableError:
            if not timeout_s or time.monotonic() > deadline or services.live_supervisor_lease(store, run) is None:
                raise
        time.sleep(_LEASE_RETRY_INTERVAL_S)


def _has_other_supervisor(run_info: RunInfo, store: SqliteStore, error: UnavailableError) -> bool:
    """Return True if another process supervises the run; other reasons for the error may be temporary."""
    lease = services.live_supervisor_lease(store, run_info.run)
    other = lease is not None and lease.holder != process_identity(os.getpid())
    return other or isinstance(error, LeaseLostError)


def _install_signal_handlers(supervisor: Supervisor, in_schedd: bool) -> None:
    """Stop the jobs on INT and USR1. In a schedd, TERM only hands over: it restarts the supervisor after a shutdown."""
    signal.signal(signal.SIGINT, lambda *_: supervisor.stop())
    signal.signal(signal.SIGUSR1, lambda *_: supervisor.stop())
    signal.signal(signal.SIGTERM, lambda *_: supervisor.hand_over() if in_schedd else supervisor.stop())
