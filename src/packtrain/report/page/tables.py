"""The tables of the page. The script of the page sorts and filters their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import TypeVar

from packtrain.formatting import format_duration, format_percent, format_rate, format_slot_hours
from packtrain.report.analysis.by_site import SiteSummary, TransferSummary
from packtrain.report.analysis.compare import MeasureComparison, compare_stats
from packtrain.report.analysis.distribution import Distribution
from packtrain.report.analysis.measures import format_value
from packtrain.report.analysis.resource_use import cpu_efficiency, memory_efficiency
from packtrain.report.analysis.statistics import FailureSummary, JobSummary, ReportStats, job_labels
from packtrain.report.analysis.time_accounting import LOST_COMPUTE, UNFINISHED_OUTCOMES, USEFUL, TimeUse
from packtrain.report.charts.canvas.svg import escape_xml
from packtrain.report.history import ExecutionRecord, JobHistory, Outcome, Phase

T = TypeVar("T")
MAX_ROWS = 2000
_MAX_PRINTED_ROWS = 60  # longer tables are omitted in print
_MIN_ROWS_FOR_SEARCH = 12  # smaller tables have no search box
_EMPTY = "–"
_CSS_BY_CHANGE = {"better": "good", "worse": "bad"}


@dataclass(frozen=True)
class HtmlCell:
    """One cell of a table."""

    text: str
    sort_value: float | None = None  # the number to sort by, in numeric columns
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
    """A sortable table."""

    element_id: str
    title: str
    columns: tuple[HtmlColumn, ...]
    rows: Sequence[Sequence[HtmlCell]]
    truncation_note: str = ""  # stated if rows are missing
    has_search: bool = True  # if there are enough rows

    @property
    def to_html(self) -> str:
        headers = "".join(map(_render_column_header, self.columns))
        body = "".join(f"<tr>{''.join(cell.to_html for cell in row)}</tr>\n" for row in self.rows)
        table = f'<table id="{self.element_id}"><thead><tr>{headers}</tr></thead><tbody>\n{body}</tbody></table>'
        # The region scrolls, so it must be reachable by keyboard.
        region = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape_xml(self.title)}">{table}</div>'
        css_class = "table long" if len(self.rows) > _MAX_PRINTED_ROWS else "table"
        section = f'<section class="{css_class}" aria-labelledby="{self.element_id}-title">'
        return f"{section}{self._render_header()}{region}</section>"

    def _render_header(self) -> str:
        count = f"{len(self.rows):,} row{'' if len(self.rows) == 1 else 's'}"
        status_id = f"{self.element_id}-status"
        status = f'<p id="{status_id}" aria-live="polite">{escape_xml(self.truncation_note or count)}</p>'
        search = ""
        if self.has_search and len(self.rows) > _MIN_ROWS_FOR_SEARCH:
            box = f'<input type="search" data-table="{self.element_id}" data-status="{status_id}">'
            search = f"<label>Find{box}</label>"
        return f'<div class="head"><h2 id="{self.element_id}-title">{escape_xml(self.title)}</h2>{status}{search}</div>'


def _render_column_header(column: HtmlColumn) -> str:
    css = ' class="number"' if column.is_numeric else ""
    return f'<th scope="col" aria-sort="none"{css}><button type="button">{escape_xml(column.name)}</button></th>'


def build_tables(history: JobHistory, stats: ReportStats, max_rows: int = MAX_ROWS) -> list[HtmlTable]:
    """Build all tables that have rows."""
    tables = [
        _jobs_table(history, stats, max_rows),
        _executions_table(history, max_rows),
        _sites_table(stats),
        _states_table(stats),
        _distributions_table(stats),
        _transfers_table(stats),
        _failures_table(stats),
    ]
    return [_drop_empty_columns(table) for table in tables if table.rows]


def _drop_empty_columns(table: HtmlTable) -> HtmlTable:
    """Drop columns without any value, except the first one."""
    has_values = [any(row[index].text not in ("", _EMPTY) for row in table.rows) for index in range(len(table.columns))]
    indexes = [index for index, keep in enumerate(has_values) if keep or index == 0]
    rows = [[row[index] for index in indexes] for row in table.rows]
    return replace(table, columns=tuple(table.columns[index] for index in indexes), rows=rows)


# Cells


def _text_cell(text: str) -> HtmlCell:
    return HtmlCell(text, css_class="text")


def _count_cell(number: float) -> HtmlCell:
    return HtmlCell(f"{number:,}", number, "number")


def _duration_cell(duration_s: float | None) -> HtmlCell:
    """Format a duration; zero is shown as –, so that other values stand out."""
    if not duration_s:
        return HtmlCell(_EMPTY, None if duration_s is None else 0.0, "number")
    return HtmlCell(format_duration(duration_s), duration_s, "number")


def _hours_cell(duration_s: float) -> HtmlCell:
    return HtmlCell(format_slot_hours(duration_s) if duration_s else _EMPTY, duration_s, "number")


def _percent_cell(part: float, whole: float) -> HtmlCell:
    return (
        HtmlCell(format_percent(part / whole), part / whole, "number")
        if whole
        else HtmlCell(_EMPTY, css_class="number")
    )


def _fraction_cell(fraction: float | None) -> HtmlCell:
    return (
        HtmlCell(_EMPTY, css_class="number")
        if fraction is None
        else HtmlCell(format_percent(fraction), fraction, "number")
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
    is_good = outcome in (Outcome.SUCCEEDED, Outcome.CHECKPOINTED)
    return HtmlCell(outcome.value, css_class="good" if is_good else "" if outcome in UNFINISHED_OUTCOMES else "bad")


def _make_columns(text: str, numeric: str, trailing_text: str = "") -> tuple[HtmlColumn, ...]:
    """Make columns from comma-separated names: text columns, numeric columns, then more text columns."""
    leading = [HtmlColumn(name, is_numeric=False) for name in text.split(", ")]
    numbers = [HtmlColumn(name) for name in numeric.split(", ")]
    trailing = [HtmlColumn(name, is_numeric=False) for name in trailing_text.split(", ") if name]
    return (*leading, *numbers, *trailing)


# Tables


def _jobs_table(history: JobHistory, stats: ReportStats, max_rows: int) -> HtmlTable:
    columns = _make_columns(
        "Job, Parameters, Outcome, Site",
        "Executions, Completion, Slot time, Useful compute, Wasted transfer, Lost compute, Queued, Held",
        "Reason",
    )
    rows, note = _select_rows(stats.job_summaries, max_rows, _wasted_s, "jobs with the most wasted time")
    labels = job_labels(history.jobs)
    return HtmlTable("jobs", "Jobs", columns, [_job_row(row, labels.get(row.job, "")) for row in rows], note)


def _wasted_s(row: JobSummary) -> float:
    return row.slot_s - sum(row.time_use_s.get(use, 0.0) for use in USEFUL)


def _job_row(row: JobSummary, label: str) -> list[HtmlCell]:
    return [
        HtmlCell(row.job),
        HtmlCell(label),
        _outcome_cell(row.outcome),
        HtmlCell(", ".join(row.sites)),
        _count_cell(row.executions),
        _duration_cell(row.completion_s),
        _duration_cell(row.slot_s),
        _duration_cell(row.time_use_s.get(TimeUse.USEFUL_COMPUTE, 0.0)),
        _duration_cell(row.time_use_s.get(TimeUse.WASTED_TRANSFER, 0.0)),
        _duration_cell(sum(row.time_use_s.get(use, 0.0) for use in LOST_COMPUTE)),
        _duration_cell(row.queued_s),
        _duration_cell(row.held_s),
        _text_cell(row.reason),
    ]


def _executions_table(history: JobHistory, max_rows: int) -> HtmlTable:
    columns = _make_columns("Job", "Execution") + _make_columns(
        "Outcome, State, Site, Node", "Slot time, Transfer in, Execute, Transfer out, CPU, Memory", "Reason"
    )
    executions = [(job.id, execution) for job in history.jobs for execution in job.executions]
    shown, note = _select_rows(executions, max_rows, lambda item: item[1].duration_s, "longest executions")
    rows = [_execution_row(job_id, execution) for job_id, execution in shown]
    return HtmlTable("executions", "Executions", columns, rows, note)


def _select_rows(rows: Sequence[T], max_rows: int, key: Callable[[T], float], which: str) -> tuple[Sequence[T], str]:
    """Return the rows to show and a note if some are left out."""
    if len(rows) <= max_rows:
        return rows, ""
    return nlargest(max_rows, rows, key=key), f"The {max_rows:,} {which}, out of {len(rows):,}."


def _execution_row(job_id: str, execution: ExecutionRecord) -> list[HtmlCell]:
    return [
        HtmlCell(job_id),
        _count_cell(execution.number),
        _outcome_cell(execution.outcome),
        HtmlCell(execution.pool_state),
        HtmlCell(execution.site),
        HtmlCell(execution.node),
        _duration_cell(execution.duration_s),
        _duration_cell(execution.seconds_in(Phase.TRANSFER_IN)),
        _duration_cell(execution.seconds_in(Phase.EXECUTE)),
        _duration_cell(execution.seconds_in(Phase.TRANSFER_OUT)),
        _fraction_cell(cpu_efficiency(execution)),
        _fraction_cell(memory_efficiency(execution)),
        _text_cell(execution.reason),
    ]


def _sites_table(stats: ReportStats) -> HtmlTable:
    columns = _make_columns(
        "Site",
        "Executions, Jobs, Succeeded, Slot hours, GPU hours, Useful, Wasted, CPU efficiency, Memory efficiency, "
        "Median wait, Longest wait, Median compute, Median transfer, Median speed",
    )
    return HtmlTable("sites", "Sites", columns, [_site_row(site) for site in stats.sites])


def _site_row(site: SiteSummary) -> list[HtmlCell]:
    useful = sum(site.time_use_s.get(use, 0.0) for use in USEFUL)
    return [
        HtmlCell(site.site or "unknown"),
        _count_cell(site.executions),
        _count_cell(site.jobs),
        _count_cell(site.succeeded_jobs),
        _hours_cell(site.slot_s),
        _hours_cell(site.gpu_s),
        _percent_cell(useful, site.slot_s),
        _hours_cell(site.wasted_s),
        _fraction_cell(site.efficiency.cpu if site.efficiency else None),
        _fraction_cell(site.efficiency.memory if site.efficiency else None),
        _median_cell(site.queue_wait_s),
        _duration_cell(site.queue_wait_s.maximum if site.queue_wait_s else None),
        _median_cell(site.compute_time_s),
        _median_cell(site.transfer_time_s),
        _rate_cell(site.bytes_per_s),
    ]


def _states_table(stats: ReportStats) -> HtmlTable:
    columns = _make_columns("State", "Executions, Slot hours, Wasted, GPU hours")
    rows = [
        [
            HtmlCell(state.state),
            _count_cell(state.executions),
            _hours_cell(state.slot_s),
            _hours_cell(state.wasted_s),
            _hours_cell(state.gpu_s),
        ]
        for state in stats.states
    ]
    return HtmlTable("states", "Executions by the pool's states", columns, rows)


def _distributions_table(stats: ReportStats) -> HtmlTable:
    """Build the table of compute and transfer times by site."""
    columns = _make_columns("Site, Time", "Values, Mean, Std. dev., Minimum, p25, Median, p75, p95, Maximum")
    distributions = [
        (site.site, label, distribution)
        for site in stats.sites
        for label, distribution in (("compute", site.compute_time_s), ("transfer", site.transfer_time_s))
    ]
    rows = [
        [HtmlCell(site or "unknown"), HtmlCell(label), *_distribution_cells(distribution)]
        for site, label, distribution in distributions
        if distribution
    ]
    return HtmlTable("distributions", "Distribution by site", columns, rows)


def _distribution_cells(distribution: Distribution) -> Iterator[HtmlCell]:
    yield _count_cell(distribution.count)
    for attribute in ("mean", "stdev", "minimum", "p25", "median", "p75", "p95", "maximum"):
        yield _duration_cell(getattr(distribution, attribute))


def comparison_table(current: ReportStats, baseline: ReportStats) -> HtmlTable:
    """Build the table that compares two reports."""
    columns = (
        HtmlColumn("Statistic", is_numeric=False), HtmlColumn("Current"), HtmlColumn("Baseline"), HtmlColumn("Ratio"),
        HtmlColumn("Change", is_numeric=False),
    )  # fmt: skip
    rows = [_comparison_row(row) for row in compare_stats(current, baseline)]
    return HtmlTable("comparison", f"Compared with {baseline.name}", columns, rows, has_search=False)


def _comparison_row(row: MeasureComparison) -> list[HtmlCell]:
    """Build a row. Its values have no sort value, because the units of the rows differ."""
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
        "Site, Source", "Complete, Failed, Median, Slowest, Median speed, Median (cold cache), Median (warm cache)"
    )
    return HtmlTable("transfers", "Transfers", columns, [_transfer_row(transfer) for transfer in stats.transfers])


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
    columns = _make_columns("Level, Category", "Count, Fraction, Slot hours", "Most frequent reason")
    rows = [_failure_row("jobs", failure) for failure in stats.job_failures]
    rows += [_failure_row("executions", failure) for failure in stats.execution_failures]
    return HtmlTable("failures", "Failures", columns, rows)


def _failure_row(level: str, failure: FailureSummary) -> list[HtmlCell]:
    return [
        HtmlCell(level),
        HtmlCell(failure.category.value or "unknown"),
        _count_cell(failure.count),
        _percent_cell(failure.fraction, 1.0),
        _hours_cell(failure.slot_s),
        _text_cell(failure.reason),
    ]
