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
from packtrain.report.history import Attempt, Category, History, Job, Move, Outcome, Phase, Span

_OUTCOMES: Mapping[str, tuple[Outcome, Category, Phase | None]] = {
    "success": (Outcome.SUCCEEDED, Category.NONE, None),
    "succeeded": (Outcome.SUCCEEDED, Category.NONE, None),
    "wrong_output": (Outcome.WRONG_OUTPUT, Category.OUTPUT, None),
    "held_compute": (Outcome.TIME_LIMIT, Category.TIME_LIMIT, Phase.EXECUTE),
    "held_transfer": (Outcome.HELD, Category.TRANSFER, Phase.TRANSFER_IN),
    "failed": (Outcome.FAILED, Category.PROGRAM, None),
    "evicted": (Outcome.EVICTED, Category.EVICTION, None),
    "removed": (Outcome.REMOVED, Category.PERSON, None),
    "running": (Outcome.RUNNING, Category.NONE, None),
}
_SECONDS = ("execute_s", "slot_busy_s", "transfer_total_s", "transfer_busy_s", "transfer_last_s")
_COUNTS = ("stalls", "holds", "evictions")
_KNOWN = frozenset({"job", "sites", "site", "outcome", "note", "gpus", *_SECONDS, *_COUNTS})

_NO_TIMES = "The table has durations, not times: when jobs ran beside each other cannot be seen."
_STALLS = (
    "The table tells how long all the transfers of a job that came to nothing took together, not each: they are "
    "drawn as equally long."
)
_GAPS = (
    "Of {} evicted jobs the table does not tell computing that was lost from queueing: {:.1f} h between their "
    "transfers are counted as lost computing."
)
_UNCHECKED = "The table does not say whether anybody looked at what the jobs made."
_LAST = "The table does not tell the last transfer of a job; it is taken to be what its slot was busy beyond executing."


@dataclass(frozen=True)
class Row:
    """One line, in seconds; None where a cell is empty."""

    job: str
    outcome: str
    sites: tuple[str, ...]
    seconds: Mapping[str, float | None]
    counts: Mapping[str, int]
    gpus: float
    note: str
    point: Mapping[str, str]

    @property
    def execute(self) -> float:
        return self.seconds["execute_s"] or 0.0

    @property
    def last(self) -> float:
        """The last transfer. Where it is not told: what the slot was busy beyond executing."""
        told, total, busy = (self.seconds[n] for n in ("transfer_last_s", "transfer_total_s", "slot_busy_s"))
        if told is not None:
            return told
        if total is None or busy is None or not self.tries:
            return total or 0.0
        return max(0.0, min(total, busy - self.execute))

    @property
    def moving(self) -> float:
        """All transfers, without what was between them."""
        busy, total = self.seconds["transfer_busy_s"], self.seconds["transfer_total_s"]
        return busy if busy is not None else total if total is not None else self.last

    @property
    def thrown_away(self) -> float:
        return max(0.0, self.moving - self.last)

    @property
    def gap(self) -> float:
        """Between transfers: computing that was lost, queueing."""
        return max(0.0, (self.seconds["transfer_total_s"] or self.moving) - self.moving)

    @property
    def overhead(self) -> float:
        """Of the last attempt's slot, beyond transfer and computing."""
        busy = self.seconds["slot_busy_s"]
        return max(0.0, busy - self.execute - self.last) if busy is not None else 0.0

    @property
    def tries(self) -> int:
        """That came to nothing."""
        return self.counts["stalls"] + self.counts["evictions"]


def is_table(head: str) -> bool:
    """Whether a file that begins with this line is a table of jobs."""
    names = {name.strip().strip('"') for name in head.lstrip("\ufeff").split(",")}
    return "job" in names and "outcome" in names


def read_table(lines: Iterable[str], where: str) -> History:
    """Raises UsageError: which line, which column."""
    rows = list(_rows(lines, where))
    checked = True if any(row.outcome == "wrong_output" for row in rows) else None
    jobs = tuple(_job(row, checked) for row in rows)
    return History(PurePath(where).stem, "table", jobs, untold=tuple(_untold(rows, checked)), absolute=False)


def _untold(rows: list[Row], checked: bool | None) -> Iterator[str]:
    yield _NO_TIMES
    if any(row.tries > 1 and row.thrown_away for row in rows):
        yield _STALLS
    gaps = [row.gap for row in rows if row.gap]
    if gaps:
        yield _GAPS.format(len(gaps), sum(gaps) / 3600)
    if any(row.tries and row.seconds["transfer_last_s"] is None and row.moving for row in rows):
        yield _LAST
    if checked is None:
        yield _UNCHECKED


