"""What stands above the tables: what was found, the figures that count, the pictures. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone

from packtrain.report.analysis.findings import Insight
from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.charts.canvas.svg import escape_xml, to_svg
from packtrain.report.charts.catalog import ReportChart
from packtrain.report.history import JobHistory
from packtrain.report.number_format import format_duration_coarse, format_hours, format_percent

# Numbers with their units: 44%, 4 h 57 min, 13 jobs
_UNIT_PATTERN = r"(?:\s?%|×|\s(?:h|min|s|d|GB|MB/s|kB/s|jobs?|attempts?|times)\b|(?=\sof\b))"
_NUMBER_PATTERN = re.compile(rf"(?<![\w.-])\d[\d.,]*{_UNIT_PATTERN}(?:\s\d+\smin\b)?")
_UNIT_SPACE_PATTERN = re.compile(r"(?<=\d) (?=(?:h|min|s|d|jobs?|[GMk]B/?s?)\b)|(?<=\bh) (?=\d)")
_SOURCE_TEXT = {
    "run": "a run of packtrain",
    "log": "from HTCondor's log",
    "table": "from a table of jobs",
    "simulation": "simulated",
}
_MAX_PROBLEMS = 10
_MAX_LARGE_VALUE_LENGTH = 11  # letters: a name of a site


def render_subtitle(history: JobHistory, stats: ReportStats) -> str:
    """100 jobs, 120 attempts, 761 h on slots · from HTCondor's log · 12 Nov 2026"""
    told = [_count_noun(stats.jobs, "job"), _count_noun(stats.executions, "attempt")]
    if stats.wallclock_s:
        told.append(f"{format_hours(stats.wallclock_s)} on slots")
    return escape_xml(
        " · ".join([", ".join(told), _SOURCE_TEXT.get(history.kind, history.kind), *_date_range(history)])
    )


