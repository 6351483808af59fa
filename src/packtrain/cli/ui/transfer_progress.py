"""Transfers in the foreground: a live display or plain lines, and a clean stop on Ctrl-C."""

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

from packtrain.cli.ui.output import console, print_line, print_warning
from packtrain.errors import EXIT_INTERRUPTED, FailedError, UsageError
from packtrain.transfer.progress import TransferSnapshot
from packtrain.views.transfer import RateMeter, TransferView, format_transfer, render_transfer

_REFRESH_PER_S = 8
_LINE_INTERVAL_S = 10.0


class CancelToken:
    """A flag that a signal sets and that working code checks."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def check_cancelled(self) -> None:
        """Raise FailedError if the work was cancelled."""
        if self.is_cancelled:
            raise FailedError("cancelled", "stopped by the user")


@contextmanager
def cancel_on_signal(resume_hint: str) -> Iterator[CancelToken]:
    """Cancel the work on Ctrl-C or TERM and print `resume_hint`; a second signal interrupts it at once.

    An OSError about a local file becomes a UsageError that names the file.
    """
    cancel_token = CancelToken()

    def on_signal(signum: int, frame: Any) -> None:
        if cancel_token.is_cancelled:
            raise KeyboardInterrupt
        cancel_token.cancel()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield cancel_token
    except FailedError:
        if not cancel_token.is_cancelled:
            raise
        print_warning(f"stopped; {resume_hint}")
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    except OSError as error:
        if error.filename is None:
            raise
        raise UsageError(f"{error.filename} cannot be used: {error.strerror}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class TransferProgress:
    """Shows one transfer after another: call `start`, then `on_progress` or `on_snapshot` until it is done.

    Args:
        quiet: Show nothing.
        line_interval_s: Seconds between lines, where the output is not a terminal.
    """

    def __init__(self, quiet: bool, line_interval_s: float = _LINE_INTERVAL_S) -> None:
        self._line_interval_s = line_interval_s
        self._view = TransferView("", "")
        self._meter = RateMeter()
        self._next_line_at = 0.0
        self._prints_lines = not quiet and not console().is_terminal
        self._is_live = not quiet and console().is_terminal
        self._live = Live(
            console=console(), get_renderable=self._render, refresh_per_second=_REFRESH_PER_S, transient=True
        )

    def __enter__(self) -> TransferProgress:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._is_live:
            self._live.stop()

    def start(self, verb: str, name: str, total_bytes: int | None = None) -> None:
        """Begin to show another transfer."""
        self._view, self._meter = TransferView(verb, name, total_bytes=total_bytes), RateMeter()
        self._next_line_at = time.monotonic() + self._line_interval_s

    def on_progress(self, done_bytes: int, total_bytes: int | None) -> None:
        """Show a byte count and the speed measured here."""
        now = time.monotonic()
        self._update_view(
            replace(
                self._view, done_bytes=done_bytes, total_bytes=total_bytes, bytes_per_s=self._meter.add(now, done_bytes)
            )
        )

    def on_snapshot(self, snapshot: TransferSnapshot) -> None:
        """Show the progress of a fetch, which measures its own speed and that of each source."""
        self._update_view(
            replace(
                self._view,
                done_bytes=snapshot.done_bytes,
                total_bytes=snapshot.total_bytes,
                bytes_per_s=snapshot.bytes_per_s,
                sources=snapshot.sources,
            )
        )

    def _update_view(self, view: TransferView) -> None:
        self._view = view
        now = time.monotonic()
        if self._prints_lines and now >= self._next_line_at:
            self._next_line_at = now + self._line_interval_s
            print_line(format_transfer(view))

    def _render(self) -> RenderableType:
        return render_transfer(self._view)
