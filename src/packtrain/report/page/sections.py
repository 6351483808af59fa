"""What stands above the tables: what was found, the figures that count, the pictures. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone

from packtrain.report.analysis.findings import Finding
from packtrain.report.analysis.statistics import Figures
from packtrain.report.analysis.time_accounting import Share
from packtrain.report.charts.canvas.svg import clean, svg_of
from packtrain.report.charts.catalog import Picture
from packtrain.report.history import History
from packtrain.report.number_format import hours_words, percent_words, time_words

# Numbers with their units: 44%, 4 h 57 min, 13 jobs
_UNIT = r"(?:\s?%|×|\s(?:h|min|s|d|GB|MB/s|kB/s|jobs?|attempts?|times)\b|(?=\sof\b))"
_FIGURE = re.compile(rf"(?<![\w.-])\d[\d.,]*{_UNIT}(?:\s\d+\smin\b)?")
_SPACE = re.compile(r"(?<=\d) (?=(?:h|min|s|d|jobs?|[GMk]B/?s?)\b)|(?<=\bh) (?=\d)")
_KINDS = {
    "run": "a run of packtrain",
    "log": "from HTCondor's log",
    "table": "from a table of jobs",
    "simulation": "simulated",
}
_SHOWN_PROBLEMS = 10
_LONG_VALUE = 11  # letters: a name of a site


def about(history: History, figures: Figures) -> str:
    """100 jobs, 120 attempts, 761 h on slots · from HTCondor's log · 12 Nov 2026"""
    told = [_counted(figures.jobs, "job"), _counted(figures.attempts, "attempt")]
    if figures.wallclock_s:
        told.append(f"{hours_words(figures.wallclock_s)} on slots")
    return clean(" · ".join([", ".join(told), _KINDS.get(history.kind, history.kind), *_days(history)]))


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _days(history: History) -> Iterator[str]:
    """In UTC: nobody knows in which zone the reader will sit."""
    times = [span.start for attempt in history.attempts() for span in attempt.spans[:1]]
    times += [attempt.end for attempt in history.attempts() if attempt.spans]
    if history.absolute and history.kind != "simulation" and times and 0 < min(times) <= max(times) < 253e9:
        first, last = (_day(moment) for moment in (min(times), max(times)))
        yield first if first == last else f"{first} to {last}"


def _day(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, timezone.utc):%Y-%m-%d}"


def findings(found: Sequence[Finding]) -> str:
    """The first one large."""
    if not found:
        return '<section id="findings"><h2>Findings</h2><p class="first">There is nothing to tell yet.</p></section>'
    first, *others = (_marked(finding.text) for finding in found)
    rest = f"<ul>{''.join(f'<li>{other}</li>' for other in others)}</ul>" if others else ""
    return f'<section id="findings"><h2>Findings</h2><p class="first">{first}</p>{rest}</section>'


def _marked(text: str) -> str:
    """Its figures stand out; everything is escaped, piece by piece."""
    parts, reached = [], 0
    for figure in _FIGURE.finditer(text):
        parts += [clean(text[reached : figure.start()]), f"<b>{clean(_together(figure.group()))}</b>"]
        reached = figure.end()
    return "".join([*parts, clean(text[reached:])])


def _together(text: str) -> str:
    """A number and its unit stay on one line."""
    return _SPACE.sub("\u00a0", text)


def cards(figures: Figures) -> str:
    shown = "".join(f"<li>{''.join(_card(*card))}</li>" for card in _cards(figures))
    return f'<ul class="cards" aria-label="Key figures">{shown}</ul>' if shown else ""


def _card(name: str, value: str, more: str) -> Iterator[str]:
    size = "value long" if len(value) > _LONG_VALUE else "value"
    for css, text in (("name", name), (size, value), ("more", more)):
        yield f'<p class="{css}">{clean(_together(text))}</p>'


def _cards(figures: Figures) -> Iterator[tuple[str, str, str]]:
    if figures.jobs:
        ended = (
            f"{percent_words(figures.success_rate)} of those that ended"
            if figures.success_rate is not None
            else "none ended"
        )
        yield "Jobs that succeeded", f"{figures.succeeded:,} of {figures.jobs:,}", ended
    yield from _hour_cards(figures)
    if (told := figures.completion) and told.count == 1:
        yield "Completion", time_words(told.median), "from its first slot to its end"
    elif told:
        yield "Completion, median", time_words(told.median), f"mean {time_words(told.mean)}, p95 {time_words(told.p95)}"
    if figures.tail_p95 and figures.tail_max and figures.completion and figures.completion.count > 1:
        yield "Long tail, p95 / median", f"{figures.tail_p95:.1f}×", f"slowest job {figures.tail_max:.1f}× the median"
    yield from _loss_cards(figures)
    if figures.attempts:
        yield "Retries", f"{figures.retries:,}", _retries(figures)
    if figures.makespan_s:
        yield "Makespan", time_words(figures.makespan_s), "first submission to last end"
    if figures.fastest_compute:
        yield "Fastest compute", figures.fastest_compute, "by the median of its jobs"
    if figures.fastest_transfer:
        yield "Fastest transfers", figures.fastest_transfer, "by the median"