def _count_noun(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _date_range(history: JobHistory) -> Iterator[str]:
    """In UTC: nobody knows in which zone the reader will sit."""
    times = [span.start for attempt in history.executions() for span in attempt.spans[:1]]
    times += [attempt.end for attempt in history.executions() if attempt.spans]
    if history.has_timestamps and history.kind != "simulation" and times and 0 < min(times) <= max(times) < 253e9:
        first, last = (_format_date(moment) for moment in (min(times), max(times)))
        yield first if first == last else f"{first} to {last}"


def _format_date(timestamp: float) -> str:
    return f"{datetime.fromtimestamp(timestamp, timezone.utc):%Y-%m-%d}"


def render_insights(insights: Sequence[Insight]) -> str:
    """The first one large."""
    if not insights:
        return '<section id="findings"><h2>Findings</h2><p class="first">There is nothing to tell yet.</p></section>'
    first, *others = (_emphasize_numbers(finding.text) for finding in insights)
    rest = f"<ul>{''.join(f'<li>{other}</li>' for other in others)}</ul>" if others else ""
    return f'<section id="findings"><h2>Findings</h2><p class="first">{first}</p>{rest}</section>'


def _emphasize_numbers(text: str) -> str:
    """Its figures stand out; everything is escaped, piece by piece."""
    parts, reached = [], 0
    for figure in _NUMBER_PATTERN.finditer(text):
        parts += [
            escape_xml(text[reached : figure.start()]),
            f"<b>{escape_xml(_nonbreaking_units(figure.group()))}</b>",
        ]
        reached = figure.end()
    return "".join([*parts, escape_xml(text[reached:])])


def _nonbreaking_units(text: str) -> str:
    """A number and its unit stay on one line."""
    return _UNIT_SPACE_PATTERN.sub("\u00a0", text)


def render_cards(stats: ReportStats) -> str:
    shown = "".join(f"<li>{''.join(_render_card(*card))}</li>" for card in _make_cards(stats))
    return f'<ul class="cards" aria-label="Key figures">{shown}</ul>' if shown else ""


def _render_card(name: str, value: str, detail: str) -> Iterator[str]:
    size = "value long" if len(value) > _MAX_LARGE_VALUE_LENGTH else "value"
    for css, text in (("name", name), (size, value), ("more", detail)):
        yield f'<p class="{css}">{escape_xml(_nonbreaking_units(text))}</p>'


def _make_cards(stats: ReportStats) -> Iterator[tuple[str, str, str]]:
    if stats.jobs:
        ended = (
            f"{format_percent(stats.success_rate)} of those that ended"
            if stats.success_rate is not None
            else "none ended"
        )
        yield "Jobs that succeeded", f"{stats.succeeded_jobs:,} of {stats.jobs:,}", ended
    yield from _slot_time_cards(stats)
    if (told := stats.completion_s) and told.count == 1:
        yield "Completion", format_duration_coarse(told.median), "from its first slot to its end"
    elif told:
        yield (
            "Completion, median",
            format_duration_coarse(told.median),
            f"mean {format_duration_coarse(told.mean)}, p95 {format_duration_coarse(told.p95)}",
        )
    if stats.p95_over_median and stats.max_over_median and stats.completion_s and stats.completion_s.count > 1:
        yield (
            "Long tail, p95 / median",
            f"{stats.p95_over_median:.1f}×",
            f"slowest job {stats.max_over_median:.1f}× the median",
        )
    yield from _loss_cards(stats)
    if stats.executions:
        yield "Retries", f"{stats.retries:,}", _format_retries(stats)
    if stats.makespan_s:
        yield "Makespan", format_duration_coarse(stats.makespan_s), "first submission to last end"
    if stats.fastest_compute_site:
        yield "Fastest compute", stats.fastest_compute_site, "by the median of its jobs"
    if stats.fastest_transfer_site:
        yield "Fastest transfers", stats.fastest_transfer_site, "by the median"


def _slot_time_cards(stats: ReportStats) -> Iterator[tuple[str, str, str]]:
    if not stats.wallclock_s or stats.useful_share is None or stats.compute_share is None:
        return
    gpus = f"{format_hours(stats.gpu_s)} of GPUs" if stats.gpu_s else "of all attempts"
    yield "Slot hours", format_hours(stats.wallclock_s), gpus
    parts = f"compute {format_percent(stats.compute_share)}, transfer {format_percent(stats.fraction_of_wallclock(TimeUse.USEFUL_TRANSFER) or 0)}"
    yield "Useful", format_percent(stats.useful_share), parts
    lost = stats.time_use_s.get(TimeUse.WASTED_TRANSFER, 0.0)
    stalls = (
        f"{format_percent(lost / stats.wallclock_s)} of all, {_count_noun(stats.failed_transfers, 'transfer')} lost"
    )
    yield "Transfers thrown away", format_hours(lost) if lost else "none", stalls if lost else "every one was of use"


def _loss_cards(stats: ReportStats) -> Iterator[tuple[str, str, str]]:
    """Of holds and failures; what nobody had is not shown."""
    if stats.transfer_overhead is not None:
        yield "Transfer overhead", format_percent(stats.transfer_overhead), "useful transfer / useful compute"
    if stats.failed_jobs and stats.wallclock_s:
        part = f"{format_percent(stats.failed_jobs_s / stats.wallclock_s)} of all"
        jobs = f"{part}, by {_count_noun(stats.failed_jobs, 'job')}"
        yield "Lost to failed jobs", format_hours(stats.failed_jobs_s), jobs
    held = {
        "in transfer": stats.held_in_transfer,
        "in compute": stats.held_in_compute,
        "elsewhere": stats.held_elsewhere,
    }
    if any(held.values()):
        where = ", ".join(f"{count:,} {place}" for place, count in held.items() if count)
        yield "Jobs held for good", f"{sum(held.values()):,}", where


def _format_retries(stats: ReportStats) -> str:
    return (
        f"by {_count_noun(stats.retried_jobs, 'job')}, at most {stats.max_retries:,}"
        if stats.retries
        else "no job needed one"
    )


def render_charts(charts: Sequence[ReportChart], has_png_files: bool) -> str:
    """Each twice, for a wide and for a narrow page; the style sheet shows one of them."""
    if not charts:
        return ""
    halves = [picture.is_half_width for picture in charts]
    each = (_render_chart(picture, has_png_files, is_alone(halves, number)) for number, picture in enumerate(charts))
    return f'<div class="pictures">{"".join(each)}</div>'


def is_alone(half_width: Sequence[bool], index: int) -> bool:
    """Whether a small picture has none beside it: the last one of a row of an odd number."""
    if not half_width[index] or (index + 1 < len(half_width) and half_width[index + 1]):
        return False
    before = next((count for count, half in enumerate(reversed(half_width[:index])) if not half), index)
    return before % 2 == 0


def _render_chart(chart: ReportChart, has_png_file: bool, alone: bool) -> str:
    css = ' class="half alone"' if alone else ' class="half"' if chart.is_half_width else ""
    label = f"{chart.title}. {chart.caption}"
    link = (
        f'<a href="pictures/{chart.name}.png" aria-label="{escape_xml(chart.title)} as PNG">PNG</a>'
        if has_png_file
        else ""
    )
    caption = f"<figcaption><h2>{escape_xml(chart.title)}</h2>{link}<p>{escape_xml(chart.caption)}</p></figcaption>"
    both = to_svg(chart.wide, label, "wide") + to_svg(chart.narrow, label, "narrow")
    return f'<figure id="picture-{chart.name}"{css}>{caption}{both}</figure>\n'


def render_notes(history: JobHistory) -> str:
    """What the source cannot tell, and what could not be read."""
    lists = [
        ("What this source cannot tell", list(history.limitations)),
        ("What could not be read", list(_format_problems(history))),
    ]
    return "".join(_render_note_list(title, sentences) for title, sentences in lists if sentences)


def _render_note_list(title: str, items: Iterable[str]) -> str:
    rows = "".join(f"<li>{escape_xml(sentence)}</li>" for sentence in items)
    return f'<section class="notes"><h2>{escape_xml(title)}</h2><ul>{rows}</ul></section>'


def _format_problems(history: JobHistory) -> Iterator[str]:
    for problem in history.problems[:_MAX_PROBLEMS]:
        yield f"{problem.path}, line {problem.line:,}: {problem.message}"
    shown = min(len(history.problems), _MAX_PROBLEMS)
    if history.n_skipped > shown:
        yield f"and {history.n_skipped - shown:,} more"
