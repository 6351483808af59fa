"""Reads a CSV job table with one row per job, in the format of the published study (tests/data/study/).

Columns are identified by name. Only `job` and `outcome` are required; unknown columns become parameters of the job.
A table has durations but no timestamps, so the times of each job start at 0.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from packtrain.errors import UsageError
from packtrain.formatting import format_slot_hours
from packtrain.report.history import (
    ExecutionRecord,
    FailureCategory,
    InputTransfer,
    JobHistory,
    JobRecord,
    Outcome,
    Phase,
    PhaseSpan,
)

_OUTCOME_BY_NAME: Mapping[str, tuple[Outcome, FailureCategory, Phase | None]] = {
    "success": (Outcome.SUCCEEDED, FailureCategory.NONE, None),
    "succeeded": (Outcome.SUCCEEDED, FailureCategory.NONE, None),
    "wrong_output": (Outcome.WRONG_OUTPUT, FailureCategory.WRONG_OUTPUT, None),
    "held_compute": (Outcome.TIME_LIMIT, FailureCategory.TIME_LIMIT, Phase.EXECUTE),
    "held_transfer": (Outcome.HELD, FailureCategory.TRANSFER, Phase.TRANSFER_IN),
    "failed": (Outcome.FAILED, FailureCategory.PROGRAM, None),
    "evicted": (Outcome.EVICTED, FailureCategory.EVICTION, None),
    "removed": (Outcome.REMOVED, FailureCategory.USER, None),
    "running": (Outcome.RUNNING, FailureCategory.NONE, None),
    "queued": (Outcome.QUEUED, FailureCategory.NONE, None),
}
_DURATION_COLUMNS = ("execute_s", "slot_busy_s", "transfer_total_s", "transfer_busy_s", "transfer_last_s")
_COUNT_COLUMNS = ("stalls", "holds", "evictions")
_KNOWN_COLUMNS = frozenset({"job", "sites", "site", "outcome", "note", "gpus", *_DURATION_COLUMNS, *_COUNT_COLUMNS})

_NO_TIMESTAMPS_NOTE = "The table has durations but no timestamps, so it does not show which jobs ran at the same time."
_STALLS_NOTE = "The table has only the total time of a job's failed transfers. The charts show them as equally long."
_GAPS_NOTE = (
    "For {} evicted jobs the table does not distinguish lost compute from queueing: {} between their transfers "
    "are counted as lost compute."
)
_UNCHECKED_NOTE = "The table does not record whether the outputs of the jobs were checked."
_LAST_TRANSFER_NOTE = (
    "The table does not record the duration of a job's last transfer. It is estimated as the slot time minus the "
    "execution time."
)


@dataclass(frozen=True)
class JobTableRow:
    """One row of the table. Durations are in seconds, None for empty cells."""

    job_id: str
    outcome: str
    sites: tuple[str, ...]
    durations_s: Mapping[str, float | None]
    counts: Mapping[str, int]
    gpus: float
    note: str
    point: Mapping[str, str]

    @property
    def execute_s(self) -> float:
        return self.durations_s["execute_s"] or 0.0

    @property
    def last_transfer_s(self) -> float:
        """The duration of the last transfer. If the cell is empty: slot time minus execution time."""
        last_s, total_s, slot_s = (self.durations_s[n] for n in ("transfer_last_s", "transfer_total_s", "slot_busy_s"))
        if last_s is not None:
            return last_s
        if total_s is None or slot_s is None or not self.failed_executions:
            return total_s or 0.0
        return max(0.0, min(total_s, slot_s - self.execute_s))

    @property
    def transfer_s(self) -> float:
        """The duration of all transfers, without the time between them."""
        busy_s, total_s = self.durations_s["transfer_busy_s"], self.durations_s["transfer_total_s"]
        return busy_s if busy_s is not None else total_s if total_s is not None else self.last_transfer_s

    @property
    def wasted_transfer_s(self) -> float:
        return max(0.0, self.transfer_s - self.last_transfer_s)

    @property
    def gap_s(self) -> float:
        """The time between transfers: lost compute and queueing."""
        return max(0.0, (self.durations_s["transfer_total_s"] or self.transfer_s) - self.transfer_s)

    @property
    def overhead_s(self) -> float:
        """Slot time of the last execution beyond transfer and compute."""
        slot_s = self.durations_s["slot_busy_s"]
        return max(0.0, slot_s - self.execute_s - self.last_transfer_s) if slot_s is not None else 0.0

    @property
    def failed_executions(self) -> int:
        """The number of executions that failed or were evicted."""
        return self.counts["stalls"] + self.counts["evictions"]


def is_job_table(header: str) -> bool:
    """Return whether a file with this first line is a job table."""
    names = {name.strip().strip('"') for name in header.lstrip("\ufeff").split(",")}
    return "job" in names and "outcome" in names


def read_job_table(lines: Iterable[str], path: str) -> JobHistory:
    """Read a job table. Raise UsageError with the line and column of an invalid cell."""
    rows = list(_parse_rows(lines, path))
    outputs_checked = True if any(row.outcome == "wrong_output" for row in rows) else None
    jobs = tuple(_job_from_row(row, outputs_checked) for row in rows)
    limitations = tuple(_limitations(rows, outputs_checked))
    return JobHistory(PurePath(path).stem, "table", jobs, limitations=limitations, has_timestamps=False)


def _limitations(rows: list[JobTableRow], outputs_checked: bool | None) -> Iterator[str]:
    yield _NO_TIMESTAMPS_NOTE
    if any(row.failed_executions > 1 and row.wasted_transfer_s for row in rows):
        yield _STALLS_NOTE
    gaps = [row.gap_s for row in rows if row.gap_s]
    if gaps:
        yield _GAPS_NOTE.format(len(gaps), format_slot_hours(sum(gaps)))
    if any(row.failed_executions and row.durations_s["transfer_last_s"] is None and row.transfer_s for row in rows):
        yield _LAST_TRANSFER_NOTE
    if outputs_checked is None:
        yield _UNCHECKED_NOTE


def _parse_rows(lines: Iterable[str], path: str) -> Iterator[JobTableRow]:
    reader = csv.reader(lines)
    names = [name.strip().lstrip("\ufeff") for name in next(reader, [])]
    for required in ("job", "outcome"):
        if required not in names:
            raise UsageError(f"{path}: the table has no column `{required}`; it needs at least `job` and `outcome`")
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield _parse_row(names, cells, f"{path}, line {reader.line_num}")
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: invalid CSV ({error})") from None


def _parse_row(names: list[str], cells: list[str], position: str) -> JobTableRow:
    if len(cells) > len(names):
        raise UsageError(f"{position}: the row has {len(cells)} cells, but the header has {len(names)} columns")
    row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
    outcome = row.get("outcome", "").lower()
    if outcome not in _OUTCOME_BY_NAME:
        raise UsageError(f"{position}, column outcome: `{outcome}` is not one of {', '.join(_OUTCOME_BY_NAME)}")
    return JobTableRow(
        job_id=row.get("job", ""),
        outcome=outcome,
        sites=tuple(site.strip() for site in (row.get("sites") or row.get("site") or "").split(";") if site.strip()),
        durations_s={
            name: _parse_number(row.get(name, ""), f"{position}, column {name}") for name in _DURATION_COLUMNS
        },
        counts={
            name: int(_parse_number(row.get(name, ""), f"{position}, column {name}") or 0) for name in _COUNT_COLUMNS
        },
        gpus=_parse_number(row.get("gpus", ""), f"{position}, column gpus") or 0.0,
        note=row.get("note", ""),
        point={name: value for name, value in row.items() if name and name not in _KNOWN_COLUMNS},
    )


def _parse_number(text: str, position: str) -> float | None:
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise UsageError(f"{position}: `{text}` is not a number >= 0; leave the cell empty if the value is unknown")
    return number


def _job_from_row(row: JobTableRow, outputs_checked: bool | None) -> JobRecord:
    outcome, category, held_in_phase = _OUTCOME_BY_NAME[row.outcome]
    executions = tuple(_executions_from_row(row))
    return JobRecord(
        row.job_id,
        executions,
        outcome,
        submitted_at=None,
        ended_at=executions[-1].end if executions and outcome not in (Outcome.RUNNING, Outcome.QUEUED) else None,
        outputs_checked=outputs_checked if outcome in (Outcome.SUCCEEDED, Outcome.WRONG_OUTPUT) else None,
        category=category,
        reason=row.note if outcome is not Outcome.SUCCEEDED else "",
        held_in_phase=held_in_phase,
        point=row.point,
    )


def _executions_from_row(row: JobTableRow) -> Iterator[ExecutionRecord]:
    """Yield the failed executions first, then the last one."""
    n_failed = row.failed_executions or (1 if row.wasted_transfer_s or row.gap_s else 0)
    evictions = max(row.counts["evictions"], 1 if row.gap_s else 0)
    start = 0.0
    for number in range(1, n_failed + 1):
        wasted_s = row.wasted_transfer_s * number / n_failed
        transferred_at = wasted_s + row.gap_s * min(number - 1, evictions) / max(1, evictions)
        end = wasted_s + row.gap_s * min(number, evictions) / max(1, evictions)
        yield _failed_execution(row, number, number <= evictions, (start, transferred_at, end))
        start = end
    if row.transfer_s or row.execute_s or not n_failed:
        yield from _last_execution(row, n_failed + 1, start)


def _failed_execution(
    row: JobTableRow, number: int, evicted: bool, times: tuple[float, float, float]
) -> ExecutionRecord:
    """Build a failed execution. `times` are its start, the end of its transfer and its end."""
    start, transferred_at, end = times
    # The table does not record at which of several sites a transfer stalled.
    sites = row.sites if evicted or len(set(row.sites)) == 1 else ()
    # With stalls, the share of complete transfers in the total time is unknown.
    complete = end > transferred_at and not row.counts["stalls"]
    reason = "the transfer stalled" if row.counts["stalls"] else "the transfer failed"
    return ExecutionRecord(
        number,
        _nonempty_spans((Phase.TRANSFER_IN, start, transferred_at), (Phase.EXECUTE, transferred_at, end)),
        Outcome.EVICTED if evicted else Outcome.FAILED,
        sites[min(number, len(sites)) - 1] if sites else "",
        reason=row.note if evicted else reason,
        category=FailureCategory.EVICTION if evicted else FailureCategory.TRANSFER,
        gpus=row.gpus,
        input_transfers=(InputTransfer(start, transferred_at - start, complete=complete),)
        if transferred_at > start
        else (),
    )


def _last_execution(row: JobTableRow, number: int, start: float) -> Iterator[ExecutionRecord]:
    outcome, category, held_in_phase = _OUTCOME_BY_NAME[row.outcome]
    transferred_at, executed_at = start + row.last_transfer_s, start + row.last_transfer_s + row.execute_s
    spans = _nonempty_spans(
        (Phase.TRANSFER_IN, start, transferred_at),
        (Phase.EXECUTE, transferred_at, executed_at),
        (Phase.SETUP, executed_at, executed_at + row.overhead_s),
    )
    if not spans:
        return
    transfer = InputTransfer(start, row.last_transfer_s, complete=held_in_phase is not Phase.TRANSFER_IN)
    yield ExecutionRecord(
        number,
        spans,
        outcome,
        row.sites[-1] if row.sites else "",
        reason=row.note if outcome is not Outcome.SUCCEEDED else "",
        category=category,
        gpus=row.gpus,
        input_transfers=(transfer,) if row.last_transfer_s else (),
        retained_compute_s=row.execute_s if outcome is Outcome.SUCCEEDED else 0.0,
    )


def _nonempty_spans(*spans: tuple[Phase, float, float]) -> tuple[PhaseSpan, ...]:
    return tuple(PhaseSpan(phase, start, end) for phase, start, end in spans if end > start)
