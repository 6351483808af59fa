"""Anything a person names as a history: user logs (globs, rotated, compressed, thousands) or a table of jobs.

What a file is, is decided by what stands in it. For runs of packtrain see `from_store`.
"""

from __future__ import annotations

import contextlib
import gc
import glob
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

from packtrain.condor.eventlog.job_event import Broken, Raw
from packtrain.condor.eventlog.log_files import families, is_log, records, start_of
from packtrain.errors import NotFoundError, UsageError
from packtrain.report.history import History, Job, Problem
from packtrain.report.readers.condor_log import LogFold
from packtrain.report.readers.job_table import is_table, read_table

_MOST_PROBLEMS = 100
_UNCHECKED = "A log does not tell whether anybody looked at what the jobs made."
_GUESSED = (
    "The log does not name the sites of all machines; there, the machine's own name tells. "
    "With `ulog_execute_attrs = GLIDEIN_ResourceName` in the submit file it would."
)
_SILENT = (
    "A log without events of file transfers (040) is among them: there, transfers count as what was before or after."
)
_NO_CACHES = "A log does not name the cache or server that gave the data: transfers can be compared by site only."
_CARRIED = "A log shows a checkpoint only by an output that is transferred while the program has not ended."
_NEITHER = "neither a user log of HTCondor nor a table of jobs (a CSV with the columns `job` and `outcome`)"

Progress = Callable[[int], None]  # how many events were read since the last call


def read(names: Sequence[str], progress: Progress = lambda events: None) -> History:
    """Of files, of folders with logs, of globs. Raises UsageError."""
    paths = list(dict.fromkeys(path for name in names for path in _found(name)))
    kinds = {path: _kind(path) for path in paths}
    tables, logs = ([path for path in paths if kinds[path] == kind] for kind in ("table", "log"))
    if tables and len(paths) > 1:
        raise UsageError(f"{tables[0]} is a table of jobs: it cannot be read together with other files")
    if tables:
        return read_table(io.StringIO(_text(tables[0]), newline=""), str(tables[0]))
    if not logs:
        raise UsageError(_nothing_in(paths, kinds))
    others = [Problem(str(path), 0, _NEITHER) for path in paths if kinds[path] == ""]
    with _without_looking_for_garbage():
        return _Logs(progress).read(logs, others)


@contextlib.contextmanager
def _without_looking_for_garbage() -> Iterator[None]:
    """Millions of small things are made here, none of which refers to itself."""
    looked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looked:
            gc.enable()


def _found(name: str) -> list[Path]:
    path = Path(name).expanduser()
    if path.is_dir():
        found = sorted(one for one in path.iterdir() if one.is_file() and _kind(one) == "log")
    elif path.exists():
        found = [path]
    else:
        named = glob.glob(str(path), recursive=True)  # noqa: PTH207 (absolute ones, too)
        found = sorted(one for one in map(Path, named) if one.is_file())
    if not found:
        raise NotFoundError(f"there is no {'log in the folder' if path.is_dir() else 'file'} {name}")
    return found


def _kind(path: Path) -> str:
    """table, log, empty or ""."""
    try:
        start = start_of(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if not start.strip():
        return "empty"
    first = start.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace")
    return "log" if is_log(start) else "table" if is_table(first) else ""


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}, line {line}: this is not UTF-8") from None


def _nothing_in(paths: Sequence[Path], kinds: dict[Path, str]) -> str:
    wrong = next((path for path in paths if kinds[path] == ""), None)
    return f"{paths[0]} is empty: nothing has happened yet" if wrong is None else f"{wrong} is {_NEITHER}"


class _Logs:
    """Many logs as one history."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._problems: list[Problem] = []
        self._skipped = 0
        self._guessed_sites = self._silent = False
        self._jobs: dict[tuple[str, float | None, str], Job] = {}  # a job may be told of by two logs
        self._names: set[str] = set()

    def read(self, paths: Sequence[Path], problems: Iterable[Problem]) -> History:
        together = families(paths)
        for parts in together:
            self._read_one(parts)
        jobs = tuple(self._jobs.values())
        name = together[0][-1].name if len(together) == 1 else f"{len(together)} logs"
        told = (*problems, *self._problems)[:_MOST_PROBLEMS]
        return History(name, "log", jobs, told, self._skipped, tuple(self._untold(jobs)))

    def _read_one(self, parts: Sequence[Path]) -> None:
        fold = LogFold()
        for path in parts:
            broken: list[Broken] = []
            try:
                self._feed(fold, records(path, broken))
            except OSError as error:
                raise UsageError(f"{path} cannot be read: {error.strerror}") from None
            self._skipped += len(broken)
            self._problems += [Problem(str(path), *one) for one in broken[:_MOST_PROBLEMS]]
        self._guessed_sites |= fold.guessed_sites
        self._silent |= not fold.tells_transfers
        for job, host in fold.settled():
            self._add(job, host, parts[-1])

    def _feed(self, fold: LogFold, batches: Iterable[list[Raw]]) -> None:
        for batch in batches:
            fold.take(batch)
            self._progress(len(batch))

    def _add(self, job: Job, host: str, path: Path) -> None:
        """The same number may come from another access point: then the log's name tells them apart."""
        key = (job.id, job.submitted, host if job.submitted is not None else str(path))
        log = path.name
        known = self._jobs.get(key)
        if known is not None:
            fuller = max(known, job, key=lambda one: (one.ended is not None, len(one.attempts)))
            self._jobs[key] = replace(fuller, id=known.id)
            return
        names = chain((job.id, f"{job.id} ({log})"), (f"{job.id} ({log}, {number})" for number in count(2)))
        name = next(name for name in names if name not in self._names)
        self._names.add(name)
        self._jobs[key] = job if name == job.id else replace(job, id=name)

    def _untold(self, jobs: Sequence[Job]) -> Iterator[str]:
        yield _UNCHECKED
        if any(not move.source for job in jobs for attempt in job.attempts for move in attempt.moves):
            yield _NO_CACHES
        if self._silent and any(job.attempts for job in jobs):
            yield _SILENT
        if self._guessed_sites:
            yield _GUESSED
        if any(attempt.kept_s for job in jobs for attempt in job.attempts):
            yield _CARRIED
