"""Figures that are one number: name, unit, which way is better. Tables and comparisons are made of them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.analysis.time_accounting import LOST_COMPUTE, WASTED, TimeUse
from packtrain.report.number_format import format_duration_coarse, format_hours, format_percent


class Unit(str, Enum):
    SLOT_SECONDS = "s"  # of slots, summed up
    DURATION = "duration"  # seconds that somebody waited
    FRACTION = "fraction"
    COUNT = "count"
    RATIO = "ratio"


class Better(str, Enum):
    HIGHER = "more"
    LOWER = "less"
    NEITHER = "neither"  # a matter of size, not of merit


@dataclass(frozen=True)
class Measure:
    key: str
    label: str
    unit: Unit
    better: Better
    compute: Callable[[ReportStats], float | None]


def _sum_time_use(*uses: TimeUse) -> Callable[[ReportStats], float | None]:
    return lambda figures: sum(figures.time_use_s.get(share, 0.0) for share in uses)


def _completion_quantile(attribute: str) -> Callable[[ReportStats], float | None]:
    return lambda figures: getattr(figures.completion_s, attribute) if figures.completion_s else None


def _failed_jobs_s(stats: ReportStats) -> float:
    return stats.failed_jobs_s


MEASURES = (
    Measure("jobs", "jobs", Unit.COUNT, Better.NEITHER, lambda figures: figures.jobs),
    Measure("attempts", "attempts", Unit.COUNT, Better.NEITHER, lambda figures: figures.executions),
    Measure("success_rate", "success rate", Unit.FRACTION, Better.HIGHER, lambda figures: figures.success_rate),
    Measure("makespan_s", "makespan", Unit.DURATION, Better.LOWER, lambda figures: figures.makespan_s),
    Measure("wallclock_s", "slot hours", Unit.SLOT_SECONDS, Better.LOWER, lambda figures: figures.wallclock_s),
    Measure("gpu_s", "GPU hours", Unit.SLOT_SECONDS, Better.LOWER, lambda figures: figures.gpu_s),
    Measure("compute_share", "compute share", Unit.FRACTION, Better.HIGHER, lambda figures: figures.compute_share),
    Measure("useful_share", "useful share", Unit.FRACTION, Better.HIGHER, lambda figures: figures.useful_share),
    Measure(
        "transfer_overhead", "transfer overhead", Unit.FRACTION, Better.LOWER, lambda figures: figures.transfer_overhead
    ),
    Measure("useful_compute_s", "useful compute", Unit.SLOT_SECONDS, Better.NEITHER, _sum_time_use(TimeUse.USEFUL_COMPUTE)),
    Measure("useful_transfer_s", "useful transfer", Unit.SLOT_SECONDS, Better.LOWER, _sum_time_use(TimeUse.USEFUL_TRANSFER)),
    Measure("transfer_thrown_away_s", "transfer thrown away", Unit.SLOT_SECONDS, Better.LOWER, _sum_time_use(TimeUse.WASTED_TRANSFER)),
    Measure("compute_lost_s", "compute lost", Unit.SLOT_SECONDS, Better.LOWER, _sum_time_use(*LOST_COMPUTE)),
    Measure("restart_s", "checkpoint and restart", Unit.SLOT_SECONDS, Better.LOWER, _sum_time_use(TimeUse.CHECKPOINT_RESTART)),
    Measure("overhead_s", "overhead", Unit.SLOT_SECONDS, Better.LOWER, _sum_time_use(TimeUse.OVERHEAD)),
    Measure("wasted_s", "of no use, altogether", Unit.SLOT_SECONDS, Better.LOWER, _sum_time_use(*WASTED)),
    Measure("lost_to_failed_s", "lost to failed jobs", Unit.SLOT_SECONDS, Better.LOWER, _failed_jobs_s),
    Measure("completion_median_s", "completion, median", Unit.DURATION, Better.LOWER, _completion_quantile("median")),
    Measure("completion_mean_s", "completion, mean", Unit.DURATION, Better.LOWER, _completion_quantile("mean")),
    Measure("completion_p95_s", "completion, p95", Unit.DURATION, Better.LOWER, _completion_quantile("p95")),
    Measure("completion_max_s", "completion, longest", Unit.DURATION, Better.LOWER, _completion_quantile("high")),
    Measure("tail_p95", "long tail, p95 / median", Unit.RATIO, Better.LOWER, lambda figures: figures.p95_over_median),
    Measure("tail_max", "long tail, longest / median", Unit.RATIO, Better.LOWER, lambda figures: figures.max_over_median),
    Measure("held_in_transfer", "held in transfer", Unit.COUNT, Better.LOWER, lambda figures: figures.held_in_transfer),
    Measure("held_in_compute", "held in compute", Unit.COUNT, Better.LOWER, lambda figures: figures.held_in_compute),
    Measure("held_elsewhere", "held elsewhere", Unit.COUNT, Better.LOWER, lambda figures: figures.held_elsewhere),
    Measure("retries", "retries", Unit.COUNT, Better.LOWER, lambda figures: figures.retries),
    Measure("stalls", "transfers that came to nothing", Unit.COUNT, Better.LOWER, lambda figures: figures.failed_transfers),
)  # fmt: skip


def format_value(value: float | None, unit: Unit) -> str:
    if value is None:
        return "–"
    if unit is Unit.COUNT:
        return f"{value:,.0f}"
    if unit is Unit.RATIO:
        return f"{value:.1f}"
    if unit is Unit.FRACTION:
        return format_percent(value)
    return format_hours(value) if unit is Unit.SLOT_SECONDS else format_duration_coarse(value)
