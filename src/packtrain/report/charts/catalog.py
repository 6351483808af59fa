"""Which pictures a report has, each with its title and what it shows in words. Pure.

A picture that would have nothing in it is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from packtrain.report.analysis.statistics import ReportStats
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
from packtrain.report.history import JobHistory
from packtrain.report.readers.training_curves import TrainingCurves

FULL_WIDTH, HALF_WIDTH, NARROW_WIDTH = (
    1038.0,
    489.0,
    340.0,
)  # the first two as the page has room for them: a row of a pixel stays one
_MIN_TRANSFERS, _MIN_DURATION_S = 3, 1.0  # transfers that make a picture


@dataclass(frozen=True)
class ReportChart:
    name: str  # of its file
    title: str
    caption: str
    wide: Drawing
    narrow: Drawing  # for a telephone
    is_half_width: bool = False  # two of them have room side by side


def build_charts(history: JobHistory, stats: ReportStats, curves: TrainingCurves | None = None) -> list[ReportChart]:
    one = len(history.jobs) == 1  # there is nothing to compare
    found = [
        _slot_hours_chart(stats),
        _timeline_chart(history),
        None if one else _completion_chart(history, stats),
        None if one else _lost_transfers_chart(stats),
        _failures_chart(stats),
        None if one else _compute_by_site_chart(stats),
        _site_hours_chart(stats),
        None if one else _transfer_speed_chart(history),
        _training_chart(curves),
    ]
    return [picture for picture in found if picture is not None]


def _slot_hours_chart(stats: ReportStats) -> ReportChart | None:
    if not stats.wallclock_s:
        return None
    words = "Every second that a slot was taken, by what became of it."
    return _full_width_chart(
        "hours", "Where the hours went", words, lambda width: slot_hours.draw_slot_hours(stats, width)
    )


def _timeline_chart(history: JobHistory) -> ReportChart | None:
    rows = timeline.build_timeline_rows(history)
    if not rows.rows:
        return None
    order = "in order of submission" if rows.has_timestamps else "the longest last"
    words = f"One row a job, {order}. Cool colours were of use, warm ones were lost."
    words += _sampling_note(rows.step, rows.n_jobs)
    return _full_width_chart("timeline", "Timeline", words, lambda width: timeline.draw_timeline(rows, width))


def _completion_chart(history: JobHistory, stats: ReportStats) -> ReportChart | None:
    if stats.completion_s is None:
        return None
    bars, count = completion.completion_bars(history, stats), stats.completion_s.count
    words = "From the first slot a job got to its end, waiting in between included."
    words += _sampling_note(-(-count // completion.MAX_BARS), count)
    draw = completion.draw_completion
    return _full_width_chart("completion", "Completion time of each job", words, lambda width: draw(bars, stats, width))


def _lost_transfers_chart(stats: ReportStats) -> ReportChart | None:
    count = len(lost_transfers.losses_by_job(stats))
    if not count:
        return None
    words = "Slot time in transfers that were killed, stalled or failed, or whose job came to nothing."
    words += _sampling_note(-(-count // lost_transfers.MAX_BARS), count)
    return _half_width_chart(
        "stalls", "Time lost to stalls", words, lambda width: lost_transfers.draw_lost_transfers(stats, width)
    )


def _failures_chart(stats: ReportStats) -> ReportChart | None:
    if not stats.job_failures and not stats.execution_failures:
        return None
    words = "By kind, with the slot hours they cost. An attempt that failed may have had a successor that did not."
    return _half_width_chart("failures", "What failed", words, lambda width: failures.draw_failures(stats, width))


def _compute_by_site_chart(stats: ReportStats) -> ReportChart | None:
    spreads = [site.compute_time_s for site in stats.sites if site.compute_time_s]
    if not spreads:
        return None
    words = "Useful compute of jobs that did all of it at one site."
    words += _top_sites_note(compute_by_site.MAX_SITES, len(spreads))
    if max(spread.count for spread in spreads) > compute_by_site.MAX_DOTS:
        words += (
            f" {compute_by_site.MAX_DOTS} jobs of a site are shown, evenly chosen from the quickest to the slowest."
        )
    return _half_width_chart(
        "sites", "Compute by site", words, lambda width: compute_by_site.draw_compute_by_site(stats, width)
    )


def _site_hours_chart(stats: ReportStats) -> ReportChart | None:
    if len(stats.sites) < 2:
        return None
    words = "Slot hours of each site, by what became of them." + _top_sites_note(slot_hours.MAX_SITES, len(stats.sites))
    return _half_width_chart(
        "site-hours", "Hours by site", words, lambda width: slot_hours.draw_site_hours(stats, width)
    )


def _transfer_speed_chart(history: JobHistory) -> ReportChart | None:
    moves = transfer_speed.transfer_points_of(history)
    if len(moves.points) < _MIN_TRANSFERS or moves.max_duration_s < _MIN_DURATION_S:
        return None
    what = "Speed" if moves.has_rates else "Time"
    words = f"{what} of each transfer of inputs; the dashed line is the median of those that came whole."
    if any(not point.value for point in moves.points):
        words += " Those at the bottom came to nothing, and nobody told how many bytes had come."
    counts = Counter((point.site, point.complete) for point in moves.points)
    words += _top_sites_note(transfer_speed.MAX_SITES, len({site for site, _ in counts}))
    if max(counts.values()) > transfer_speed.MAX_DOTS:
        words += f" Of either kind at most {transfer_speed.MAX_DOTS} are shown for a site."
    return _full_width_chart(
        "transfers", "Transfers by site and time", words, lambda width: transfer_speed.draw_transfer_speed(moves, width)
    )


def _training_chart(curves: TrainingCurves | None) -> ReportChart | None:
    if curves is None or not curves.jobs:
        return None
    words = "What each training reported."
    if len(curves.jobs) > training_panel.MAX_NAMED_JOBS:
        words = "What trainings reported; the best, the median and the worst are named."
        words += _sampling_note(-(-len(curves.jobs) // training_panel.MAX_LINES), len(curves.jobs))
    return _full_width_chart("training", "Training", words, lambda width: training_panel.draw_training(curves, width))


def _full_width_chart(name: str, title: str, caption: str, draw: Callable[[float], Drawing]) -> ReportChart:
    return ReportChart(name, title, caption, draw(FULL_WIDTH), draw(NARROW_WIDTH))


def _half_width_chart(name: str, title: str, caption: str, draw: Callable[[float], Drawing]) -> ReportChart:
    return ReportChart(name, title, caption, draw(HALF_WIDTH), draw(NARROW_WIDTH), is_half_width=True)


# What is said whenever not everything is shown


def _sampling_note(step: int, jobs: int) -> str:
    nth = {2: "second", 3: "third"}.get(step, f"{step}th")
    return f" Of {jobs:,} jobs every {nth} is shown." if step > 1 else ""


def _top_sites_note(max_sites: int, count: int) -> str:
    return f" The {max_sites} busiest of {count:,} sites." if count > max_sites else ""
