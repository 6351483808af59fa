"""The tables of the page: rows of HTML, which a script sorts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest

from packtrain.report.analysis.by_site import SiteSummary, TransferSummary
from packtrain.report.analysis.compare import MeasureComparison, compare_stats
from packtrain.report.analysis.distribution import Distribution
from packtrain.report.analysis.job_labels import job_labels
from packtrain.report.analysis.measures import format_value
from packtrain.report.analysis.statistics import FailureSummary, JobSummary, ReportStats
from packtrain.report.analysis.time_accounting import LOST_COMPUTE, USEFUL, TimeUse
from packtrain.report.charts.canvas.svg import escape_xml
from packtrain.report.history import ExecutionRecord, JobHistory, Outcome, Phase
from packtrain.report.number_format import format_duration_coarse, format_hours, format_percent, format_rate

MAX_ROWS = 2000
_MAX_PRINTED_ROWS = 60  # rows that are not printed
_MIN_ROWS_FOR_SEARCH = 12  # rows that are worth a search
_EMPTY = "–"
_CSS_BY_CHANGE = {"better": "good", "worse": "poor"}


@dataclass(frozen=True)
class HtmlCell:
    text: str
    sort_value: float | None = None  # what it is sorted by, if that is a number
    css_class: str = ""

    @property
    def to_html(self) -> str:
        if self.css_class == "number":
            value = f"{self.sort_value:.6g}" if self.sort_value is not None else ""
            return f'<td data-v="{value}">{escape_xml(self.text)}</td>'
        css = f' class="{self.css_class}"' if self.css_class else ""
        return f"<td{css}>{escape_xml(self.text)}</td>"


@dataclass(frozen=True)
class HtmlColumn:
    name: str
    is_numeric: bool = True


@dataclass(frozen=True)
class HtmlTable:
    """A table."""

    element_id: str  # its id
    title: str
    columns: tuple[HtmlColumn, ...]
    rows: Sequence[Sequence[HtmlCell]]
    truncation_note: str = ""  # a sentence, if these are not all rows
    has_search: bool = True  # if there are many

    @property
    def to_html(self) -> str:
        heads = "".join(map(_render_column_header, self.columns))
        body = "".join(f"<tr>{''.join(cell.to_html for cell in row)}</tr>\n" for row in self.rows)
        table = f'<table id="{self.element_id}"><thead><tr>{heads}</tr></thead><tbody>\n{body}</tbody></table>'
        # It scrolls, so it must be reachable by keyboard.
        region = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape_xml(self.title)}">{table}</div>'
        long = " long" if len(self.rows) > _MAX_PRINTED_ROWS else ""
        return f'<section class="table{long}" aria-labelledby="{self.element_id}-title">{self._render_header()}{region}</section>'

    def _render_header(self) -> str:
        count = f"{len(self.rows):,} row{'' if len(self.rows) == 1 else 's'}"
        told = f'<p id="{self.element_id}-told" aria-live="polite">{escape_xml(self.truncation_note or count)}</p>'
        find = (
            f'<label>Find<input type="search" data-of="{self.element_id}" data-told="{self.element_id}-told"></label>'
        )
        search = find if self.has_search and len(self.rows) > _MIN_ROWS_FOR_SEARCH else ""
        return f'<div class="head"><h2 id="{self.element_id}-title">{escape_xml(self.title)}</h2>{told}{search}</div>'


def _render_column_header(column: HtmlColumn) -> str:
    css = ' class="number"' if column.is_numeric else ""
    return f'<th scope="col" aria-sort="none"{css}><button type="button">{escape_xml(column.name)}</button></th>'


def build_tables(history: JobHistory, stats: ReportStats) -> list[HtmlTable]:
    of_sites = [_sites_table(stats), _distributions_table(stats), _transfers_table(stats)]
    found = [_jobs_table(history, stats), _executions_table(history), *of_sites, _failures_table(stats)]
    return [_drop_empty_columns(grid) for grid in found if grid.rows]


def _drop_empty_columns(table: HtmlTable) -> HtmlTable:
    """What nobody told has no place; the first column always has."""
    used = [any(row[at].text not in ("", _EMPTY) for row in table.rows) for at in range(len(table.columns))]
    kept = [at for at, some in enumerate(used) if some or not at]
    rows = [[row[at] for at in kept] for row in table.rows]
    return replace(table, columns=tuple(table.columns[at] for at in kept), rows=rows)


# Cells


def _text_cell(text: str) -> HtmlCell:
    return HtmlCell(text, css_class="words")


def _count_cell(number: float) -> HtmlCell:
    return HtmlCell(f"{number:,}", number, "number")


def _duration_cell(duration_s: float | None) -> HtmlCell:
    """Nothing is shown of nothing, so that what there is stands out."""
    if not duration_s:
        return HtmlCell(_EMPTY, None if duration_s is None else 0.0, "number")
    return HtmlCell(format_duration_coarse(duration_s), duration_s, "number")


def _hours_cell(duration_s: float) -> HtmlCell:
    return HtmlCell(format_hours(duration_s), duration_s, "number") if duration_s else HtmlCell(_EMPTY, 0.0, "number")


def _percent_cell(part: float, whole: float) -> HtmlCell:
    return (
        HtmlCell(format_percent(part / whole), part / whole, "number")
        if whole
        else HtmlCell(_EMPTY, css_class="number")
    )


def _rate_cell(distribution: Distribution | None) -> HtmlCell:
    return (
        HtmlCell(format_rate(distribution.median), distribution.median, "number")
        if distribution
        else HtmlCell(_EMPTY, css_class="number")
    )


def _median_cell(distribution: Distribution | None) -> HtmlCell:
    return _duration_cell(distribution.median if distribution else None)


def _outcome_cell(outcome: Outcome) -> HtmlCell:
    fine = outcome in (Outcome.SUCCEEDED, Outcome.CHECKPOINTED)
    return HtmlCell(outcome.value, css_class="good" if fine else "" if outcome is Outcome.RUNNING else "poor")


def _make_columns(text: str, numeric: str, trailing_text: str = "") -> tuple[HtmlColumn, ...]:
    named = [HtmlColumn(name, is_numeric=False) for name in text.split(", ")]
    counted = [HtmlColumn(name) for name in numeric.split(", ")]
    return (*named, *counted, *(HtmlColumn(name, is_numeric=False) for name in trailing_text.split(", ") if name))


# Tables


def _jobs_table(history: JobHistory, stats: ReportStats) -> HtmlTable:
    columns = _make_columns(
        "Job, Parameters, Outcome, Site",
        "Attempts, Completion, On slots, Compute used, Thrown away, Compute lost, Queued, Held",
        "Reason",
    )
    rows = (
        nlargest(MAX_ROWS, stats.job_summaries, key=_wasted_s)
        if len(stats.job_summaries) > MAX_ROWS
        else stats.job_summaries
    )
    left_out = _truncation_note(len(stats.job_summaries), "jobs that lost most")
    points = job_labels(history.jobs)
    return HtmlTable("jobs", "Jobs", columns, [_job_row(row, points.get(row.job, "")) for row in rows], left_out)


def _wasted_s(row: JobSummary) -> float:
    return row.slot_s - sum(row.time_use_s.get(share, 0.0) for share in USEFUL)


def _job_row(row: JobSummary, point: str) -> list[HtmlCell]:
    return [
        HtmlCell(row.job),
        HtmlCell(point),
        _outcome_cell(row.outcome),
        HtmlCell(", ".join(row.sites)),
        _count_cell(row.executions),
        _duration_cell(row.completion_s),
        _duration_cell(row.slot_s),
        _duration_cell(row.time_use_s.get(TimeUse.USEFUL_COMPUTE, 0.0)),
        _duration_cell(row.time_use_s.get(TimeUse.WASTED_TRANSFER, 0.0)),
        _duration_cell(sum(row.time_use_s.get(share, 0.0) for share in LOST_COMPUTE)),
        _duration_cell(row.queued_s),
        _duration_cell(row.held_s),
        _text_cell(row.reason),
    ]


def _executions_table(history: JobHistory) -> HtmlTable:
    columns = _make_columns("Job", "Attempt") + _make_columns(
        "Outcome, Site, Machine", "On slot, Transfer in, Execute, Transfer out", "Reason"
    )
    every = [(job.id, attempt) for job in history.jobs for attempt in job.executions]
    rows = nlargest(MAX_ROWS, every, key=lambda pair: pair[1].duration_s) if len(every) > MAX_ROWS else every
    left_out = _truncation_note(len(every), "longest attempts")
    return HtmlTable("attempts", "Attempts", columns, [_execution_row(job, attempt) for job, attempt in rows], left_out)


def _truncation_note(count: int, which: str) -> str:
    return f"The {MAX_ROWS:,} {which}, of {count:,}." if count > MAX_ROWS else ""


def _execution_row(job_id: str, execution: ExecutionRecord) -> list[HtmlCell]:
    return [
        HtmlCell(job_id),
        _count_cell(execution.number),
        _outcome_cell(execution.outcome),
        HtmlCell(execution.site),
        HtmlCell(execution.node),
        _duration_cell(execution.duration_s),
        _duration_cell(execution.seconds_in(Phase.TRANSFER_IN)),
        _duration_cell(execution.seconds_in(Phase.EXECUTE)),
        _duration_cell(execution.seconds_in(Phase.TRANSFER_OUT)),
        _text_cell(execution.reason),
    ]


def _sites_table(stats: ReportStats) -> HtmlTable:
    columns = _make_columns(
        "Site",
        "Attempts, Jobs, Succeeded, Slot hours, Useful, Wasted, Compute median, Transfer median, Speed median",
    )
    return HtmlTable("sites", "Sites", columns, [_site_row(site) for site in stats.sites])


def _site_row(site: SiteSummary) -> list[HtmlCell]:
    useful = sum(site.time_use_s.get(share, 0.0) for share in USEFUL)
    return [
        HtmlCell(site.site or "unknown"),
        _count_cell(site.executions),
        _count_cell(site.jobs),
        _count_cell(site.succeeded_jobs),
        _hours_cell(site.slot_s),
        _percent_cell(useful, site.slot_s),
        _hours_cell(site.wasted_s),
        _median_cell(site.compute_time_s),
        _median_cell(site.transfer_time_s),
        _rate_cell(site.bytes_per_s),
    ]


def _distributions_table(stats: ReportStats) -> HtmlTable:
    """How far the values of a site lie apart."""
    columns = _make_columns("Site, What", "Values, Mean, Deviation, Shortest, p25, Median, p75, p95, Longest")
    told = [(site, what, getattr(site, what)) for site in stats.sites for what in ("compute_time_s", "transfer_time_s")]
    rows = [
        [HtmlCell(site.site or "unknown"), HtmlCell(what), *_distribution_cells(found)]
        for site, what, found in told
        if found
    ]
    return HtmlTable("spreads", "Spread by site", columns, rows)


def _distribution_cells(distribution: Distribution) -> Iterator[HtmlCell]:
    yield _count_cell(distribution.count)
    for name in ("mean", "deviation", "low", "quarter", "median", "three_quarters", "p95", "high"):
        yield _duration_cell(getattr(distribution, name))


def comparison_table(current: ReportStats, baseline: ReportStats) -> HtmlTable:
    """Two reports side by side."""
    columns = (
        HtmlColumn("Figure", is_numeric=False), HtmlColumn("This"), HtmlColumn("Other"), HtmlColumn("Ratio"),
        HtmlColumn("Verdict", is_numeric=False),
    )  # fmt: skip
    rows = [_comparison_row(row) for row in compare_stats(current, baseline)]
    return HtmlTable("against", f"Against {baseline.name}", columns, rows, has_search=False)


def _comparison_row(row: MeasureComparison) -> list[HtmlCell]:
    """Units differ from row to row: by values nothing is sorted."""
    values = [
        HtmlCell(format_value(value, row.measure.unit), css_class="number") for value in (row.current, row.baseline)
    ]
    ratio = HtmlCell(_EMPTY if row.ratio is None else f"{row.ratio:.2f}", row.ratio, "number")
    return [
        HtmlCell(row.measure.label),
        *values,
        ratio,
        HtmlCell(row.change, css_class=_CSS_BY_CHANGE.get(row.change, "")),
    ]


def _transfers_table(stats: ReportStats) -> HtmlTable:
    columns = _make_columns(
        "Site, Source",
        "Came whole, Thrown away, Median, Slowest, Speed median, Median of first ones, Median of later ones",
    )
    return HtmlTable("transfers", "Transfers", columns, [_transfer_row(place) for place in stats.transfers])


def _transfer_row(transfer: TransferSummary) -> list[HtmlCell]:
    return [
        HtmlCell(transfer.site or "unknown"),
        HtmlCell(transfer.source),
        _count_cell(transfer.duration_s.count if transfer.duration_s else 0),
        _count_cell(transfer.failed),
        _median_cell(transfer.duration_s),
        _duration_cell(transfer.duration_s.maximum if transfer.duration_s else None),
        _rate_cell(transfer.bytes_per_s),
        _median_cell(transfer.cold_duration_s),
        _median_cell(transfer.warm_duration_s),
    ]


def _failures_table(stats: ReportStats) -> HtmlTable:
    columns = _make_columns("Of, Kind", "Count, Part, Slot hours", "Most frequent reason")
    kinds = [("jobs", row) for row in stats.job_failures] + [("attempts", row) for row in stats.execution_failures]
    return HtmlTable("failures", "Failures", columns, [_failure_row(what, row) for what, row in kinds])


def _failure_row(level: str, row: FailureSummary) -> list[HtmlCell]:
    name = row.category.value or "unknown"
    return [
        HtmlCell(level), HtmlCell(name), _count_cell(row.count), _percent_cell(row.fraction, 1.0), _hours_cell(row.slot_s), _text_cell(row.reason),
    ]  # fmt: skip
