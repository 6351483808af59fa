"""Supervise a run in the foreground.

The supervisor runs in a thread; the main thread shows the run and handles Ctrl-C.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NoReturn

import click
from rich.live import Live

from packtrain import services
from packtrain.cli.ui.output import console, print_line, print_result, print_warning
from packtrain.cli.ui.run_summary import print_run_summary, run_exit_code, summary_data, write_charts_and_report
from packtrain.errors import EXIT_INTERRUPTED
from packtrain.runs import control, secrets
from packtrain.state import RunState
from packtrain.store import RunInfo
from packtrain.supervise import Supervisor
from packtrain.views.event_feed import EventFeed
from packtrain.views.event_lines import EventLineFormatter
from packtrain.views.run_table import render_run

_REFRESH_INTERVAL_S = 0.1


def supervise_and_report(run_info: RunInfo, *, reopen: bool, as_json: bool) -> NoReturn:
    """Supervise a run to its end, print its summary and exit with its exit code.

    Args:
        run_info: the run.
        reopen: give jobs that ended without success a new attempt budget.
        as_json: print the summary as JSON and nothing else.
    """
    if not as_json:
        console().print(f"run {run_info.run} in {run_info.folder}", style="dim")
    state = supervise_in_foreground(run_info, reopen=reopen, as_json=as_json)
    report = write_charts_and_report(run_info, state)
    print_result(
        as_json, summary_data(run_info, state, report), lambda out: print_run_summary(out, run_info, state, report)
    )
    if problem := control.notify_run_ended(run_info, state):
        print_warning(problem)
    raise click.exceptions.Exit(run_exit_code(state))


def supervise_in_foreground(run_info: RunInfo, *, reopen: bool, as_json: bool) -> RunState:
    """Supervise the run and show it until it ends or is interrupted; return its final state."""
    with ThreadPoolExecutor(1) as pool:
        started: Future[Supervisor] = Future()
        result = pool.submit(_run_supervisor, run_info, reopen, started)
        supervisor = started.result()
        with _stop_on_signals(supervisor):
            _display_until_done(run_info, result, as_json)
        state = result.result()
    secrets.delete_secrets(run_info, state)
    return state


def _run_supervisor(run_info: RunInfo, reopen: bool, supervisor_future: Future[Supervisor]) -> RunState:
    """Run the supervisor in this thread; the store is opened here because SQLite connections belong to one thread."""
    try:
        supervisor = services.make_supervisor(run_info, services.open_store())
        supervisor.acquire_lease()
    except BaseException as error:
        supervisor_future.set_exception(error)
        raise
    supervisor_future.set_result(supervisor)
    return supervisor.run(reopen=reopen)


@contextmanager
def _stop_on_signals(supervisor: Supervisor) -> Iterator[None]:
    """Stop cleanly on the first Ctrl-C and exit at once on the second; agents keep running and are found again."""
    stop_requested = threading.Event()

    def on_signal(signum: int, frame: Any) -> None:
        if stop_requested.is_set():
            print_warning("exited; the agents keep running")
            raise SystemExit(EXIT_INTERRUPTED)
        stop_requested.set()
        supervisor.stop()
        print_warning("stopping: attempts save their checkpoints and outputs (Ctrl-C again exits at once)")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _display_until_done(run_info: RunInfo, state_future: Future[RunState], as_json: bool) -> None:
    feed = EventFeed(services.open_store(), run_info.run)
    if as_json or not console().is_terminal:
        _print_events_until_done(feed, state_future, quiet=as_json)
        return
    with Live(console=console(), refresh_per_second=1 / _REFRESH_INTERVAL_S, transient=True) as live:
        while not state_future.done():
            feed.poll()
            live.update(render_run(feed.state, True, console().width, max_rows=max(5, console().height - 4)))
            time.sleep(_REFRESH_INTERVAL_S)


def _print_events_until_done(feed: EventFeed, state_future: Future[RunState], quiet: bool) -> None:
    formatter: EventLineFormatter | None = None
    while True:
        is_last_poll = state_future.done()
        for event in feed.poll():
            formatter = formatter or EventLineFormatter(len(feed.state.jobs))
            text = None if quiet else formatter.format_event(event)
            if text:
                print_line(text)
        if is_last_poll:
            return
        time.sleep(_REFRESH_INTERVAL_S)
