"""A table of jobs, one line a job, as the published study has it (tests/data/study/): its lines as histories.

Columns are known by their names; only `job` and `outcome` must be there, others are kept as what tells jobs apart. A
table has durations, not times: a job's seconds are laid out since its beginning.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from packtrain.errors import UsageError
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
}
_DURATION_COLUMNS = ("execute_s", "slot_busy_s", "transfer_total_s", "transfer_busy_s", "transfer_last_s")
_COUNT_COLUMNS = ("stalls", "holds", "evictions")
_KNOWN_COLUMNS = frozenset({"job", "sites", "site", "outcome", "note", "gpus", *_DURATION_COLUMNS, *_COUNT_COLUMNS})

_NO_TIMESTAMPS_NOTE = "The table has durations, not times: when jobs ran beside each other cannot be seen."
_STALLS_NOTE = (
    "The table tells how long all the transfers of a job that came to nothing took together, not each: they are "
    "drawn as equally long."
)
_GAPS_NOTE = (
    "Of {} evicted jobs the table does not tell computing that was lost from queueing: {:.1f} h between their "
    "transfers are counted as lost computing."
)
_UNCHECKED_NOTE = "The table does not say whether anybody looked at what the jobs made."
_LAST_TRANSFER_NOTE = (
    "The table does not tell the last transfer of a job; it is taken to be what its slot was busy beyond executing."
)


@dataclass(frozen=True)
class JobTableRow:
    """One line, in seconds; None where a cell is empty."""

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
        """The last transfer. Where it is not told: what the slot was busy beyond executing."""
        told, total, busy = (self.durations_s[n] for n in ("transfer_last_s", "transfer_total_s", "slot_busy_s"))
        if told is not None:
            return told
        if total is None or busy is None or not self.failed_executions:
            return total or 0.0
        return max(0.0, min(total, busy - self.execute_s))

    @property
    def transfer_s(self) -> float:
        """All transfers, without what was between them."""
        busy, total = self.durations_s["transfer_busy_s"], self.durations_s["transfer_total_s"]
        return busy if busy is not None else total if total is not None else self.last_transfer_s

    @property
    def wasted_transfer_s(self) -> float:
        return max(0.0, self.transfer_s - self.last_transfer_s)

    @property
    def gap_s(self) -> float:
        """Between transfers: computing that was lost, queueing."""
        return max(0.0, (self.durations_s["transfer_total_s"] or self.transfer_s) - self.transfer_s)

    @property
    def overhead_s(self) -> float:
        """Of the last attempt's slot, beyond transfer and computing."""
        busy = self.durations_s["slot_busy_s"]
        return max(0.0, busy - self.execute_s - self.last_transfer_s) if busy is not None else 0.0

    @property
    def failed_executions(self) -> int:
        """That came to nothing."""
        return self.counts["stalls"] + self.counts["evictions"]


def is_job_table(header: str) -> bool:
    """Whether a file that begins with this line is a table of jobs."""
    names = {name.strip().strip('"') for name in header.lstrip("\ufeff").split(",")}
    return "job" in names and "outcome" in names


def read_job_table(lines: Iterable[str], path: str) -> JobHistory:
    """Raises UsageError: which line, which column."""
    rows = list(_parse_rows(lines, path))
    checked = True if any(row.outcome == "wrong_output" for row in rows) else None
    jobs = tuple(_job_from_row(row, checked) for row in rows)
    return JobHistory(
        PurePath(path).stem, "table", jobs, limitations=tuple(_limitations(rows, checked)), has_timestamps=False
    )


def _limitations(rows: list[JobTableRow], checked: bool | None) -> Iterator[str]:
    yield _NO_TIMESTAMPS_NOTE
    if any(row.failed_executions > 1 and row.wasted_transfer_s for row in rows):
        yield _STALLS_NOTE
    gaps = [row.gap_s for row in rows if row.gap_s]
    if gaps:
        yield _GAPS_NOTE.format(len(gaps), sum(gaps) / 3600)
    if any(row.failed_executions and row.durations_s["transfer_last_s"] is None and row.transfer_s for row in rows):
        yield _LAST_TRANSFER_NOTE
    if checked is None:
        yield _UNCHECKED_NOTE


def _parse_rows(lines: Iterable[str], path: str) -> Iterator[JobTableRow]:
    reader = csv.reader(lines)
    names = [name.strip().lstrip("\ufeff") for name in next(reader, [])]
    for wanted in ("job", "outcome"):
        if wanted not in names:
            raise UsageError(f"{path}: the table has no column `{wanted}`; it needs at least `job` and `outcome`")
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield _parse_row(names, cells, f"{path}, line {reader.line_num}")
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: this is no CSV ({error})") from None


