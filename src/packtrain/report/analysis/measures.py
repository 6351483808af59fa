"""Figures that are one number: name, unit, which way is better. Tables and comparisons are made of them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from packtrain.report.analysis.statistics import Figures
from packtrain.report.analysis.time_accounting import LOST_COMPUTE, WASTE, Share
from packtrain.report.number_format import hours_words, percent_words, time_words


class Unit(str, Enum):
    SECONDS = "s"  # of slots, summed up
    DURATION = "duration"  # seconds that somebody waited
    FRACTION = "fraction"
    COUNT = "count"
    RATIO = "ratio"


class Better(str, Enum):
    MORE = "more"
    LESS = "less"
    NEITHER = "neither"  # a matter of size, not of merit


@dataclass(frozen=True)
class Measure:
    key: str
    words: str
    unit: Unit
    better: Better
    of: Callable[[Figures], float | None]


def _share(*shares: Share) -> Callable[[Figures], float | None]:
    return lambda figures: sum(figures.shares.get(share, 0.0) for share in shares)


def _of_completion(name: str) -> Callable[[Figures], float | None]:
    return lambda figures: getattr(figures.completion, name) if figures.completion else None


def _lost_to_failed(figures: Figures) -> float:
    return figures.lost_to_failed_s


MEASURES = (
    Measure("jobs", "jobs", Unit.COUNT, Better.NEITHER, lambda figures: figures.jobs),
    Measure("attempts", "attempts", Unit.COUNT, Better.NEITHER, lambda figures: figures.attempts),
    Measure("success_rate", "success rate", Unit.FRACTION, Better.MORE, lambda figures: figures.success_rate),
    Measure("makespan_s", "makespan", Unit.DURATION, Better.LESS, lambda figures: figures.makespan_s),
    Measure("wallclock_s", "slot hours", Unit.SECONDS, Better.LESS, lambda figures: figures.wallclock_s),
    Measure("gpu_s", "GPU hours", Unit.SECONDS, Better.LESS, lambda figures: figures.gpu_s),
    Measure("compute_share", "compute share", Unit.FRACTION, Better.MORE, lambda figures: figures.compute_share),
    Measure("useful_share", "useful share", Unit.FRACTION, Better.MORE, lambda figures: figures.useful_share),
    Measure(
        "transfer_overhead", "transfer overhead", Unit.FRACTION, Better.LESS, lambda figures: figures.transfer_overhead
    ),
    Measure("useful_compute_s", "useful compute", Unit.SECONDS, Better.NEITHER, _share(Share.COMPUTE)),
    Measure("useful_transfer_s", "useful transfer", Unit.SECONDS, Better.LESS, _share(Share.TRANSFER)),
    Measure("transfer_thrown_away_s", "transfer thrown away", Unit.SECONDS, Better.LESS, _share(Share.THROWN_AWAY)),
    Measure("compute_lost_s", "compute lost", Unit.SECONDS, Better.LESS, _share(*LOST_COMPUTE)),
    Measure("restart_s", "checkpoint and restart", Unit.SECONDS, Better.LESS, _share(Share.RESTART)),
    Measure("overhead_s", "overhead", Unit.SECONDS, Better.LESS, _share(Share.OVERHEAD)),
    Measure("wasted_s", "of no use, altogether", Unit.SECONDS, Better.LESS, _share(*WASTE)),
    Measure("lost_to_failed_s", "lost to failed jobs", Unit.SECONDS, Better.LESS, _lost_to_failed),
    Measure("completion_median_s", "completion, median", Unit.DURATION, Better.LESS, _of_completion("median")),
    Measure("completion_mean_s", "completion, mean", Unit.DURATION, Better.LESS, _of_completion("mean")),
    Measure("completion_p95_s", "completion, p95", Unit.DURATION, Better.LESS, _of_completion("p95")),
    Measure("completion_max_s", "completion, longest", Unit.DURATION, Better.LESS, _of_completion("high")),
    Measure("tail_p95", "long tail, p95 / median", Unit.RATIO, Better.LESS, lambda figures: figures.tail_p95),
    Measure("tail_max", "long tail, longest / median", Unit.RATIO, Better.LESS, lambda figures: figures.tail_max),
    Measure("held_in_transfer", "held in transfer", Unit.COUNT, Better.LESS, lambda figures: figures.held_in_transfer),
    Measure("held_in_compute", "held in compute", Unit.COUNT, Better.LESS, lambda figures: figures.held_in_compute),
    Measure("held_elsewhere", "held elsewhere", Unit.COUNT, Better.LESS, lambda figures: figures.held_elsewhere),
    Measure("retries", "retries", Unit.COUNT, Better.LESS, lambda figures: figures.retries),
    Measure("stalls", "transfers that came to nothing", Unit.COUNT, Better.LESS, lambda figures: figures.stalls),
)  # fmt: skip


def words_of(value: float | None, unit: Unit) -> str:
    if value is None:
        return "–"
    if unit is Unit.COUNT:
        return f"{value:,.0f}"
    if unit is Unit.RATIO:
        return f"{value:.1f}"
    if unit is Unit.FRACTION:
        return percent_words(value)
    return hours_words(value) if unit is Unit.SECONDS else time_words(value)
