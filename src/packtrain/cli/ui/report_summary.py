"""A report as text: time use, key statistics, sites and findings; and the comparison of two reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from packtrain.formatting import format_duration, format_percent, format_slot_hours
from packtrain.report.analysis.by_site import SiteSummary
from packtrain.report.analysis.compare import compare_stats
from packtrain.report.analysis.distribution import Distribution
from packtrain.report.analysis.findings import Finding
from packtrain.report.analysis.measures import MEASURES, Measure, format_value
from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.analysis.time_accounting import USEFUL, TimeUse
from packtrain.report.history import Outcome

_BAR_WIDTH = 30
_MAX_SITES_SHOWN = 8
_LEFT_COLUMN_KEYS = (
    "success_rate", "wallclock_s", "gpu_s", "makespan_s", "useful_share", "compute_share", "transfer_overhead",
    "failed_jobs_s", "held_in_transfer", "held_in_compute", "held_elsewhere",
)  # fmt: skip
_RIGHT_COLUMN_KEYS = (
    "cpu_efficiency", "memory_efficiency",
    "completion_median_s", "completion_mean_s", "completion_p95_s", "completion_max_s",
    "p95_over_median", "max_over_median", "retries", "failed_transfers",
)  # fmt: skip
_OMIT_IF_ZERO = ("held_in_transfer", "held_in_compute", "held_elsewhere")
_CHANGE_STYLES = {"better": "green", "worse": "red"}


def print_report_summary(out: Console, stats: ReportStats, findings: Sequence[Finding]) -> None:
    """Print one report."""
    out.print(Text.assemble((stats.name, "bold"), "  ", (_format_outcome_counts(stats), "dim")))
    if stats.wallclock_s:
        out.print(f"\nhow {format_slot_hours(stats.wallclock_s)} of slot time were used:")
        out.print(_share_table(stats, out.width))
        out.print()
        out.print(_measure_table(stats))
    if any(site.site for site in stats.sites):
        out.print()
        out.print(_site_table(stats.sites))
    out.print()
    print_findings(out, (insight.text for insight in findings))


def format_headline(stats: ReportStats) -> str:
    """Return `success rate 79%, useful share 50% of 761 h of slots`."""
    parts = []
    if stats.success_rate is not None:
        parts.append(f"success rate {format_percent(stats.success_rate)}")
    if stats.useful_share is not None:
        slots = f"{format_slot_hours(stats.wallclock_s)} of slots"
        parts.append(f"useful share {format_percent(stats.useful_share)} of {slots}")
    return ", ".join(parts)


def print_findings(out: Console, texts: Iterable[str], style: str = "") -> None:
    """Print texts as a bulleted list."""
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False, style=style)
    for text in texts:
        table.add_row("•", Text(text))
    if table.row_count:
        out.print(table)


def print_comparison(out: Console, current: ReportStats, baseline: ReportStats) -> None:
    """Print two reports side by side, with ratios."""
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column("")
    for name in (current.name, baseline.name, "ratio"):
        table.add_column(Text(name), justify="right", overflow="fold")
    table.add_column("")
    for row in compare_stats(current, baseline):
        unit, ratio = row.measure.unit, row.ratio
        change = Text(row.change, style=_CHANGE_STYLES.get(row.change, "dim"))
        ratio_text = "–" if ratio is None else f"{ratio:.2f}"
        table.add_row(
            row.measure.label, format_value(row.current, unit), format_value(row.baseline, unit), ratio_text, change
        )
    out.print()
    out.print(table)


def _format_outcome_counts(stats: ReportStats) -> str:
    counts = ", ".join(
        f"{stats.outcomes[outcome]:,} {outcome.value}" for outcome in Outcome if stats.outcomes.get(outcome)
    )
    return f"{stats.jobs:,} job{'' if stats.jobs == 1 else 's'}: {counts}" if stats.jobs else "no jobs"


def _share_table(stats: ReportStats, width: int) -> Table:
    """Return a row per use of time; the bars are as long as the other columns leave room."""
    table = Table(box=None, padding=(0, 1), show_header=False)
    _add_columns(table, "<<>>")
    rows = [
        (time_use.value, format_slot_hours(seconds), format_percent(seconds / stats.wallclock_s))
        for time_use, seconds in stats.time_use_s.items()
    ]
    text_width = sum(max(map(len, column)) for column in zip(*rows, strict=True))
    bar_width = max(1, min(_BAR_WIDTH, width - text_width - 8))
    max_s = max(stats.time_use_s.values())
    for (name, hours, share), (time_use, seconds) in zip(rows, stats.time_use_s.items(), strict=True):
        bar = "█" * round(bar_width * seconds / max_s) or "▏"
        table.add_row(name, Text(bar, _time_use_style(time_use)), hours, Text(share, "dim"))
    return table


def _add_columns(table: Table, alignments: str) -> None:
    """Add a column for each character: `<` aligns left, `>` right."""
    for side in alignments:
        table.add_column(justify="left" if side == "<" else "right", no_wrap=True)


def _time_use_style(time_use: TimeUse) -> str:
    if time_use in USEFUL:
        return "green" if time_use is TimeUse.USEFUL_COMPUTE else "cyan"
    return "yellow" if time_use in (TimeUse.OVERHEAD, TimeUse.CHECKPOINT_RESTART, TimeUse.IN_PROGRESS) else "red"


def _measure_table(stats: ReportStats) -> Table:
    """Return two columns of statistics, without those that have no value."""
    cells_by_key = {
        measure.key: (measure.label, format_value(measure.compute(stats), measure.unit))
        for measure in MEASURES
        if _has_value(measure, stats)
    }
    left, right = (
        [cells_by_key[key] for key in keys if key in cells_by_key] for keys in (_LEFT_COLUMN_KEYS, _RIGHT_COLUMN_KEYS)
    )
    table = Table(box=None, padding=(0, 1), show_header=False)
    _add_columns(table, "<><>")
    for row in range(max(len(left), len(right))):
        cells = [*(left[row] if row < len(left) else ("", "")), *(right[row] if row < len(right) else ("", ""))]
        table.add_row(Text(cells[0], "dim"), cells[1], Text(f"   {cells[2]}", "dim"), cells[3])
    return table


def _has_value(measure: Measure, stats: ReportStats) -> bool:
    value = measure.compute(stats)
    return bool(value) if measure.key in _OMIT_IF_ZERO else value is not None


def _site_table(sites: Sequence[SiteSummary]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("site (medians)", overflow="fold")
    for name in ("jobs", "succeeded", "slots", "useful", "compute", "transfer"):
        table.add_column(name, justify="right", no_wrap=True)
    for site in sites[:_MAX_SITES_SHOWN]:
        table.add_row(*_site_cells(site))
    if len(sites) > _MAX_SITES_SHOWN:
        table.add_row(Text(f"and {len(sites) - _MAX_SITES_SHOWN:,} more", "dim"))
    return table


def _site_cells(site: SiteSummary) -> list[str | Text]:
    useful = sum(site.time_use_s.get(time_use, 0.0) for time_use in USEFUL)
    return [
        Text(site.site or "unknown", "" if site.site else "dim"),
        f"{site.jobs:,}",
        f"{site.succeeded_jobs:,}",
        format_slot_hours(site.slot_s),
        format_percent(useful / site.slot_s) if site.slot_s else "–",
        _format_median(site.compute_time_s),
        _format_median(site.transfer_time_s),
    ]


def _format_median(distribution: Distribution | None) -> str:
    return format_duration(distribution.median) if distribution else "–"
