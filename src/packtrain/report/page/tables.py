"""The tables of the page: rows of HTML, which a script sorts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest

from packtrain.report.analysis.by_site import SiteFigures, SpeedFigures
from packtrain.report.analysis.compare import Compared, compare
from packtrain.report.analysis.distribution import Spread
from packtrain.report.analysis.job_labels import points_of
from packtrain.report.analysis.measures import words_of
from packtrain.report.analysis.statistics import FailureFigures, Figures, JobFigures
from packtrain.report.analysis.time_accounting import LOST_COMPUTE, USEFUL, Share
from packtrain.report.charts.canvas.svg import clean
from packtrain.report.history import Attempt, History, Outcome, Phase
from packtrain.report.number_format import hours_words, percent_words, speed_words, time_words

MOST_ROWS = 2000
_LONG = 60  # rows that are not printed
_FILTERED = 12  # rows that are worth a search
_NOTHING = "–"
_VERDICTS = {"better": "good", "worse": "poor"}


@dataclass(frozen=True)
class Cell:
    text: str
    value: float | None = None  # what it is sorted by, if that is a number
    css: str = ""

    @property
    def html(self) -> str:
        if self.css == "number":
            value = f"{self.value:.6g}" if self.value is not None else ""
            return f'<td data-v="{value}">{clean(self.text)}</td>'
        css = f' class="{self.css}"' if self.css else ""
        return f"<td{css}>{clean(self.text)}</td>"


@dataclass(frozen=True)
class Column:
    name: str
    number: bool = True


@dataclass(frozen=True)
class Grid:
    """A table."""

    name: str  # its id
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Cell]]
    left_out: str = ""  # a sentence, if these are not all rows
    searched: bool = True  # if there are many

    @property
    def html(self) -> str:
        heads = "".join(map(_head, self.columns))
        body = "".join(f"<tr>{''.join(cell.html for cell in row)}</tr>\n" for row in self.rows)
        table = f'<table id="{self.name}"><thead><tr>{heads}</tr></thead><tbody>\n{body}</tbody></table>'
        # It scrolls, so it must be reachable by keyboard.
        region = f'<div class="scroll" tabindex="0" role="region" aria-label="{clean(self.title)}">{table}</div>'
        long = " long" if len(self.rows) > _LONG else ""
        return f'<section class="table{long}" aria-labelledby="{self.name}-title">{self._top()}{region}</section>'

    def _top(self) -> str:
        count = f"{len(self.rows):,} row{'' if len(self.rows) == 1 else 's'}"
        told = f'<p id="{self.name}-told" aria-live="polite">{clean(self.left_out or count)}</p>'
        find = f'<label>Find<input type="search" data-of="{self.name}" data-told="{self.name}-told"></label>'
        search = find if self.searched and len(self.rows) > _FILTERED else ""
        return f'<div class="head"><h2 id="{self.name}-title">{clean(self.title)}</h2>{told}{search}</div>'


def _head(column: Column) -> str:
    css = ' class="number"' if column.number else ""
    return f'<th scope="col" aria-sort="none"{css}><button type="button">{clean(column.name)}</button></th>'


def tables_of(history: History, figures: Figures) -> list[Grid]:
    of_sites = [_sites(figures), _spreads(figures), _speeds(figures)]
    found = [_jobs(history, figures), _attempts(history), *of_sites, _failures(figures)]
    return [_without_empty_columns(grid) for grid in found if grid.rows]


def _without_empty_columns(grid: Grid) -> Grid:
    """What nobody told has no place; the first column always has."""
    used = [any(row[at].text not in ("", _NOTHING) for row in grid.rows) for at in range(len(grid.columns))]
    kept = [at for at, some in enumerate(used) if some or not at]
    rows = [[row[at] for at in kept] for row in grid.rows]
    return replace(grid, columns=tuple(grid.columns[at] for at in kept), rows=rows)


# Cells


def _words(text: str) -> Cell:
    return Cell(text, css="words")


def _count(number: float) -> Cell:
    return Cell(f"{number:,}", number, "number")


def _time(seconds: float | None) -> Cell:
    """Nothing is shown of nothing, so that what there is stands out."""
    if not seconds:
        return Cell(_NOTHING, None if seconds is None else 0.0, "number")
    return Cell(time_words(seconds), seconds, "number")


def _hours(seconds: float) -> Cell:
    return Cell(hours_words(seconds), seconds, "number") if seconds else Cell(_NOTHING, 0.0, "number")


def _percent(part: float, whole: float) -> Cell:
    return Cell(percent_words(part / whole), part / whole, "number") if whole else Cell(_NOTHING, css="number")


def _speed(spread: Spread | None) -> Cell:
    return Cell(speed_words(spread.median), spread.median, "number") if spread else Cell(_NOTHING, css="number")


def _median(spread: Spread | None) -> Cell:
    return _time(spread.median if spread else None)


def _outcome(outcome: Outcome) -> Cell:
    fine = outcome in (Outcome.SUCCEEDED, Outcome.CONTINUES)
    return Cell(outcome.value, css="good" if fine else "" if outcome is Outcome.RUNNING else "poor")


def _columns(words: str, numbers: str, rest: str = "") -> tuple[Column, ...]:
    named = [Column(name, number=False) for name in words.split(", ")]
    counted = [Column(name) for name in numbers.split(", ")]
    return (*named, *counted, *(Column(name, number=False) for name in rest.split(", ") if name))


# Tables


def _jobs(history: History, figures: Figures) -> Grid:
    columns = _columns(
        "Job, Parameters, Outcome, Site",
        "Attempts, Completion, On slots, Compute used, Thrown away, Compute lost, Queued, Held",
        "Reason",
    )
    rows = nlargest(MOST_ROWS, figures.rows, key=_loss) if len(figures.rows) > MOST_ROWS else figures.rows
    left_out = _left_out(len(figures.rows), "jobs that lost most")
    points = points_of(history.jobs)
    return Grid("jobs", "Jobs", columns, [_job(row, points.get(row.job, "")) for row in rows], left_out)


def _loss(row: JobFigures) -> float:
    return row.seconds - sum(row.shares.get(share, 0.0) for share in USEFUL)


def _job(row: JobFigures, point: str) -> list[Cell]:
    return [
        Cell(row.job),
        Cell(point),
        _outcome(row.outcome),
        Cell(", ".join(row.sites)),
        _count(row.attempts),
        _time(row.completion_s),
        _time(row.seconds),
        _time(row.shares.get(Share.COMPUTE, 0.0)),
        _time(row.shares.get(Share.THROWN_AWAY, 0.0)),
        _time(sum(row.shares.get(share, 0.0) for share in LOST_COMPUTE)),
        _time(row.queued_s),
        _time(row.held_s),
        _words(row.reason),
    ]


def _attempts(history: History) -> Grid:
    columns = _columns("Job", "Attempt") + _columns(
        "Outcome, Site, Machine", "On slot, Transfer in, Execute, Transfer out", "Reason"
    )
    every = [(job.id, attempt) for job in history.jobs for attempt in job.attempts]
    rows = nlargest(MOST_ROWS, every, key=lambda pair: pair[1].seconds) if len(every) > MOST_ROWS else every
    left_out = _left_out(len(every), "longest attempts")
    return Grid("attempts", "Attempts", columns, [_attempt(job, attempt) for job, attempt in rows], left_out)


def _left_out(count: int, which: str) -> str:
    return f"The {MOST_ROWS:,} {which}, of {count:,}." if count > MOST_ROWS else ""


def _attempt(job: str, attempt: Attempt) -> list[Cell]:
    return [
        Cell(job),
        _count(attempt.number),
        _outcome(attempt.outcome),
        Cell(attempt.site),
        Cell(attempt.machine),
        _time(attempt.seconds),
        _time(attempt.of(Phase.TRANSFER_IN)),
        _time(attempt.of(Phase.EXECUTE)),
        _time(attempt.of(Phase.TRANSFER_OUT)),
        _words(attempt.reason),
    ]


def _sites(figures: Figures) -> Grid:
    columns = _columns(
        "Site",
        "Attempts, Jobs, Succeeded, Slot hours, Useful, Wasted, Compute median, Transfer median, Speed median",
    )
    return Grid("sites", "Sites", columns, [_site(site) for site in figures.sites])


def _site(site: SiteFigures) -> list[Cell]:
    useful = sum(site.shares.get(share, 0.0) for share in USEFUL)
    return [
        Cell(site.site or "unknown"),
        _count(site.attempts),
        _count(site.jobs),
        _count(site.succeeded),
        _hours(site.seconds),
        _percent(useful, site.seconds),
        _hours(site.wasted),
        _median(site.compute),
        _median(site.transfer),
        _speed(site.speed),
    ]


def _spreads(figures: Figures) -> Grid:
    """How far the values of a site lie apart."""
    columns = _columns("Site, What", "Values, Mean, Deviation, Shortest, p25, Median, p75, p95, Longest")
    told = [(site, what, getattr(site, what)) for site in figures.sites for what in ("compute", "transfer")]
    rows = [[Cell(site.site or "unknown"), Cell(what), *_spread(found)] for site, what, found in told if found]
    return Grid("spreads", "Spread by site", columns, rows)


def _spread(found: Spread) -> Iterator[Cell]:
    yield _count(found.count)
    for name in ("mean", "deviation", "low", "quarter", "median", "three_quarters", "p95", "high"):
        yield _time(getattr(found, name))


def against(ours: Figures, theirs: Figures) -> Grid:
    """Two reports side by side."""
    columns = (
        Column("Figure", number=False), Column("This"), Column("Other"), Column("Ratio"),
        Column("Verdict", number=False),
    )  # fmt: skip
    rows = [_compared(row) for row in compare(ours, theirs)]
    return Grid("against", f"Against {theirs.name}", columns, rows, searched=False)


def _compared(row: Compared) -> list[Cell]:
    """Units differ from row to row: by values nothing is sorted."""
    values = [Cell(words_of(value, row.measure.unit), css="number") for value in (row.ours, row.theirs)]
    ratio = Cell(_NOTHING if row.ratio is None else f"{row.ratio:.2f}", row.ratio, "number")
    return [Cell(row.measure.words), *values, ratio, Cell(row.verdict, css=_VERDICTS.get(row.verdict, ""))]


def _speeds(figures: Figures) -> Grid:
    columns = _columns(
        "Site, Source",
        "Came whole, Thrown away, Median, Slowest, Speed median, Median of first ones, Median of later ones",
    )
    return Grid("transfers", "Transfers", columns, [_place(place) for place in figures.speeds])


def _place(place: SpeedFigures) -> list[Cell]:
    return [
        Cell(place.site or "unknown"),
        Cell(place.source),
        _count(place.seconds.count if place.seconds else 0),
        _count(place.broken),
        _median(place.seconds),
        _time(place.seconds.high if place.seconds else None),
        _speed(place.speed),
        _median(place.first),
        _median(place.later),
    ]


def _failures(figures: Figures) -> Grid:
    columns = _columns("Of, Kind", "Count, Part, Slot hours", "Most frequent reason")
    kinds = [("jobs", row) for row in figures.failures] + [("attempts", row) for row in figures.troubles]
    return Grid("failures", "Failures", columns, [_failure(what, row) for what, row in kinds])


def _failure(what: str, row: FailureFigures) -> list[Cell]:
    name = row.category.value or "unknown"
    return [
        Cell(what), Cell(name), _count(row.count), _percent(row.fraction, 1.0), _hours(row.seconds), _words(row.reason),
    ]  # fmt: skip
