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
from packtrain.store import RunRow
from packtrain.supervise import Supervisor
from packtrain.views.event_feed import Feed
from packtrain.views.plain import Lines
from packtrain.views.run_table import draw

_TICK_S = 0.1


def attend(row: RunRow, *, reopen: bool, as_json: bool) -> RunState:
    """Supervise the run and show it until it ends or is interrupted."""
    with ThreadPoolExecutor(1) as pool:
        started: Future[Supervisor] = Future()
        work = pool.submit(_supervise, row, reopen, started)
        supervisor = started.result()
        with _signals(supervisor):
            _show(row, work, as_json)
        state = work.result()
    services.forget_secrets(row, state)
    return state


def _supervise(row: RunRow, reopen: bool, started: Future[Supervisor]) -> RunState:
    """In the thread: a store connection belongs to the thread that made it."""
    try:
        supervisor = services.supervisor_of(row, services.open_store())
        supervisor.acquire()
    except BaseException as error:
        started.set_exception(error)
        raise
    started.set_result(supervisor)
    return supervisor.run(reopen=reopen)


@contextmanager
def _signals(supervisor: Supervisor) -> Iterator[None]:
    """The first Ctrl-C stops cleanly, the second leaves at once: agents go on and can be found again."""
    asked = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
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


def _show(row: RunRow, work: Future[RunState], as_json: bool) -> None:
    feed = Feed(services.open_store(), row.run)
    if as_json or not console().is_terminal:
        _tell(feed, work, quiet=as_json)
        return
    with Live(console=console(), refresh_per_second=1 / _TICK_S, transient=True) as live:
        while not work.done():
            feed.poll()
            live.update(draw(feed.state, True, console().width, rows=max(5, console().height - 4)))
            time.sleep(_TICK_S)


def _tell(feed: Feed, work: Future[RunState], quiet: bool) -> None:
    lines: Lines | None = None
    while True:
        last_look = work.done()
        for event in feed.poll():
            lines = lines or Lines(len(feed.state.jobs))
            text = None if quiet else lines.of(event)
            if text:
                click.echo(text)
        if last_look:
            return
        time.sleep(_TICK_S)
