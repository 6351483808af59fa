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

from packtrain.condor.eventlog.job_event import EventTuple, UnreadableEvent
from packtrain.condor.eventlog.log_files import group_rotated_logs, is_event_log, read_events, read_head
from packtrain.errors import NotFoundError, UsageError
from packtrain.report.history import JobHistory, JobRecord, ReadProblem
from packtrain.report.readers.condor_log import LogHistoryBuilder
from packtrain.report.readers.job_table import is_job_table, read_job_table

_MAX_PROBLEMS = 100
_UNCHECKED_NOTE = "A log does not tell whether anybody looked at what the jobs made."
_GUESSED_SITES_NOTE = (
    "The log does not name the sites of all machines; there, the machine's own name tells. "
    "With `ulog_execute_attrs = GLIDEIN_ResourceName` in the submit file it would."
)
_NO_TRANSFER_EVENTS_NOTE = (
    "A log without events of file transfers (040) is among them: there, transfers count as what was before or after."
)
_NO_CACHE_NAMES_NOTE = (
    "A log does not name the cache or server that gave the data: transfers can be compared by site only."
)
_CHECKPOINTS_NOTE = "A log shows a checkpoint only by an output that is transferred while the program has not ended."
_UNKNOWN_FORMAT = "neither a user log of HTCondor nor a table of jobs (a CSV with the columns `job` and `outcome`)"

ProgressCallback = Callable[[int], None]  # how many events were read since the last call


def read_history(patterns: Sequence[str], on_progress: ProgressCallback = lambda events: None) -> JobHistory:
    """Of files, of folders with logs, of globs. Raises UsageError."""
    paths = list(dict.fromkeys(path for name in patterns for path in _find_files(name)))
    kinds = {path: _detect_format(path) for path in paths}
    tables, logs = ([path for path in paths if kinds[path] == kind] for kind in ("table", "log"))
    if tables and len(paths) > 1:
        raise UsageError(f"{tables[0]} is a table of jobs: it cannot be read together with other files")
    if tables:
        return read_job_table(io.StringIO(_read_text(tables[0]), newline=""), str(tables[0]))
    if not logs:
        raise UsageError(_no_log_message(paths, kinds))
    others = [ReadProblem(str(path), 0, _UNKNOWN_FORMAT) for path in paths if kinds[path] == ""]
    with _gc_paused():
        return _LogCollection(on_progress).read(logs, others)


@contextlib.contextmanager
def _gc_paused() -> Iterator[None]:
    """Millions of small things are made here, none of which refers to itself."""
    looked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looked:
            gc.enable()


def _find_files(pattern: str) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        found = sorted(one for one in path.iterdir() if one.is_file() and _detect_format(one) == "log")
    elif path.exists():
        found = [path]
    else:
        named = glob.glob(str(path), recursive=True)  # noqa: PTH207 (absolute ones, too)
        found = sorted(one for one in map(Path, named) if one.is_file())
    if not found:
        raise NotFoundError(f"there is no {'log in the folder' if path.is_dir() else 'file'} {pattern}")
    return found


def _detect_format(path: Path) -> str:
    """table, log, empty or ""."""
    try:
        start = read_head(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if not start.strip():
        return "empty"
    first = start.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace")
    return "log" if is_event_log(start) else "table" if is_job_table(first) else ""


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}, line {line}: this is not UTF-8") from None


def _no_log_message(paths: Sequence[Path], kinds: dict[Path, str]) -> str:
    wrong = next((path for path in paths if kinds[path] == ""), None)
    return f"{paths[0]} is empty: nothing has happened yet" if wrong is None else f"{wrong} is {_UNKNOWN_FORMAT}"


class _LogCollection:
    """Many logs as one history."""

    def __init__(self, on_progress: ProgressCallback) -> None:
        self._on_progress = on_progress
        self._problems: list[ReadProblem] = []
        self._n_skipped = 0
        self._has_guessed_sites = self._lacks_transfer_events = False
        self._jobs: dict[tuple[str, float | None, str], JobRecord] = {}  # a job may be told of by two logs
        self._job_ids: set[str] = set()

    def read(self, paths: Sequence[Path], problems: Iterable[ReadProblem]) -> JobHistory:
        together = group_rotated_logs(paths)
        for parts in together:
            self._read_log(parts)
        jobs = tuple(self._jobs.values())
        name = together[0][-1].name if len(together) == 1 else f"{len(together)} logs"
        told = (*problems, *self._problems)[:_MAX_PROBLEMS]
        return JobHistory(name, "log", jobs, told, self._n_skipped, tuple(self._limitations(jobs)))

    def _read_log(self, parts: Sequence[Path]) -> None:
        fold = LogHistoryBuilder()
        for path in parts:
            broken: list[UnreadableEvent] = []
            try:
                self._add_batches(fold, read_events(path, broken))
            except OSError as error:
                raise UsageError(f"{path} cannot be read: {error.strerror}") from None
            self._n_skipped += len(broken)
            self._problems += [ReadProblem(str(path), *one) for one in broken[:_MAX_PROBLEMS]]
        self._has_guessed_sites |= fold.has_guessed_sites
        self._lacks_transfer_events |= not fold.has_transfer_events
        for job, host in fold.finish():
            self._add_job(job, host, parts[-1])

    def _add_batches(self, builder: LogHistoryBuilder, batches: Iterable[list[EventTuple]]) -> None:
        for batch in batches:
            builder.add_records(batch)
            self._on_progress(len(batch))

    def _add_job(self, job: JobRecord, submit_host: str, path: Path) -> None:
        """The same number may come from another access point: then the log's name tells them apart."""
        key = (job.id, job.submitted_at, submit_host if job.submitted_at is not None else str(path))
        log = path.name
        known = self._jobs.get(key)
        if known is not None:
            fuller = max(known, job, key=lambda one: (one.ended_at is not None, len(one.executions)))
            self._jobs[key] = replace(fuller, id=known.id)
            return
        names = chain((job.id, f"{job.id} ({log})"), (f"{job.id} ({log}, {number})" for number in count(2)))
        name = next(name for name in names if name not in self._job_ids)
        self._job_ids.add(name)
        self._jobs[key] = job if name == job.id else replace(job, id=name)

    def _limitations(self, jobs: Sequence[JobRecord]) -> Iterator[str]:
        yield _UNCHECKED_NOTE
        if any(not move.source for job in jobs for attempt in job.executions for move in attempt.input_transfers):
            yield _NO_CACHE_NAMES_NOTE
        if self._lacks_transfer_events and any(job.executions for job in jobs):
            yield _NO_TRANSFER_EVENTS_NOTE
        if self._has_guessed_sites:
            yield _GUESSED_SITES_NOTE
        if any(attempt.retained_compute_s for job in jobs for attempt in job.executions):
            yield _CHECKPOINTS_NOTE
