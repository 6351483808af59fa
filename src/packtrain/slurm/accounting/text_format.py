"""Parses `sacct -P` with any columns and delimiter. The header says what the columns are.

JobID|JobName|State|Submit|Start|End|…
12|train|COMPLETED|2026-11-16T02:13:28|…
12.batch|batch|COMPLETED|…                a step of the job above
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packtrain.errors import UsageError
from packtrain.slurm.accounting import values
from packtrain.slurm.accounting.record import AccountingRecord, AccountingTable, UnreadableRow
from packtrain.slurm.squeue import parse_exit_code

# What packtrain asks sacct for; all versions since 22.05 know these fields.
FIELDS = (
    "JobID", "JobName", "User", "Cluster", "Partition", "State", "ExitCode", "Submit", "Start", "End", "ElapsedRaw",
    "Suspended", "Timelimit", "NodeList", "NNodes", "AllocCPUS", "NTasks", "AllocTRES", "ReqMem", "TotalCPU", "MaxRSS",
    "Reason",
)  # fmt: skip


def accounting_argv(since: str, until: str = "", user: str = "") -> list[str]:
    """Return the command that prints the accounting of all executions, with their steps.

    Args:
        since: A time as sacct takes it: 2026-11-01, 2026-11-01T08:00, now-7days.
        until: The end; by default, now.
        user: One user or several with commas; by default, the one who calls it.
    """
    options = {"starttime": since, "endtime": until, "user": user, "format": ",".join(FIELDS)}
    return ["sacct", "--parsable2", "--duplicates", *(f"--{key}={value}" for key, value in options.items() if value)]


_REQUIRED = ("JobID", "State", "Start", "End")
_HEADER = re.compile(r"[^A-Za-z0-9]*([A-Za-z0-9]+)([^A-Za-z0-9]+)")
_MAX_SHOWN = 60

Row = Mapping[str, str]


def is_accounting_header(line: str) -> bool:
    """Return whether this is the first line of `sacct`, with any columns."""
    names = {name.lower() for name in re.findall(r"[A-Za-z0-9]+", line)}
    return "state" in names and ("jobid" in names or "jobidraw" in names)


def parse_text(text: str, path: str) -> AccountingTable:
    """Parse the output of sacct.

    Args:
        text: The output, with its header.
        path: The name of the file, for messages.

    Raises:
        UsageError: The header is missing, or lacks a column.
    """
    lines = text.split("\n")
    start = next((number for number, line in enumerate(lines) if line.strip()), 0)
    delimiter, columns = _parse_header(lines[start].rstrip("\r"), f"{path}, line {start + 1}")
    collector = _RecordCollector()
    for row in _split_rows(lines[start + 1 :], delimiter, len(columns), start + 2):
        if isinstance(row, UnreadableRow):
            collector.unreadable.append(row)
        else:
            collector.add_row(row[0], dict(zip(columns, map(str.strip, row[1]), strict=True)))
    return collector.finish()


def _parse_header(header: str, position: str) -> tuple[str, list[str]]:
    """Return the delimiter and the names of the columns, in lower case."""
    match = _HEADER.match(header)
    if match is None or not is_accounting_header(header):
        raise UsageError(f"{position}: this is not the header of `sacct -P`, which lists columns such as JobID|State")
    delimiter = match[2]
    if not delimiter.strip(" "):
        raise UsageError(
            f"{position}: the columns are separated by spaces, and sacct cuts their values; use `sacct -P`"
        )
    columns = [name.strip().lower() for name in header.split(delimiter)]
    if "jobid" not in columns:
        columns = ["jobid" if name == "jobidraw" else name for name in columns]
    missing = [name for name in _REQUIRED if name.lower() not in columns]
    if missing:
        raise UsageError(
            f"{position}: the columns {', '.join(missing)} are missing; use "
            f"`sacct -P -D -o {','.join(FIELDS)}`, or leave out those that you do not have"
        )
    return delimiter, columns


def _split_rows(
    lines: Sequence[str], delimiter: str, n_columns: int, first_line: int
) -> Iterator[tuple[int, list[str]] | UnreadableRow]:
    """Yield the line number and the cells of each row. A value such as SubmitLine may contain line breaks."""
    number = 0
    while number < len(lines):
        cells, used = lines[number].rstrip("\r").split(delimiter), 1
        while len(cells) < n_columns and number + used < len(lines):
            following = lines[number + used].rstrip("\r").split(delimiter)
            if len(cells) + len(following) - 1 > n_columns or not any(following):
                break
            cells[-1] += "\n" + following[0]
            cells += following[1:]
            used += 1
        line = first_line + number
        if len(cells) == n_columns:
            yield line, cells
            number += used
            continue
        if lines[number].strip():
            count = len(lines[number].split(delimiter))
            hint = "; a value contains the delimiter: use another one (sacct --delimiter)" if count > n_columns else ""
            yield UnreadableRow(line, f"the row has {count} values, but the header has {n_columns}{hint}")
        number += 1


@dataclass(frozen=True)
class _Step:
    """What a step adds to its job."""

    cpu_s: float | None
    peak_memory_bytes: float | None


class _RecordCollector:
    """Collects rows. The rows of steps follow that of their job."""

    def __init__(self) -> None:
        self.unreadable: list[UnreadableRow] = []
        self._records: list[AccountingRecord] = []
        self._steps: dict[int, list[_Step]] = {}  # by position of the record
        self._newest: dict[str, int] = {}  # position of the newest record of a job

    def add_row(self, line: int, row: Row) -> None:
        job_id, dot, _ = row["jobid"].partition(".")
        try:
            if not re.fullmatch(r"\d+([_+][\d\[\],%:-]+)?", job_id):
                raise ValueError(f"{shorten(row['jobid'])!r} is not a job number")
            if not dot:
                self._newest[job_id] = len(self._records)
                self._records.append(_parse_job(job_id, row))
            elif job_id in self._newest:
                self._steps.setdefault(self._newest[job_id], []).append(_parse_step(row))
            else:
                raise ValueError(f"the job of the step {row['jobid']} is missing")
        except ValueError as error:
            self.unreadable.append(UnreadableRow(line, str(error)))

    def finish(self) -> AccountingTable:
        records = [_add_steps(record, self._steps.get(n, [])) for n, record in enumerate(self._records)]
        return AccountingTable(records, self.unreadable, has_steps=bool(self._steps))


def _add_steps(record: AccountingRecord, steps: Sequence[_Step]) -> AccountingRecord:
    """Add memory, and CPU time if Slurm has not summed it up: that of a running job is 0."""
    peaks = [step.peak_memory_bytes for step in steps if step.peak_memory_bytes is not None]
    cpu_times = [step.cpu_s for step in steps if step.cpu_s is not None]
    known = [seconds for seconds in (record.cpu_s, sum(cpu_times) if cpu_times else None) if seconds is not None]
    peak = max(peaks, default=record.peak_memory_bytes)
    return replace(record, cpu_s=max(known, default=None), peak_memory_bytes=peak)


def _parse_step(row: Row) -> _Step:
    n_tasks = _read(row, "ntasks", values.parse_number) or 1.0
    peak = _read(row, "maxrss", values.parse_memory_bytes)
    return _Step(_cpu_s(row), None if peak is None else peak * n_tasks)


def _parse_job(job_id: str, row: Row) -> AccountingRecord:
    tres = values.parse_tres(row.get("alloctres") or row.get("reqtres") or "")
    cpus = _read(row, "alloccpus", values.parse_number)
    if not cpus:
        cpus = _read(row, "ncpus", values.parse_number) or values.parse_number(tres.get("cpu", ""))
    nodes = _read(row, "nnodes", values.parse_number) or values.parse_number(tres.get("node", "")) or 1.0
    requested = values.parse_memory_bytes(tres.get("mem", ""), default_unit="M")
    if requested is None:
        requested = _read(row, "reqmem", lambda text: values.parse_memory_bytes(text, cpus or 1.0, nodes, "M"))
    node_list = row.get("nodelist", "")
    state = row["state"].split(" ")[0].rstrip("+").upper()
    if not state:
        raise ValueError("the state is empty")
    started_at = _read(row, "start", values.parse_time)
    elapsed_s = _read(row, "elapsedraw", values.parse_duration_s)
    if elapsed_s is None:
        elapsed_s = _read(row, "elapsed", values.parse_duration_s)
    has_started = started_at is not None and not (node_list and values.is_unset(node_list))
    return AccountingRecord(
        job_id=job_id,
        state=state,
        name=shorten(row.get("jobname", "")),
        user=shorten(row.get("user", "")),
        partition=shorten(row.get("partition", "")),
        reason="" if values.is_unset(row.get("reason", "")) else shorten(row["reason"]),
        exit_code=parse_exit_code(row.get("exitcode", "")),
        submitted_at=_read(row, "submit", values.parse_time),
        started_at=started_at if has_started else None,
        ended_at=_read(row, "end", values.parse_time),
        elapsed_s=elapsed_s,
        suspended_s=_read(row, "suspended", values.parse_duration_s) or 0.0,
        time_limit_s=_read(row, "timelimit", values.parse_duration_s),
        nodes=shorten(node_list) if has_started else "",
        cpus=cpus or None,
        gpus=values.count_gpus(tres) if "alloctres" in row or "reqtres" in row else None,
        cpu_s=_cpu_s(row),
        memory_bytes=requested or None,
        peak_memory_bytes=_read(row, "maxrss", values.parse_memory_bytes),
        restarts=int(_read(row, "restarts", values.parse_number) or 0),
        cluster=shorten(row.get("cluster", "")),
    )


def _cpu_s(row: Row) -> float | None:
    return _read(row, "totalcpu", values.parse_duration_s)


def _read(row: Row, column: str, parse: Callable[[str], float | None]) -> float | None:
    """Parse a cell. Raises ValueError with the name of the column."""
    try:
        return parse(row.get(column, ""))
    except ValueError as error:
        raise ValueError(f"column {column}: {shorten(str(error))}") from None


def shorten(text: str) -> str:
    """Return a text as one line that fits into a table."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN else f"{line[: _MAX_SHOWN - 1]}…"
