"""A report in the terminal: where the time went, the figures that count, sites, findings; and two side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from packtrain.report.analysis.by_site import SiteFigures
from packtrain.report.analysis.compare import compare
from packtrain.report.analysis.distribution import Spread
from packtrain.report.analysis.findings import Finding
from packtrain.report.analysis.measures import MEASURES, Measure, words_of
from packtrain.report.analysis.statistics import Figures
from packtrain.report.analysis.time_accounting import USEFUL, Share
from packtrain.report.history import Outcome
from packtrain.report.number_format import hours_words, percent_words, printable, time_words

_BAR = 30
_MOST_SITES = 8
_LEFT = (
    "success_rate", "wallclock_s", "gpu_s", "makespan_s", "useful_share", "compute_share", "transfer_overhead",
    "lost_to_failed_s", "held_in_transfer", "held_in_compute", "held_elsewhere",
)  # fmt: skip
_RIGHT = (
    "completion_median_s", "completion_mean_s", "completion_p95_s", "completion_max_s", "tail_p95", "tail_max",
    "retries", "stalls",
)  # fmt: skip
_ONLY_IF_ANY = ("held_in_transfer", "held_in_compute", "held_elsewhere")
_STYLES = {"better": "green", "worse": "red"}


def show_short(out: Console, figures: Figures, findings: Sequence[Finding]) -> None:
    out.print(f"[bold]{_plain(figures.name)}[/]  [dim]{_counts(figures)}[/]")
    if figures.wallclock_s:
        out.print(f"\nwhere {hours_words(figures.wallclock_s)} of slots went:")
        out.print(_shares(figures))
        out.print()
        out.print(_pairs(figures))
    if any(site.site for site in figures.sites):
        out.print()
        out.print(_sites(figures.sites))
    out.print()
    show_findings(out, (finding.text for finding in findings))


def key_words(figures: Figures) -> str:
    """The two figures that count, on one line: success rate 79%, useful share 50% of 761 h of slots"""
    told = []
    if figures.success_rate is not None:
        told.append(f"success rate {percent_words(figures.success_rate)}")
    if figures.useful_share is not None:
        slots = f"{hours_words(figures.wallclock_s)} of slots"
        told.append(f"useful share {percent_words(figures.useful_share)} of {slots}")
    return ", ".join(told)


def show_findings(out: Console, sentences: Iterable[str], style: str = "") -> None:
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False, style=style)
    for sentence in sentences:
        table.add_row("•", Text(printable(sentence)))
    if table.row_count:
        out.print(table)


def show_comparison(out: Console, ours: Figures, theirs: Figures) -> None:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column("")
    for name in (ours.name, theirs.name, "ratio"):
        table.add_column(Text(printable(name)), justify="right")
    table.add_column("")
    for row in compare(ours, theirs):
        unit, ratio = row.measure.unit, row.ratio
        verdict = Text(row.verdict, style=_STYLES.get(row.verdict, "dim"))
        told = "–" if ratio is None else f"{ratio:.2f}"
        table.add_row(row.measure.words, words_of(row.ours, unit), words_of(row.theirs, unit), told, verdict)
    out.print()
    out.print(table)


def _plain(text: str) -> str:
    """Names are never markup, nor orders to a terminal."""
    return Text(printable(text)).markup


def _counts(figures: Figures) -> str:
    told = ", ".join(f"{figures.outcomes[one]:,} {one.value}" for one in Outcome if figures.outcomes.get(one))
    return f"{figures.jobs:,} job{'' if figures.jobs == 1 else 's'}: {told}" if figures.jobs else "no jobs"


def _shares(figures: Figures) -> Table:
    table = Table(box=None, padding=(0, 1), show_header=False)
    _add_columns(table, "<<>>")
    longest = max(figures.shares.values())
    for share, seconds in figures.shares.items():
        part = seconds / figures.wallclock_s
        bar = "█" * round(_BAR * seconds / longest) or "▏"
        table.add_row(share.value, Text(bar, _style(share)), hours_words(seconds), Text(percent_words(part), "dim"))
    return table


def _add_columns(table: Table, sides: str) -> None:
    """As in formats: < is left, > is right."""
    for side in sides:
        table.add_column(justify="left" if side == "<" else "right", no_wrap=True)


def _style(share: Share) -> str:
    if share in USEFUL:
        return "green" if share is Share.COMPUTE else "cyan"
    return "yellow" if share in (Share.OVERHEAD, Share.RESTART, Share.UNDER_WAY) else "red"


def _pairs(figures: Figures) -> Table:
    """Two columns of figures; what cannot be told is left out."""
    known = {one.key: (one.words, words_of(one.of(figures), one.unit)) for one in MEASURES if _is_known(one, figures)}
    left, right = ([known[key] for key in keys if key in known] for keys in (_LEFT, _RIGHT))
    table = Table(box=None, padding=(0, 1), show_header=False)
    _add_columns(table, "<><>")
    for row in range(max(len(left), len(right))):
        cells = [*(left[row] if row < len(left) else ("", "")), *(right[row] if row < len(right) else ("", ""))]
        table.add_row(Text(cells[0], "dim"), cells[1], Text(f"   {cells[2]}", "dim"), cells[3])
    return table


def _is_known(measure: Measure, figures: Figures) -> bool:
    value = measure.of(figures)
    return bool(value) if measure.key in _ONLY_IF_ANY else value is not None


def _sites(sites: Sequence[SiteFigures]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("site (medians)", no_wrap=True)
    for name in ("jobs", "succeeded", "slots", "useful", "compute", "transfer"):
        table.add_column(name, justify="right", no_wrap=True)
    for site in sites[:_MOST_SITES]:
        table.add_row(*_site(site))
    if len(sites) > _MOST_SITES:
        table.add_row(Text(f"and {len(sites) - _MOST_SITES:,} more", "dim"))
    return table


def _site(site: SiteFigures) -> list[str | Text]:
    useful = sum(site.shares.get(share, 0.0) for share in USEFUL)
    return [
        Text(printable(site.site) or "not told", "" if site.site else "dim"),
        f"{site.jobs:,}",
        f"{site.succeeded:,}",
        hours_words(site.seconds),
        percent_words(useful / site.seconds) if site.seconds else "–",
        _median(site.compute),
        _median(site.transfer),
    ]


def _median(spread: Spread | None) -> str:
    return time_words(spread.median) if spread else "–"
