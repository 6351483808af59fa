"""The progress of building an index. Used by index, preview and run."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from packtrain.cli.ui.output import add_hint, console, print_line
from packtrain.cli.ui.transfer_progress import CancelToken
from packtrain.data.index_options import IndexOptions
from packtrain.errors import FailedError
from packtrain.formatting import format_percent
from packtrain.indexing import IndexResult

RESUME_HINT = "the entries found so far are saved; run the same command again to resume"
_LINE_INTERVAL_S = 10.0


def get_or_build_index(
    options: IndexOptions, path: Path | None, cancel_token: CancelToken, *, rebuild: bool, quiet: bool
) -> IndexResult:
    """Return the index, from the cache or built now with a progress bar. Raises FailedError with a hint."""
    try:
        with IndexProgressBar(options.name, quiet) as bar:
            return options.get_or_build(path, cancel_token.check_cancelled, bar.on_progress, rebuild=rebuild)
    except FailedError as error:
        raise add_hint(error) from error


class IndexProgressBar:
    """A progress bar in a terminal; elsewhere a line every 10 s."""

    def __init__(self, name: str, quiet: bool) -> None:
        self._name, self._quiet, self._next_line_at = name, quiet, time.monotonic() + _LINE_INTERVAL_S
        columns = (
            TextColumn("{task.description}", "bold", markup=False),
            BarColumn(28),
            TextColumn("{task.fields[files]:,} files", markup=False),
        )
        self._bar = Progress(*columns, TimeRemainingColumn(), console=console(), transient=True)
        self._task = self._bar.add_task(name, total=None, files=0)
        self._is_live = not quiet and console().is_terminal

    def __enter__(self) -> IndexProgressBar:
        if self._is_live:
            self._bar.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_live:
            self._bar.stop()

    def on_progress(self, done_bytes: int, total_bytes: int | None, n_files: int) -> None:
        """Show how many files were found in how many bytes."""
        if self._is_live:
            self._bar.update(self._task, completed=done_bytes, total=total_bytes, files=n_files)
        elif not self._quiet and time.monotonic() > self._next_line_at:
            self._next_line_at = time.monotonic() + _LINE_INTERVAL_S
            share = f", {format_percent(done_bytes / total_bytes)} scanned" if total_bytes else ""
            print_line(f"{self._name}: {n_files:,} files found{share}")
