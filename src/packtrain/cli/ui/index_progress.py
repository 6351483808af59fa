"""What `packtrain index` and `packtrain peek` have in common: the index of what the command line names."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from packtrain.cli.ui.credentials import Access
from packtrain.cli.ui.hints import hinted
from packtrain.cli.ui.output import console
from packtrain.cli.ui.transfer_progress import Stop
from packtrain.errors import FailedError, UsageError
from packtrain.indexing import Obtained, Wish, obtain
from packtrain.indexing.braces import expanded
from packtrain.stream.index import SUFFIX, Index
from packtrain.transfer.urls import name_of

GOES_ON = "what was found is kept, and the same command goes on from there"
_LINE_EVERY_S = 10.0


@dataclass(frozen=True)
class Asked:
    """`urls` as on the command line: addresses with braces, paths of this machine, or one index."""

    urls: Sequence[str]
    mirrors: Sequence[str]
    access: Access
    patience_s: float
    grouped: bool | None = None
    below: str = ""

    @property
    def name(self) -> str:
        return name_of(self.urls[0].rstrip("/")) or self.urls[0]

    def given(self) -> Index | None:
        """If it is an index that was named."""
        path = Path(self.urls[0])
        return Index.open(path) if len(self.urls) == 1 and path.name.endswith(SUFFIX) and path.is_file() else None

    def wish(self) -> Wish:
        urls = [address(one) for url in self.urls for one in expanded(url)]
        if self.mirrors and len(urls) > 1:
            raise UsageError("--mirror belongs to one archive; index the archives one by one, or without it")
        archives = [[self.access.ref(one, url) for one in (url, *self.mirrors)] for url in urls]
        return Wish(archives, self.access.reveal, self.patience_s, self.grouped, self.below)

    def obtain(self, target: Path | None, stop: Stop, *, anew: bool, quiet: bool) -> Obtained:
        try:
            with Bar(self.name, quiet) as bar:
                return obtain(self.wish(), home(), target, anew=anew, stop=stop.check, progress=bar.progress)
        except FailedError as error:
            raise hinted(error) from error


def address(given: str) -> str:
    """A path of this machine is as good as an address."""
    path = Path(given)
    if "://" in given or not path.exists():
        return given
    return path.absolute().as_uri() + ("/" if path.is_dir() else "")


def home() -> Path:
    """Where indexes are kept that have no place of their own."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "packtrain" / "indexes"


class Bar:
    """Drawn in a terminal, else told in a line now and then."""

    def __init__(self, name: str, quiet: bool) -> None:
        self._name, self._quiet, self._next_line = name, quiet, time.monotonic() + _LINE_EVERY_S
        columns = (TextColumn("[bold]{task.description}"), BarColumn(28), TextColumn("{task.fields[files]:,} files"))
        self._bar = Progress(*columns, TimeRemainingColumn(), console=console(), transient=True)
        self._task = self._bar.add_task(name, total=None, files=0)
        self._draws = not quiet and console().is_terminal

    def __enter__(self) -> Bar:
        if self._draws:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._draws:
            self._bar.stop()

    def progress(self, done: int, total: int | None, files: int) -> None:
        if self._draws:
            self._bar.update(self._task, completed=done, total=total, files=files)
        elif not self._quiet and time.monotonic() > self._next_line:
            self._next_line = time.monotonic() + _LINE_EVERY_S
            share = f", {done / total:.0%} of it passed" if total else ""
            click.echo(f"{self._name}: {files:,} files found{share}")
