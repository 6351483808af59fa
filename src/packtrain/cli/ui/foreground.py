"""Attending a run in the foreground: the supervisor in a thread, the view in this one, Ctrl-C in between."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import click
from rich.live import Live

from packtrain import services
from packtrain.cli.ui.output import console, error_console
from packtrain.state import RunState
from packtrain.store import RunInfo
from packtrain.supervise import Supervisor
from packtrain.views.event_feed import EventFeed
from packtrain.views.plain import PlainFormatter
from packtrain.views.run_table import render_run

_REFRESH_INTERVAL_S = 0.1


def supervise_in_foreground(run_info: RunInfo, *, reopen: bool, as_json: bool) -> RunState:
    """Supervise the run and show it until it ends or is interrupted."""
    with ThreadPoolExecutor(1) as pool:
        started: Future[Supervisor] = Future()
        work = pool.submit(_run_supervisor, run_info, reopen, started)
        supervisor = started.result()
        with _stop_on_signals(supervisor):
            _display_until_done(run_info, work, as_json)
        state = work.result()
    services.delete_secrets(run_info, state)
    return state


def _run_supervisor(run_info: RunInfo, reopen: bool, supervisor_future: Future[Supervisor]) -> RunState:
    """In the thread: a store connection belongs to the thread that made it."""
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
    """The first Ctrl-C stops cleanly, the second leaves at once: agents go on and can be found again."""
    asked = threading.Event()

    def on_signal(signum: int, frame: Any) -> None:
        if asked.is_set():
            error_console().print("left; the agents go on by themselves", style="yellow")
            raise SystemExit(130)
        asked.set()
        supervisor.stop()
        error_console().print("stopping: attempts save what they have (Ctrl-C again leaves at once)", style="yellow")

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
    lines: PlainFormatter | None = None
    while True:
        last_look = state_future.done()
        for event in feed.poll():
            lines = lines or PlainFormatter(len(feed.state.jobs))
            text = None if quiet else lines.format_event(event)
            if text:
                click.echo(text)
        if last_look:
            return
        time.sleep(_REFRESH_INTERVAL_S)
