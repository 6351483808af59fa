"""Reads files as a history: HTCondor user logs (globs, folders, rotated or compressed logs), Slurm's accounting or a
CSV job table.

The format is detected from the content. Runs of packtrain are read by `run_store`.
"""

from __future__ import annotations

import glob
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

from packtrain.condor.eventlog.job_event import EventTuple, UnreadableEvent
from packtrain.condor.eventlog.log_files import group_rotated_logs, is_event_log, read_chunks, read_events, read_head
from packtrain.errors import NotFoundError, UsageError
from packtrain.report.history import JobHistory, JobRecord, ReadProblem
from packtrain.report.readers.condor_log import LogHistoryBuilder
from packtrain.report.readers.job_table import is_job_table, read_job_table
from packtrain.report.readers.slurm_accounting import read_slurm_accounting
from packtrain.slurm.accounting.parse import is_accounting, parse_accounting

_MAX_PROBLEMS = 100
_MAX_HOSTS = 3
_UNCHECKED_NOTE = "An HTCondor log does not record whether the outputs of the jobs were checked."
_GUESSED_SITES_NOTE = (
    "The log does not name the site of every node, so some sites are guessed from the node's name. "
    "Add `ulog_execute_attrs = GLIDEIN_ResourceName` to the submit file to log them."
)
_NO_TRANSFER_EVENTS_NOTE = (
    "At least one log has no file transfer events (040). Its transfers are counted as part of the time before or after."
)
_NO_CACHE_NAMES_NOTE = (
    "An HTCondor log does not name the cache or server that delivered the data, so transfers are compared by site only."
)
_CHECKPOINTS_NOTE = (
    "An HTCondor log shows a checkpoint only as an output transfer that is followed by more execution time."
)
_REUSED_NUMBERS_NOTE = (
    "{numbers} used by several jobs, which were submitted at different times or from different access points "
    "({hosts}). They are kept apart: the names of the later ones include the name of the log."
)
_UNKNOWN_FORMAT = (
    "neither an HTCondor user log, nor Slurm accounting (`sacct -P` or `sacct --json`), nor a job table (a CSV file "
    "with the columns `job` and `outcome`)"
)

ProgressCallback = Callable[[int], None]  # called with the number of events read since the last call


def read_history(patterns: Sequence[str], on_progress: ProgressCallback = lambda events: None) -> JobHistory:
    """Read files, folders with logs, or globs.

    Args:
        patterns: Paths or glob patterns.
        on_progress: Called repeatedly with the number of events read since its last call.

    Raises:
        NotFoundError: A pattern matches no file.
        UsageError: A file cannot be read, or has an unknown format.
    """
    paths = list(dict.fromkeys(path for name in patterns for path in _find_files(name)))
    formats = {path: _detect_format(path) for path in paths}
    tables, accounts, logs = (
        [path for path in paths if formats[path] == wanted] for wanted in ("table", "accounting", "log")
    )
    if tables and len(paths) > 1:
        raise UsageError(f"{tables[0]} is a job table, which cannot be combined with other files")
    if tables:
        return read_job_table(io.StringIO(_read_text(tables[0]), newline=""), str(tables[0]))
    if accounts and len(accounts) < len(paths):
        raise UsageError(f"{accounts[0]} is Slurm accounting, which cannot be combined with other files")
    if accounts:
        return read_slurm_accounting([(str(path), parse_accounting(_read_text(path), str(path))) for path in accounts])
    if not logs:
        raise UsageError(_no_log_message(paths, formats))
    problems = [ReadProblem(str(path), 0, _UNKNOWN_FORMAT) for path in paths if formats[path] == ""]
    return _LogCollection(on_progress).read(logs, problems)


def read_accounting_history(text: str, name: str) -> JobHistory:
    """Read what sacct printed. Raises UsageError."""
    return read_slurm_accounting([(name, parse_accounting(text, name))], name)


def _find_files(pattern: str) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and _detect_format(file) == "log")
    elif path.exists():
        files = [path]
    else:
        matches = glob.glob(str(path), recursive=True)  # noqa: PTH207 (Path.glob rejects absolute patterns)
        files = sorted(file for file in map(Path, matches) if file.is_file())
    if not files:
        raise NotFoundError(
            f"there is no log in the folder {pattern}" if path.is_dir() else f"there is no file {pattern}"
        )
    return files


def _detect_format(path: Path) -> str:
    """Return table, accounting, log or empty, or "" for an unknown format."""
    try:
        head = read_head(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if not head.strip():
        return "empty"
    text = head.decode("utf-8", "replace")
    if is_accounting(text):
        return "accounting"
    first_line = text.lstrip().partition("\n")[0]
    return "log" if is_event_log(head) else "table" if is_job_table(first_line) else ""


def _read_text(path: Path) -> str:
    data = b"".join(read_chunks(path))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}, line {line}: not valid UTF-8") from None


