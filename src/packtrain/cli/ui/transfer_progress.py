"""Transfers in the foreground: a live picture or plain lines, and Ctrl-C that leaves everything in order."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import click
from rich.console import RenderableType
from rich.live import Live

from packtrain.cli.ui.output import console, error_console
from packtrain.errors import EXIT_INTERRUPTED, FailedError, UsageError
from packtrain.transfer.progress import Snapshot
from packtrain.views.transfer import Meter, Picture, draw, line

_REFRESH_PER_S = 8
_LINE_EVERY_S = 10.0


class Stop:
    """Asked for by Ctrl-C or TERM; whoever works asks it."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def request(self) -> None:
        self._asked.set()

    @property
    def requested(self) -> bool:
        return self._asked.is_set()

    def check(self) -> None:
        if self.requested:
            raise FailedError("cancelled", "stopped by a person")


@contextmanager
def stopping(goes_on: str) -> Iterator[Stop]:
    """Ctrl-C ends the work at its next step and says how it goes on; a second one ends it at once.

    A file or folder of this machine that cannot be used is told as a sentence.
    """
    stop = Stop()

    def on_signal(number: int, frame: Any) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.request()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield stop
    except FailedError:
        if not stop.requested:
            raise
        error_console().print(f"stopped; {goes_on}", style="yellow", markup=False)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    except OSError as error:
        if error.filename is None:
            raise
        raise UsageError(f"{error.filename} cannot be used: {error.strerror}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Follower:
    """Shows one transfer after the other: `begin`, then `progress` until it is done."""

    def __init__(self, quiet: bool) -> None:
        self._picture = Picture("", "")
        self._meter = Meter()
        self._next_line = 0.0
        self._tells = not quiet and not console().is_terminal
        self._draws = not quiet and console().is_terminal
        self._live = Live(
            console=console(), get_renderable=self._draw, refresh_per_second=_REFRESH_PER_S, transient=True
        )

    def __enter__(self) -> Follower:
        if self._draws:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._draws:
            self._live.stop()

    def begin(self, verb: str, name: str, total: int | None = None) -> None:
        self._picture, self._meter = Picture(verb, name, total=total), Meter()
        self._next_line = time.monotonic() + _LINE_EVERY_S

    def progress(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        self._show(replace(self._picture, done=done, total=total, rate=self._meter.add(now, done)))

    def observe(self, seen: Snapshot) -> None:
        """A fetch knows its own speed, and that of its sources."""
        self._show(replace(self._picture, done=seen.done, total=seen.total, rate=seen.rate, lanes=seen.sources))

    def _show(self, picture: Picture) -> None:
        self._picture = picture
        now = time.monotonic()
        if self._tells and now >= self._next_line:
            self._next_line = now + _LINE_EVERY_S
            click.echo(line(picture))

    def _draw(self) -> RenderableType:
        return draw(self._picture)
