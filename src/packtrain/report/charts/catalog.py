"""Which pictures a report has, each with its title and what it shows in words. Pure.

A picture that would have nothing in it is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from packtrain.report.analysis.statistics import Figures
from packtrain.report.charts import (
    completion,
    compute_by_site,
    failures,
    lost_transfers,
    slot_hours,
    timeline,
    training_panel,
    transfer_speed,
)
from packtrain.report.charts.canvas.drawing import Drawing
from packtrain.report.history import History
from packtrain.report.readers.training_curves import Curves

FULL, HALF, NARROW = 1038.0, 489.0, 340.0  # the first two as the page has room for them: a row of a pixel stays one
_FEWEST, _WORTH_SHOWING_S = 3, 1.0  # transfers that make a picture


@dataclass(frozen=True)
class Picture:
    name: str  # of its file
    title: str
    caption: str
    wide: Drawing
    narrow: Drawing  # for a telephone
    half: bool = False  # two of them have room side by side


def pictures_of(history: History, figures: Figures, curves: Curves | None = None) -> list[Picture]:
    one = len(history.jobs) == 1  # there is nothing to compare
    found = [
        _hours(figures),
        _timeline(history),
        None if one else _completion(history, figures),
        None if one else _stalls(figures),
        _failures(figures),
        None if one else _sites(figures),
        _site_hours(figures),
        None if one else _transfers(history),
        _training(curves),
    ]
    return [picture for picture in found if picture is not None]


def _hours(figures: Figures) -> Picture | None:
    if not figures.wallclock_s:
        return None
    words = "Every second that a slot was taken, by what became of it."
    return _full("hours", "Where the hours went", words, lambda width: slot_hours.draw_waste(figures, width))


def _timeline(history: History) -> Picture | None:
    rows = timeline.rows_of(history)
    if not rows.shown:
        return None
    order = "in order of submission" if rows.absolute else "the longest last"
    words = f"One row a job, {order}. Cool colours were of use, warm ones were lost."
    words += _every(rows.step, rows.jobs)
    return _full("timeline", "Timeline", words, lambda width: timeline.draw_timeline(rows, width))


def _completion(history: History, figures: Figures) -> Picture | None:
    if figures.completion is None:
        return None
    bars, count = completion.bars_of(history, figures), figures.completion.count
    words = "From the first slot a job got to its end, waiting in between included."
    words += _every(-(-count // completion.MOST_BARS), count)
    draw = completion.draw_completion
    return _full("completion", "Completion time of each job", words, lambda width: draw(bars, figures, width))


def _stalls(figures: Figures) -> Picture | None:
    count = len(lost_transfers.losses_of(figures))
    if not count:
        return None
    words = "Slot time in transfers that were killed, stalled or failed, or whose job came to nothing."
    words += _every(-(-count // lost_transfers.MOST_BARS), count)
    return _half("stalls", "Time lost to stalls", words, lambda width: lost_transfers.draw_stalls(figures, width))


def _failures(figures: Figures) -> Picture | None:
    if not figures.failures and not figures.troubles:
        return None
    words = "By kind, with the slot hours they cost. An attempt that failed may have had a successor that did not."
    return _half("failures", "What failed", words, lambda width: failures.draw_failures(figures, width))


def _sites(figures: Figures) -> Picture | None:
    spreads = [site.compute for site in figures.sites if site.compute]
    if not spreads:
        return None
    words = "Useful compute of jobs that did all of it at one site."
    words += _busiest(compute_by_site.MOST_SITES, len(spreads))
    if max(spread.count for spread in spreads) > compute_by_site.MOST_DOTS:
        words += (
            f" {compute_by_site.MOST_DOTS} jobs of a site are shown, evenly chosen from the quickest to the slowest."
        )
    return _half("sites", "Compute by site", words, lambda width: compute_by_site.draw_sites(figures, width))


def _site_hours(figures: Figures) -> Picture | None:
    if len(figures.sites) < 2:
        return None
    words = "Slot hours of each site, by what became of them." + _busiest(slot_hours.MOST_SITES, len(figures.sites))
    return _half("site-hours", "Hours by site", words, lambda width: slot_hours.draw_site_hours(figures, width))


def _transfers(history: History) -> Picture | None:
    moves = transfer_speed.moves_of(history)
    if len(moves.points) < _FEWEST or moves.longest_s < _WORTH_SHOWING_S:
        return None
    what = "Speed" if moves.speeds else "Time"
    words = f"{what} of each transfer of inputs; the dashed line is the median of those that came whole."
    if any(not point.value for point in moves.points):
        words += " Those at the bottom came to nothing, and nobody told how many bytes had come."
    counts = Counter((point.site, point.whole) for point in moves.points)
    words += _busiest(transfer_speed.MOST_SITES, len({site for site, _ in counts}))
    if max(counts.values()) > transfer_speed.MOST_DOTS:
        words += f" Of either kind at most {transfer_speed.MOST_DOTS} are shown for a site."
    return _full(
        "transfers", "Transfers by site and time", words, lambda width: transfer_speed.draw_speeds(moves, width)
    )


def _training(curves: Curves | None) -> Picture | None:
    if curves is None or not curves.jobs:
        return None
    words = "What each training reported."
    if len(curves.jobs) > training_panel.FEW:
        words = "What trainings reported; the best, the median and the worst are named."
        words += _every(-(-len(curves.jobs) // training_panel.MOST_LINES), len(curves.jobs))
    return _full("training", "Training", words, lambda width: training_panel.draw_training(curves, width))


def _full(name: str, title: str, caption: str, draw: Callable[[float], Drawing]) -> Picture:
    return Picture(name, title, caption, draw(FULL), draw(NARROW))


def _half(name: str, title: str, caption: str, draw: Callable[[float], Drawing]) -> Picture:
    return Picture(name, title, caption, draw(HALF), draw(NARROW), half=True)


# What is said whenever not everything is shown


def _every(step: int, jobs: int) -> str:
    nth = {2: "second", 3: "third"}.get(step, f"{step}th")
    return f" Of {jobs:,} jobs every {nth} is shown." if step > 1 else ""


def _busiest(most: int, count: int) -> str:
    return f" The {most} busiest of {count:,} sites." if count > most else ""
