"""The statistics that are a single number: key, label, unit and which direction is better.

The terminal summary and the comparison of two reports are built from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from packtrain.formatting import format_duration, format_percent, format_slot_hours
from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.analysis.time_accounting import LOST_COMPUTE, WASTED, TimeUse


class Unit(str, Enum):
    """The unit of a measure, which determines its format."""

    SLOT_SECONDS = "s"  # summed over slots
    DURATION = "duration"  # seconds of elapsed time
    FRACTION = "fraction"
    COUNT = "count"
    RATIO = "ratio"


class Better(str, Enum):
    """The direction in which a measure improves."""

    HIGHER = "more"
    LOWER = "less"
    NEITHER = "neither"


@dataclass(frozen=True)
class Measure:
    """A statistic that is a single number."""

    key: str  # in report.json
    label: str
    unit: Unit
    better: Better
    compute: Callable[[ReportStats], float | None]


def _sum_time_use(*uses: TimeUse) -> Callable[[ReportStats], float | None]:
    return lambda stats: sum(stats.time_use_s.get(use, 0.0) for use in uses)


def _completion_quantile(attribute: str) -> Callable[[ReportStats], float | None]:
    return lambda stats: getattr(stats.completion_s, attribute) if stats.completion_s else None


def _efficiency(attribute: str) -> Callable[[ReportStats], float | None]:
    return lambda stats: getattr(stats.efficiency, attribute) if stats.efficiency else None


_SLOT_S, _DURATION, _FRACTION, _COUNT, _RATIO = Unit
_HIGHER, _LOWER, _NEITHER = Better

MEASURES = (
    Measure("jobs", "jobs", _COUNT, _NEITHER, lambda stats: stats.jobs),
    Measure("executions", "executions", _COUNT, _NEITHER, lambda stats: stats.executions),
    Measure("success_rate", "success rate", _FRACTION, _HIGHER, lambda stats: stats.success_rate),
    Measure("makespan_s", "makespan", _DURATION, _LOWER, lambda stats: stats.makespan_s),
    Measure("wallclock_s", "slot hours", _SLOT_S, _LOWER, lambda stats: stats.wallclock_s),
    Measure("gpu_s", "GPU hours", _SLOT_S, _LOWER, lambda stats: stats.gpu_s),
    Measure("compute_share", "compute share", _FRACTION, _HIGHER, lambda stats: stats.compute_share),
    Measure("useful_share", "useful share", _FRACTION, _HIGHER, lambda stats: stats.useful_share),
    Measure("transfer_overhead", "transfer overhead", _FRACTION, _LOWER, lambda stats: stats.transfer_overhead),
    Measure("useful_compute_s", "useful compute", _SLOT_S, _NEITHER, _sum_time_use(TimeUse.USEFUL_COMPUTE)),
    Measure("useful_transfer_s", "useful transfer", _SLOT_S, _LOWER, _sum_time_use(TimeUse.USEFUL_TRANSFER)),
    Measure("wasted_transfer_s", "wasted transfer", _SLOT_S, _LOWER, _sum_time_use(TimeUse.WASTED_TRANSFER)),
    Measure("compute_lost_s", "lost compute", _SLOT_S, _LOWER, _sum_time_use(*LOST_COMPUTE)),
    Measure("restart_s", "checkpoint and restart", _SLOT_S, _LOWER, _sum_time_use(TimeUse.CHECKPOINT_RESTART)),
    Measure("overhead_s", "overhead", _SLOT_S, _LOWER, _sum_time_use(TimeUse.OVERHEAD)),
    Measure("wasted_s", "wasted time, total", _SLOT_S, _LOWER, _sum_time_use(*WASTED)),
    Measure("failed_jobs_s", "time of failed jobs", _SLOT_S, _LOWER, lambda stats: stats.failed_jobs_s),
    Measure("completion_median_s", "completion, median", _DURATION, _LOWER, _completion_quantile("median")),
    Measure("completion_mean_s", "completion, mean", _DURATION, _LOWER, _completion_quantile("mean")),
    Measure("completion_p95_s", "completion, p95", _DURATION, _LOWER, _completion_quantile("p95")),
    Measure("completion_max_s", "completion, max", _DURATION, _LOWER, _completion_quantile("maximum")),
    Measure("p95_over_median", "long tail, p95 / median", _RATIO, _LOWER, lambda stats: stats.p95_over_median),
    Measure("max_over_median", "long tail, max / median", _RATIO, _LOWER, lambda stats: stats.max_over_median),
    Measure("held_in_transfer", "held in transfer", _COUNT, _LOWER, lambda stats: stats.held_in_transfer),
    Measure("held_in_compute", "held in compute", _COUNT, _LOWER, lambda stats: stats.held_in_compute),
    Measure("held_elsewhere", "held elsewhere", _COUNT, _LOWER, lambda stats: stats.held_elsewhere),
    Measure("cpu_efficiency", "CPU efficiency", _FRACTION, _HIGHER, _efficiency("cpu")),
    Measure("memory_efficiency", "memory efficiency", _FRACTION, _HIGHER, _efficiency("memory")),
    Measure("retries", "retries", _COUNT, _LOWER, lambda stats: stats.retries),
    Measure("failed_transfers", "failed transfers", _COUNT, _LOWER, lambda stats: stats.failed_transfers),
)  # fmt: skip


def format_value(value: float | None, unit: Unit) -> str:
    """Format a value for a table; – if it is unknown."""
    if value is None:
        return "–"
    if unit is Unit.COUNT:
        return f"{value:,.0f}"
    if unit is Unit.RATIO:
        return f"{value:.1f}"
    if unit is Unit.FRACTION:
        return format_percent(value)
    return format_slot_hours(value) if unit is Unit.SLOT_SECONDS else format_duration(value)