def _hour_cards(figures: Figures) -> Iterator[tuple[str, str, str]]:
    if not figures.wallclock_s or figures.useful_share is None or figures.compute_share is None:
        return
    gpus = f"{hours_words(figures.gpu_s)} of GPUs" if figures.gpu_s else "of all attempts"
    yield "Slot hours", hours_words(figures.wallclock_s), gpus
    parts = (
        f"compute {percent_words(figures.compute_share)}, transfer {percent_words(figures.part(Share.TRANSFER) or 0)}"
    )
    yield "Useful", percent_words(figures.useful_share), parts
    lost = figures.shares.get(Share.THROWN_AWAY, 0.0)
    stalls = f"{percent_words(lost / figures.wallclock_s)} of all, {_counted(figures.stalls, 'transfer')} lost"
    yield "Transfers thrown away", hours_words(lost) if lost else "none", stalls if lost else "every one was of use"


def _loss_cards(figures: Figures) -> Iterator[tuple[str, str, str]]:
    """Of holds and failures; what nobody had is not shown."""
    if figures.transfer_overhead is not None:
        yield "Transfer overhead", percent_words(figures.transfer_overhead), "useful transfer / useful compute"
    if figures.failed and figures.wallclock_s:
        part = f"{percent_words(figures.lost_to_failed_s / figures.wallclock_s)} of all"
        jobs = f"{part}, by {_counted(figures.failed, 'job')}"
        yield "Lost to failed jobs", hours_words(figures.lost_to_failed_s), jobs
    held = {
        "in transfer": figures.held_in_transfer,
        "in compute": figures.held_in_compute,
        "elsewhere": figures.held_elsewhere,
    }
    if any(held.values()):
        where = ", ".join(f"{count:,} {place}" for place, count in held.items() if count)
        yield "Jobs held for good", f"{sum(held.values()):,}", where


def _retries(figures: Figures) -> str:
    return (
        f"by {_counted(figures.jobs_retried, 'job')}, at most {figures.most_retries:,}"
        if figures.retries
        else "no job needed one"
    )


def pictures(shown: Sequence[Picture], files: bool) -> str:
    """Each twice, for a wide and for a narrow page; the style sheet shows one of them."""
    if not shown:
        return ""
    halves = [picture.half for picture in shown]
    each = (_figure(picture, files, is_alone(halves, number)) for number, picture in enumerate(shown))
    return f'<div class="pictures">{"".join(each)}</div>'


def is_alone(halves: Sequence[bool], number: int) -> bool:
    """Whether a small picture has none beside it: the last one of a row of an odd number."""
    if not halves[number] or (number + 1 < len(halves) and halves[number + 1]):
        return False
    before = next((count for count, half in enumerate(reversed(halves[:number])) if not half), number)
    return before % 2 == 0


def _figure(picture: Picture, files: bool, alone: bool) -> str:
    css = ' class="half alone"' if alone else ' class="half"' if picture.half else ""
    label = f"{picture.title}. {picture.caption}"
    link = f'<a href="pictures/{picture.name}.png" aria-label="{clean(picture.title)} as PNG">PNG</a>' if files else ""
    caption = f"<figcaption><h2>{clean(picture.title)}</h2>{link}<p>{clean(picture.caption)}</p></figcaption>"
    both = svg_of(picture.wide, label, "wide") + svg_of(picture.narrow, label, "narrow")
    return f'<figure id="picture-{picture.name}"{css}>{caption}{both}</figure>\n'


def notes(history: History) -> str:
    """What the source cannot tell, and what could not be read."""
    lists = [
        ("What this source cannot tell", list(history.untold)),
        ("What could not be read", list(_problems(history))),
    ]
    return "".join(_notes(title, sentences) for title, sentences in lists if sentences)


def _notes(title: str, sentences: Iterable[str]) -> str:
    rows = "".join(f"<li>{clean(sentence)}</li>" for sentence in sentences)
    return f'<section class="notes"><h2>{clean(title)}</h2><ul>{rows}</ul></section>'


def _problems(history: History) -> Iterator[str]:
    for problem in history.problems[:_SHOWN_PROBLEMS]:
        yield f"{problem.where}, line {problem.line:,}: {problem.text}"
    shown = min(len(history.problems), _SHOWN_PROBLEMS)
    if history.skipped > shown:
        yield f"and {history.skipped - shown:,} more"