def _parse_row(names: list[str], cells: list[str], position: str) -> JobTableRow:
    if len(cells) > len(names):
        raise UsageError(f"{position}: {len(cells)} cells, but the first line names {len(names)} columns")
    row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
    outcome = row.get("outcome", "").lower()
    if outcome not in _OUTCOME_BY_NAME:
        raise UsageError(f"{position}, column outcome: `{outcome}` is none of {', '.join(_OUTCOME_BY_NAME)}")
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
        raise UsageError(
            f"{position}: `{text}` is no number of seconds or times; leave the cell empty if it is unknown"
        )
    return number


def _job_from_row(row: JobTableRow, checked: bool | None) -> JobRecord:
    outcome, category, held_in = _OUTCOME_BY_NAME[row.outcome]
    attempts = tuple(_executions_from_row(row))
    return JobRecord(
        row.job_id,
        attempts,
        outcome,
        submitted_at=None,
        ended_at=attempts[-1].end if attempts and outcome is not Outcome.RUNNING else None,
        outputs_checked=checked if outcome in (Outcome.SUCCEEDED, Outcome.WRONG_OUTPUT) else None,
        category=category,
        reason=row.note if outcome is not Outcome.SUCCEEDED else "",
        held_in_phase=held_in,
        point=row.point,
    )


def _executions_from_row(row: JobTableRow) -> Iterator[ExecutionRecord]:
    """What came to nothing first, then the last attempt."""
    tries = row.failed_executions or (1 if row.wasted_transfer_s or row.gap_s else 0)
    evictions = max(row.counts["evictions"], 1 if row.gap_s else 0)
    begin = 0.0
    for number in range(1, tries + 1):
        moved = row.wasted_transfer_s * number / tries + row.gap_s * min(number - 1, evictions) / max(1, evictions)
        end = row.wasted_transfer_s * number / tries + row.gap_s * min(number, evictions) / max(1, evictions)
        yield _failed_execution(row, number, number <= evictions, (begin, moved, end))
        begin = end
    if row.transfer_s or row.execute_s or not tries:
        yield from _last_execution(row, tries + 1, begin)


def _failed_execution(
    row: JobTableRow, number: int, evicted: bool, times: tuple[float, float, float]
) -> ExecutionRecord:
    """`times`: when it began, when its transfer ended, when it ended."""
    begin, moved, end = times
    sites = row.sites if evicted or len(set(row.sites)) == 1 else ()  # where it stalled is told of one site only
    whole = end > moved and not row.counts["stalls"]  # else nobody knows how long those took that came
    why = "the transfer stalled" if row.counts["stalls"] else "the transfer came to nothing"
    return ExecutionRecord(
        number,
        _nonempty_spans((Phase.TRANSFER_IN, begin, moved), (Phase.EXECUTE, moved, end)),
        Outcome.EVICTED if evicted else Outcome.FAILED,
        sites[min(number, len(sites)) - 1] if sites else "",
        reason=row.note if evicted else why,
        category=FailureCategory.EVICTION if evicted else FailureCategory.TRANSFER,
        gpus=row.gpus,
        input_transfers=(InputTransfer(begin, moved - begin, complete=whole),) if moved > begin else (),
    )


def _last_execution(row: JobTableRow, number: int, start: float) -> Iterator[ExecutionRecord]:
    outcome, category, held_in = _OUTCOME_BY_NAME[row.outcome]
    moved, executed = start + row.last_transfer_s, start + row.last_transfer_s + row.execute_s
    pieces = ((Phase.TRANSFER_IN, start, moved), (Phase.EXECUTE, moved, executed))
    spans = _nonempty_spans(*pieces, (Phase.SETUP, executed, executed + row.overhead_s))
    if not spans:
        return
    yield ExecutionRecord(
        number,
        spans,
        outcome,
        row.sites[-1] if row.sites else "",
        reason=row.note if outcome is not Outcome.SUCCEEDED else "",
        category=category,
        gpus=row.gpus,
        input_transfers=(InputTransfer(start, row.last_transfer_s, complete=held_in is not Phase.TRANSFER_IN),)
        if row.last_transfer_s
        else (),
        retained_compute_s=row.execute_s if outcome is Outcome.SUCCEEDED else 0.0,
    )


def _nonempty_spans(*spans: tuple[Phase, float, float]) -> tuple[PhaseSpan, ...]:
    """Empty ones left out."""
    return tuple(PhaseSpan(phase, start, end) for phase, start, end in spans if end > start)
