"""Open or build the index of the URLs on a command line, with a progress bar. Used by index, preview and run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from packtrain.cli.ui.output import add_hint, console, print_line
from packtrain.cli.ui.transfer_progress import CancelToken
from packtrain.errors import FailedError, UsageError
from packtrain.formatting import format_percent
from packtrain.indexing import IndexRequest, IndexResult, get_or_build_index
from packtrain.indexing.braces import expand_braces
from packtrain.indexing.existing import index_cache_dir
from packtrain.planner.credentials.url_credentials import CredentialOptions
from packtrain.stream.index import INDEX_SUFFIX, Index
from packtrain.transfer.urls import filename_from_url

RESUME_HINT = "the entries found so far are saved; run the same command again to resume"
_LINE_INTERVAL_S = 10.0


@dataclass(frozen=True)
class IndexOptions:
    """What to index. `urls` are arguments of the command line: URLs with braces, local paths, or one index file."""

    urls: Sequence[str]
    mirrors: Sequence[str]
    credentials: CredentialOptions
    retry_timeout_s: float
    group_files: bool | None = None
    prefix: str = ""

    @property
    def name(self) -> str:
        """The file name of the first URL."""
        return filename_from_url(self.urls[0].rstrip("/")) or self.urls[0]

    def open_named_index(self) -> Index | None:
        """Return the index if the only argument is an index file."""
        path = Path(self.urls[0])
        return Index.open(path) if len(self.urls) == 1 and path.name.endswith(INDEX_SUFFIX) and path.is_file() else None

    def make_request(self) -> IndexRequest:
        """Return what `get_or_build_index` needs."""
        urls = [url_from_argument(argument) for url in self.urls for argument in expand_braces(url)]
        if self.mirrors and len(urls) > 1:
            raise UsageError("--mirror applies to one archive; index the archives one by one, or drop --mirror")
        archives = [[self.credentials.make_location(replica, url) for replica in (url, *self.mirrors)] for url in urls]
        return IndexRequest(
            archives, self.credentials.resolve_secret, self.retry_timeout_s, self.group_files, self.prefix
        )

    def get_or_build(self, path: Path | None, cancel_token: CancelToken, *, rebuild: bool, quiet: bool) -> IndexResult:
        """Return the index, from the cache or built now. Raises FailedError with a hint."""
        try:
            with IndexProgressBar(self.name, quiet) as bar:
                return get_or_build_index(
                    self.make_request(),
                    index_cache_dir(),
                    path,
                    rebuild=rebuild,
                    check_cancelled=cancel_token.check_cancelled,
                    on_progress=bar.on_progress,
                )
        except FailedError as error:
            raise add_hint(error) from error


def url_from_argument(argument: str) -> str:
    """Return the argument as a URL; an existing local path becomes a file:// URL."""
    path = Path(argument)
    if "://" in argument or not path.exists():
        return argument
    return path.absolute().as_uri() + ("/" if path.is_dir() else "")


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
