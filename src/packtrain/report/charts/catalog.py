"""Selects the charts of a report and gives each a title and a caption. Charts without data are omitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.charts import (
    completion,
    compute_by_site,
    failures,
    slot_hours,
    timeline,
    training_panel,
    transfer_speed,
    wasted_transfers,
)
from packtrain.report.charts.canvas.drawing import Drawing
from packtrain.report.history import JobHistory
from packtrain.report.readers.training_curves import TrainingCurves

# The first two are the widths on the page, so that one unit is one pixel.
FULL_WIDTH, HALF_WIDTH, NARROW_WIDTH = 1038.0, 489.0, 340.0
_MIN_TRANSFERS, _MIN_DURATION_S = 3, 1.0  # for a chart of transfers


@dataclass(frozen=True)
class ReportChart:
    """A chart in two sizes, with its texts."""

    name: str  # of its PNG file
    title: str
    caption: str
    wide: Drawing
    narrow: Drawing  # for phones
    is_half_width: bool = False  # two fit side by side


def build_charts(history: JobHistory, stats: ReportStats, curves: TrainingCurves | None = None) -> list[ReportChart]:
    """Build all charts that have data. A history of one job has no charts that compare jobs."""
    single_job = len(history.jobs) == 1
    charts = [
        _slot_hours_chart(stats),
        _timeline_chart(history),
        None if single_job else _completion_chart(history, stats),
        None if single_job else _wasted_transfers_chart(stats),
        _failures_chart(stats),
        None if single_job else _compute_by_site_chart(stats),
        _site_hours_chart(stats),
        None if single_job else _transfer_speed_chart(history),
        _training_chart(curves),
    ]
    return [chart for chart in charts if chart is not None]


def _slot_hours_chart(stats: ReportStats) -> ReportChart | None:
    if not stats.wallclock_s:
        return None
    caption = "Slot time of all executions, by what came of it."
    return _full_width_chart(
        "slot-hours", "Slot time by use", caption, lambda width: slot_hours.draw_slot_hours(stats, width)
    )


def _timeline_chart(history: JobHistory) -> ReportChart | None:
    rows = timeline.build_timeline_rows(history)
    if not rows.rows:
        return None
    order = "in order of submission" if rows.has_timestamps else "with the longest last"
    caption = f"One row per job, {order}. Cool colors are useful time, warm colors are wasted time."
    caption += _sampling_note(rows.step, rows.n_jobs)
    return _full_width_chart("timeline", "Timeline", caption, lambda width: timeline.draw_timeline(rows, width))


def _completion_chart(history: JobHistory, stats: ReportStats) -> ReportChart | None:
    if stats.completion_s is None:
        return None
    bars, count = completion.completion_bars(history, stats), stats.completion_s.count
    caption = "Time from the first slot of a job to its end, including the waits in between."
    caption += _sampling_note(-(-count // completion.MAX_BARS), count)
    return _full_width_chart(
        "completion",
        "Completion time of each job",
        caption,
        lambda width: completion.draw_completion(bars, stats, width),
    )


def _wasted_transfers_chart(stats: ReportStats) -> ReportChart | None:
    count = len(wasted_transfers.losses_by_job(stats))
    if not count:
        return None
    caption = "Slot time of transfers that were killed, stalled or failed, or whose job failed."
    caption += _sampling_note(-(-count // wasted_transfers.MAX_BARS), count)
    return _half_width_chart(
        "wasted-transfers",
        "Wasted transfer time by job",
        caption,
        lambda width: wasted_transfers.draw_wasted_transfers(stats, width),
    )


def _failures_chart(stats: ReportStats) -> ReportChart | None:
    if not stats.job_failures and not stats.execution_failures:
        return None
    caption = "Failures by category, with their slot hours. A failed execution may have been retried with success."
    return _half_width_chart("failures", "Failures", caption, lambda width: failures.draw_failures(stats, width))


def _compute_by_site_chart(stats: ReportStats) -> ReportChart | None:
    distributions = [site.compute_time_s for site in stats.sites if site.compute_time_s]
    if not distributions:
        return None
    caption = "Useful compute time of jobs that did all of it at one site."
    caption += _top_sites_note(compute_by_site.MAX_SITES, len(distributions))
    if max(distribution.count for distribution in distributions) > compute_by_site.MAX_DOTS:
        caption += f" At most {compute_by_site.MAX_DOTS} jobs per site are shown, sampled evenly by compute time."
    return _half_width_chart(
        "compute-by-site",
        "Compute time by site",
        caption,
        lambda width: compute_by_site.draw_compute_by_site(stats, width),
    )


def _site_hours_chart(stats: ReportStats) -> ReportChart | None:
    if len(stats.sites) < 2:
        return None
    caption = "Slot time at each site, by what came of it." + _top_sites_note(slot_hours.MAX_SITES, len(stats.sites))
    return _half_width_chart(
        "site-hours", "Slot time by site", caption, lambda width: slot_hours.draw_site_hours(stats, width)
    )


def _transfer_speed_chart(history: JobHistory) -> ReportChart | None:
    transfers = transfer_speed.transfer_points_of(history)
    if len(transfers.points) < _MIN_TRANSFERS or transfers.max_duration_s < _MIN_DURATION_S:
        return None
    quantity = "Speed" if transfers.has_rates else "Duration"
    caption = f"{quantity} of each input transfer. The dashed line is the median of complete transfers."
    if any(not point.value for point in transfers.points):
        caption += " Points at the bottom are failed transfers with an unknown byte count."
    counts = Counter((point.site, point.complete) for point in transfers.points)
    caption += _top_sites_note(transfer_speed.MAX_SITES, len({site for site, _ in counts}))
    if max(counts.values()) > transfer_speed.MAX_DOTS:
        caption += f" At most {transfer_speed.MAX_DOTS} transfers of each kind are shown per site."
    return _full_width_chart(
        "transfer-speed",
        f"Transfer {quantity.lower()} by site",
        caption,
        lambda width: transfer_speed.draw_transfer_speed(transfers, width),
    )


def _training_chart(curves: TrainingCurves | None) -> ReportChart | None:
    if curves is None or not curves.jobs:
        return None
    caption = "Metrics reported by each training."
    if len(curves.jobs) > training_panel.MAX_NAMED_JOBS:
        caption = "Metrics reported by the trainings. The best, the median and the worst are labeled."
        caption += _sampling_note(-(-len(curves.jobs) // training_panel.MAX_LINES), len(curves.jobs))
    return _full_width_chart("training", "Training", caption, lambda width: training_panel.draw_training(curves, width))


def _full_width_chart(name: str, title: str, caption: str, draw: Callable[[float], Drawing]) -> ReportChart:
    return ReportChart(name, title, caption, draw(FULL_WIDTH), draw(NARROW_WIDTH))


def _half_width_chart(name: str, title: str, caption: str, draw: Callable[[float], Drawing]) -> ReportChart:
    return ReportChart(name, title, caption, draw(HALF_WIDTH), draw(NARROW_WIDTH), is_half_width=True)


# Notes on omitted data


def _sampling_note(step: int, n_jobs: int) -> str:
    ordinal = {2: "second", 3: "third"}.get(step, f"{step}th")
    return f" Every {ordinal} of {n_jobs:,} jobs is shown." if step > 1 else ""


def _top_sites_note(max_sites: int, count: int) -> str:
    return f" Only the {max_sites} busiest of {count:,} sites are shown." if count > max_sites else ""
