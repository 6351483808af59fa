"""The supervisor as a process of its own, which `control` starts."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from packtrain import services
from packtrain.errors import LeaseLostError, UnavailableError
from packtrain.events import kinds
from packtrain.runs.control import notify_run_ended
from packtrain.runs.reports import save_training_chart
from packtrain.runs.secrets import delete_secrets
from packtrain.store import Lease, RunInfo, SqliteStore
from packtrain.supervise import Supervisor
from packtrain.supervise.lease import LEASE_TTL_S, acquire_lease, process_identity

_LEASE_RETRY_INTERVAL_S = 0.5


def supervise_run(
    run_info: RunInfo,
    store: SqliteStore,
    *,
    reopen_after_epoch: int | None = None,
    in_job: bool = False,
    until_stdin_closes: bool = False,
) -> list[str]:
    """Supervise a run in this process until every job has a result.

    Args:
        run_info: The run.
        store: The store.
        reopen_after_epoch: Give jobs a new attempt budget, unless a supervisor after this lease epoch has done so.
        in_job: This process is a job of the schedd or of Slurm: TERM hands over, USR1 stops the jobs.
        until_stdin_closes: Stop the run when standard input is closed.

    Returns:
        Messages about the chart and the notification, if they failed.

    Raises:
        UnavailableError: The run has another supervisor, or a service does not respond.
    """
    lease = _wait_for_lease(store, run_info.run, LEASE_TTL_S if in_job else 0.0)
    supervisor = services.make_supervisor(run_info, store, lease)
    _install_signal_handlers(supervisor, in_job)
    if until_stdin_closes:
        _stop_at_end_of(sys.stdin.fileno(), supervisor)
    reopen = reopen_after_epoch is not None and not _was_reopened_after(store, run_info.run, reopen_after_epoch)
    state = supervisor.run(reopen=reopen)
    delete_secrets(run_info, state)
    _, chart_problem = save_training_chart(store, run_info, state)
    return [problem for problem in (chart_problem, notify_run_ended(run_info, state)) if problem]


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


def has_other_supervisor(run_info: RunInfo, store: SqliteStore, error: UnavailableError) -> bool:
    """Return True if another process supervises the run; other reasons for the error may be temporary."""
    lease = services.live_supervisor_lease(store, run_info.run)
    other = lease is not None and lease.holder != process_identity(os.getpid())
    return other or isinstance(error, LeaseLostError)


def _install_signal_handlers(supervisor: Supervisor, in_job: bool) -> None:
    """Stop the jobs on INT and USR1. In a job, TERM only hands over: the pool starts the supervisor again."""
    signal.signal(signal.SIGINT, lambda *_: supervisor.stop())
    signal.signal(signal.SIGUSR1, lambda *_: supervisor.stop())
    signal.signal(signal.SIGTERM, lambda *_: supervisor.hand_over() if in_job else supervisor.stop())


def _stop_at_end_of(pipe: int, supervisor: Supervisor) -> None:
    """Stop the supervisor when the other end of a pipe is closed."""

    def read_until_closed() -> None:
        while os.read(pipe, 1):
            pass
        supervisor.stop()

    threading.Thread(target=read_until_closed, daemon=True).start()


def _was_reopened_after(store: SqliteStore, run: str, epoch: int) -> bool:
    """Return True if a supervisor with a later lease epoch has reopened the jobs of the run."""
    decisions = (stored.event.data for stored in store.events(run, kind=kinds.DECISION_MADE))
    return any(data.get("action") == "reopen" and data.get("epoch", 0) > epoch for data in decisions)