def _no_log_message(paths: Sequence[Path], formats: dict[Path, str]) -> str:
    unknown = next((path for path in paths if formats[path] == ""), None)
    return f"{paths[0]} is empty: it has no events yet" if unknown is None else f"{unknown} is {_UNKNOWN_FORMAT}"


class _LogCollection:
    """Combines many logs into one history."""

    def __init__(self, on_progress: ProgressCallback) -> None:
        self._on_progress = on_progress
        self._problems: list[ReadProblem] = []
        self._n_skipped = 0
        self._has_guessed_sites = self._lacks_transfer_events = False
        # By id, submission time, and submit host or log: the same job may be in two logs.
        self._jobs: dict[tuple[str, float | None, str], JobRecord] = {}
        self._job_ids: set[str] = set()
        self._submit_hosts: set[str] = set()
        self._reused_numbers: dict[str, None] = {}  # job numbers of several jobs

    def read(self, paths: Sequence[Path], problems: Iterable[ReadProblem]) -> JobHistory:
        logs = group_rotated_logs(paths)
        for parts in logs:
            self._read_log(parts)
        jobs = tuple(self._jobs.values())
        name = logs[0][-1].name if len(logs) == 1 else f"{len(logs)} logs"
        first_problems = (*problems, *self._problems)[:_MAX_PROBLEMS]
        return JobHistory(name, "log", jobs, first_problems, self._n_skipped, tuple(self._limitations(jobs)))

    def _read_log(self, parts: Sequence[Path]) -> None:
        builder = LogHistoryBuilder()
        for path in parts:
            unreadable: list[UnreadableEvent] = []
            try:
                self._add_batches(builder, read_events(path, unreadable))
            except OSError as error:
                raise UsageError(f"{path} cannot be read: {error.strerror}") from None
            self._n_skipped += len(unreadable)
            self._problems += [ReadProblem(str(path), *event) for event in unreadable[:_MAX_PROBLEMS]]
        self._has_guessed_sites |= builder.has_guessed_sites
        self._lacks_transfer_events |= not builder.has_transfer_events
        for job, submit_host in builder.finish():
            self._add_job(job, submit_host, parts[-1])

    def _add_batches(self, builder: LogHistoryBuilder, batches: Iterable[list[EventTuple]]) -> None:
        for batch in batches:
            builder.add_records(batch)
            self._on_progress(len(batch))

    def _add_job(self, job: JobRecord, submit_host: str, path: Path) -> None:
        """Add a job. If another access point used the same job id, append the name of the log."""
        key = (job.id, job.submitted_at, submit_host if job.submitted_at is not None else str(path))
        self._submit_hosts |= {submit_host} - {""}
        known = self._jobs.get(key)
        if known is not None:
            fuller = max(known, job, key=lambda record: (record.ended_at is not None, len(record.executions)))
            self._jobs[key] = replace(fuller, id=known.id)
            return
        log = path.name
        candidates = chain((job.id, f"{job.id} ({log})"), (f"{job.id} ({log}, {number})" for number in count(2)))
        job_id = next(candidate for candidate in candidates if candidate not in self._job_ids)
        if job_id != job.id:
            self._reused_numbers[job.id] = None
        self._job_ids.add(job_id)
        self._jobs[key] = job if job_id == job.id else replace(job, id=job_id)

    def _limitations(self, jobs: Sequence[JobRecord]) -> Iterator[str]:
        executions = [execution for job in jobs for execution in job.executions]
        if self._reused_numbers:
            n_numbers, first = len(self._reused_numbers), next(iter(self._reused_numbers))
            numbers = f"The job number {first} is" if n_numbers == 1 else f"{n_numbers:,} job numbers ({first}, …) are"
            hosts = sorted(self._submit_hosts)
            listed = ", ".join(hosts[:_MAX_HOSTS]) + (", …" if len(hosts) > _MAX_HOSTS else "")
            yield _REUSED_NUMBERS_NOTE.format(numbers=numbers, hosts=listed or "the logs do not name them")
        yield _UNCHECKED_NOTE
        if any(not transfer.source for execution in executions for transfer in execution.input_transfers):
            yield _NO_CACHE_NAMES_NOTE
        if self._lacks_transfer_events and executions:
            yield _NO_TRANSFER_EVENTS_NOTE
        if self._has_guessed_sites:
            yield _GUESSED_SITES_NOTE
        if any(execution.retained_compute_s for execution in executions):
            yield _CHECKPOINTS_NOTE