def _rows(lines: Iterable[str], where: str) -> Iterator[Row]:
    reader = csv.reader(lines)
    names = [name.strip().lstrip("\ufeff") for name in next(reader, [])]
    for wanted in ("job", "outcome"):
        if wanted not in names:
            raise UsageError(f"{where}: the table has no column `{wanted}`; it needs at least `job` and `outcome`")
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield _row(names, cells, f"{where}, line {reader.line_num}")
    except csv.Error as error:
        raise UsageError(f"{where}, line {reader.line_num}: this is no CSV ({error})") from None


def _row(names: list[str], cells: list[str], where: str) -> Row:
    if len(cells) > len(names):
        raise UsageError(f"{where}: {len(cells)} cells, but the first line names {len(names)} columns")
    row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
    outcome = row.get("outcome", "").lower()
    if outcome not in _OUTCOMES:
        raise UsageError(f"{where}, column outcome: `{outcome}` is none of {', '.join(_OUTCOMES)}")
    return Row(
        job=row.get("job", ""),
        outcome=outcome,
        sites=tuple(site.strip() for site in (row.get("sites") or row.get("site") or "").split(";") if site.strip()),
        seconds={name: _number(row.get(name, ""), f"{where}, column {name}") for name in _SECONDS},
        counts={name: int(_number(row.get(name, ""), f"{where}, column {name}") or 0) for name in _COUNTS},
        gpus=_number(row.get("gpus", ""), f"{where}, column gpus") or 0.0,
        note=row.get("note", ""),
        point={name: value for name, value in row.items() if name and name not in _KNOWN},
    )


def _number(text: str, where: str) -> float | None:
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise UsageError(f"{where}: `{text}` is no number of seconds or times; leave the cell empty if it is unknown")
    return number


def _job(row: Row, checked: bool | None) -> Job:
    outcome, category, held_in = _OUTCOMES[row.outcome]
    attempts = tuple(_attempts(row))
    return Job(
        row.job,
        attempts,
        outcome,
        submitted=None,
        ended=attempts[-1].end if attempts and outcome is not Outcome.RUNNING else None,
        checked=checked if outcome in (Outcome.SUCCEEDED, Outcome.WRONG_OUTPUT) else None,
        category=category,
        reason=row.note if outcome is not Outcome.SUCCEEDED else "",
        held_in=held_in,
        point=row.point,
    )


def _attempts(row: Row) -> Iterator[Attempt]:
    """What came to nothing first, then the last attempt."""
    tries = row.tries or (1 if row.thrown_away or row.gap else 0)
    evictions = max(row.counts["evictions"], 1 if row.gap else 0)
    begin = 0.0
    for number in range(1, tries + 1):
        moved = row.thrown_away * number / tries + row.gap * min(number - 1, evictions) / max(1, evictions)
        end = row.thrown_away * number / tries + row.gap * min(number, evictions) / max(1, evictions)
        yield _failed(row, number, number <= evictions, (begin, moved, end))
        begin = end
    if row.moving or row.execute or not tries:
        yield from _last(row, tries + 1, begin)


def _failed(row: Row, number: int, evicted: bool, times: tuple[float, float, float]) -> Attempt:
    """`times`: when it began, when its transfer ended, when it ended."""
    begin, moved, end = times
    sites = row.sites if evicted or len(set(row.sites)) == 1 else ()  # where it stalled is told of one site only
    whole = end > moved and not row.counts["stalls"]  # else nobody knows how long those took that came
    why = "the transfer stalled" if row.counts["stalls"] else "the transfer came to nothing"
    return Attempt(
        number,
        _laid((Phase.TRANSFER_IN, begin, moved), (Phase.EXECUTE, moved, end)),
        Outcome.EVICTED if evicted else Outcome.FAILED,
        sites[min(number, len(sites)) - 1] if sites else "",
        reason=row.note if evicted else why,
        category=Category.EVICTION if evicted else Category.TRANSFER,
        gpus=row.gpus,
        moves=(Move(begin, moved - begin, whole=whole),) if moved > begin else (),
    )


def _last(row: Row, number: int, begin: float) -> Iterator[Attempt]:
    outcome, category, held_in = _OUTCOMES[row.outcome]
    moved, executed = begin + row.last, begin + row.last + row.execute
    pieces = ((Phase.TRANSFER_IN, begin, moved), (Phase.EXECUTE, moved, executed))
    spans = _laid(*pieces, (Phase.START, executed, executed + row.overhead))
    if not spans:
        return
    yield Attempt(
        number,
        spans,
        outcome,
        row.sites[-1] if row.sites else "",
        reason=row.note if outcome is not Outcome.SUCCEEDED else "",
        category=category,
        gpus=row.gpus,
        moves=(Move(begin, row.last, whole=held_in is not Phase.TRANSFER_IN),) if row.last else (),
        kept_s=row.execute if outcome is Outcome.SUCCEEDED else 0.0,
    )


def _laid(*pieces: tuple[Phase, float, float]) -> tuple[Span, ...]:
    """Empty ones left out."""
    return tuple(Span(phase, start, end) for phase, start, end in pieces if end > start)
