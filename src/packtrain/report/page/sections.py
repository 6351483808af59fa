"""The parts of the page around the tables: subtitle, findings, cards with key statistics, charts and notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone

from packtrain.formatting import format_duration, format_percent, format_slot_hours
from packtrain.report.analysis.findings import Finding
from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.charts.canvas.svg import escape_xml, to_svg
from packtrain.report.charts.catalog import ReportChart
from packtrain.report.history import JobHistory

# Numbers with units: 44%, 4 h 57 min, 13 jobs
_UNIT_PATTERN = r"(?:\s?%|×|\s(?:h|min|s|d|GB|MB/s|kB/s|jobs?|executions?|times)\b|(?=\sof\b))"
_NUMBER_PATTERN = re.compile(rf"(?<![\w.-])\d[\d.,]*{_UNIT_PATTERN}(?:\s\d+\smin\b)?")
_UNIT_SPACE_PATTERN = re.compile(r"(?<=\d) (?=(?:h|min|s|d|jobs?|[GMk]B/?s?)\b)|(?<=\bh) (?=\d)")
_SOURCE_TEXT = {
    "run": "a packtrain run",
    "log": "from an HTCondor log",
    "accounting": "from Slurm's accounting",
    "table": "from a job table",
    "simulation": "simulated",
}
_MAX_PROBLEMS = 10
_MAX_LARGE_VALUE_LENGTH = 11  # characters; longer values (site names) use a smaller font


def render_subtitle(history: JobHistory, stats: ReportStats) -> str:
    """Render the subtitle: 100 jobs, 120 executions, 761 h of slot time · from an HTCondor log · 2026-11-12."""
    counts = [_count_noun(stats.jobs, "job"), _count_noun(stats.executions, "execution")]
    if stats.wallclock_s:
        counts.append(f"{format_slot_hours(stats.wallclock_s)} of slot time")
    source = _SOURCE_TEXT.get(history.kind, history.kind)
    return escape_xml(" · ".join([", ".join(counts), source, *_date_range(history)]))


def _count_noun(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _date_range(history: JobHistory) -> Iterator[str]:
    """Yield the dates in UTC, because the time zone of the reader is unknown."""
    times = [execution.start for execution in history.executions() if execution.spans]
    times += [execution.end for execution in history.executions() if execution.spans]
    if history.has_timestamps and history.kind != "simulation" and times and 0 < min(times) <= max(times) < 253e9:
        first, last = _format_date(min(times)), _format_date(max(times))
        yield first if first == last else f"{first} to {last}"


def _format_date(timestamp: float) -> str:
    return f"{datetime.fromtimestamp(timestamp, timezone.utc):%Y-%m-%d}"


def render_findings(findings: Sequence[Finding]) -> str:
    """Render the findings, with the first one in a large font."""
    if not findings:
        return '<section id="findings"><h2>Findings</h2><p class="lead">There is nothing to report yet.</p></section>'
    first, *others = (_emphasize_numbers(finding.text) for finding in findings)
    items = f"<ul>{''.join(f'<li>{other}</li>' for other in others)}</ul>" if others else ""
    return f'<section id="findings"><h2>Findings</h2><p class="lead">{first}</p>{items}</section>'


def _emphasize_numbers(text: str) -> str:
    """Mark the numbers of a text. All parts are escaped."""
    parts, position = [], 0
    for number in _NUMBER_PATTERN.finditer(text):
        parts += [
            escape_xml(text[position : number.start()]),
            f"<b>{escape_xml(_nonbreaking_units(number.group()))}</b>",
        ]
        position = number.end()
    return "".join([*parts, escape_xml(text[position:])])


def _nonbreaking_units(text: str) -> str:
    """Insert non-breaking spaces, so that a number and its unit are on the same line."""
    return _UNIT_SPACE_PATTERN.sub("\u00a0", text)


def render_cards(stats: ReportStats) -> str:
    cards = "".join(f"<li>{''.join(_render_card(*card))}</li>" for card in _make_cards(stats))
    return f'<ul class="cards" aria-label="Key statistics">{cards}</ul>' if cards else ""


def _render_card(name: str, value: str, detail: str) -> Iterator[str]:
    value_class = "value long" if len(value) > _MAX_LARGE_VALUE_LENGTH else "value"
    for css_class, text in (("name", name), (value_class, value), ("detail", detail)):
        yield f'<p class="{css_class}">{escape_xml(_nonbreaking_units(text))}</p>'


def _make_cards(stats: ReportStats) -> Iterator[tuple[str, str, str]]:
    """Yield the name, value and detail of each card."""
    if stats.jobs:
        rate = stats.success_rate
        ended = f"{format_percent(rate)} of the ended jobs" if rate is not None else "no job has ended"
        yield "Succeeded jobs", f"{stats.succeeded_jobs:,} of {stats.jobs:,}", ended
    yield from _slot_time_cards(stats)
    yield from _completion_cards(stats)
    yield from _loss_cards(stats)
    if stats.executions:
        yield "Retries", f"{stats.retries:,}", _format_retries(stats)
    if stats.makespan_s:
        yield "Makespan", format_duration(stats.makespan_s), "first submission to last end"
    if stats.fastest_compute_site:
        yield "Fastest compute", stats.fastest_compute_site, "by median compute time"
    if stats.fastest_transfer_site:
        yield "Fastest transfers", stats.fastest_transfer_site, "by median"


def _slot_time_cards(stats: ReportStats) -> Iterator[tuple[str, str, str]]:
    if not stats.wallclock_s or stats.useful_share is None or stats.compute_share is None:
        return
    detail = f"{format_slot_hours(stats.gpu_s)} of GPU time" if stats.gpu_s else "of all executions"
    yield "Slot hours", format_slot_hours(stats.wallclock_s), detail
    transfer_share = stats.fraction_of_wallclock(TimeUse.USEFUL_TRANSFER) or 0
    shares = f"compute {format_percent(stats.compute_share)}, transfer {format_percent(transfer_share)}"
    yield "Useful", format_percent(stats.useful_share), shares
    wasted_s = stats.time_use_s.get(TimeUse.WASTED_TRANSFER, 0.0)
    if wasted_s:
        failed = _count_noun(stats.failed_transfers, "failed transfer")
        detail = f"{format_percent(wasted_s / stats.wallclock_s)} of the total, {failed}"
        yield "Wasted transfer time", format_slot_hours(wasted_s), detail
    else:
        yield "Wasted transfer time", "none", "every transfer was useful"


def _completion_cards(stats: ReportStats) -> Iterator[tuple[str, str, str]]:
    completion = stats.completion_s
    if not completion:
        return
    median = format_duration(completion.median)
    if completion.count == 1:
        yield "Completion", median, "from the first slot to the end"
        return
    detail = f"mean {format_duration(completion.mean)}, p95 {format_duration(completion.p95)}"
    yield "Completion, median", median, detail
    if stats.p95_over_median and stats.max_over_median:
        detail = f"slowest job {stats.max_over_median:.1f}× the median"
        yield "Long tail, p95 / median", f"{stats.p95_over_median:.1f}×", detail


def _loss_cards(stats: ReportStats) -> Iterator[tuple[str, str, str]]:
    """Yield the costs of transfers, failures and holds, if there are any."""
    if stats.transfer_overhead is not None:
        yield "Transfer overhead", format_percent(stats.transfer_overhead), "useful transfer / useful compute"
    if stats.failed_jobs and stats.wallclock_s:
        fraction = format_percent(stats.failed_jobs_s / stats.wallclock_s)
        detail = f"{fraction} of the total, {_count_noun(stats.failed_jobs, 'job')}"
        yield "Time of failed jobs", format_slot_hours(stats.failed_jobs_s), detail
    held = {
        "in transfer": stats.held_in_transfer,
        "in compute": stats.held_in_compute,
        "elsewhere": stats.held_elsewhere,
    }
    if stats.efficiency and stats.efficiency.cpu is not None:
        yield "CPU efficiency", format_percent(stats.efficiency.cpu), "CPU time / requested CPUs times slot time"
    if stats.efficiency and stats.efficiency.memory is not None:
        yield "Memory efficiency", format_percent(stats.efficiency.memory), "peak / requested memory, by slot time"
    if any(held.values()):
        counts = ", ".join(f"{count:,} {phase}" for phase, count in held.items() if count)
        yield "Jobs held, not released", f"{sum(held.values()):,}", counts


def _format_retries(stats: ReportStats) -> str:
    if not stats.retries:
        return "no job was retried"
    return f"of {_count_noun(stats.retried_jobs, 'job')}, at most {stats.max_retries:,} per job"


def render_charts(charts: Sequence[ReportChart], has_png_files: bool) -> str:
    """Render each chart twice, for wide and narrow screens; the style sheet hides one of them."""
    if not charts:
        return ""
    half_width = [chart.is_half_width for chart in charts]
    figures = (_render_chart(chart, has_png_files, is_alone(half_width, i)) for i, chart in enumerate(charts))
    return f'<div class="charts">{"".join(figures)}</div>'


def is_alone(half_width: Sequence[bool], index: int) -> bool:
    """Return whether a half-width chart has a row to itself: the last of an odd number of consecutive ones."""
    if not half_width[index] or (index + 1 < len(half_width) and half_width[index + 1]):
        return False
    n_before = next((count for count, half in enumerate(reversed(half_width[:index])) if not half), index)
    return n_before % 2 == 0


def _render_chart(chart: ReportChart, has_png_file: bool, alone: bool) -> str:
    css = ' class="half full-row"' if alone else ' class="half"' if chart.is_half_width else ""
    label = f"{chart.title}. {chart.caption}"
    link = (
        f'<a href="charts/{chart.name}.png" aria-label="{escape_xml(chart.title)} as PNG">PNG</a>'
        if has_png_file
        else ""
    )
    caption = f"<figcaption><h2>{escape_xml(chart.title)}</h2>{link}<p>{escape_xml(chart.caption)}</p></figcaption>"
    drawings = to_svg(chart.wide, label, "wide") + to_svg(chart.narrow, label, "narrow")
    return f'<figure id="chart-{chart.name}"{css}>{caption}{drawings}</figure>\n'


def render_notes(history: JobHistory) -> str:
    """Render the limitations of the source and the entries that could not be read."""
    lists = [
        ("Limitations of this source", list(history.limitations)),
        ("Unreadable entries", list(_format_problems(history))),
    ]
    return "".join(_render_note_list(title, items) for title, items in lists if items)


def _render_note_list(title: str, items: Iterable[str]) -> str:
    rows = "".join(f"<li>{escape_xml(item)}</li>" for item in items)
    return f'<section class="notes"><h2>{escape_xml(title)}</h2><ul>{rows}</ul></section>'


def _format_problems(history: JobHistory) -> Iterator[str]:
    for problem in history.problems[:_MAX_PROBLEMS]:
        yield f"{problem.path}, line {problem.line:,}: {problem.message}"
    n_listed = min(len(history.problems), _MAX_PROBLEMS)
    if history.n_skipped > n_listed:
        yield f"and {history.n_skipped - n_listed:,} more"
