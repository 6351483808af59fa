"""Many runs of one policy, summed up: each figure with its mean, what it varies by, and how well the mean is known."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packtrain.report.analysis.statistics import ReportStats, compute_stats
from packtrain.report.analysis.time_accounting import WASTED, TimeUse
from packtrain.simulate.pool_model import PoolModel
from packtrain.simulate.scenarios import Scenario
from packtrain.simulate.simulate_run import simulate_run

_Z_95 = 1.96  # standard errors on either side of a mean, for 95%


@dataclass(frozen=True)
class Estimate:
    mean: float
    std_dev: float  # from run to run
    ci_low: float  # the mean is at least this, with 95% confidence
    ci_high: float

    @classmethod
    def from_samples(cls, values: Sequence[float]) -> Estimate:
        mean = math.fsum(values) / len(values)
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        error = _Z_95 * deviation / math.sqrt(len(values))
        return cls(mean, deviation, mean - error, mean + error)


@dataclass(frozen=True)
class ScenarioResult:
    scenario: str
    n_runs: int
    metrics: Mapping[str, Estimate]  # by name, see MEASURES; those that no run had are left out
    wasted_slot_s: Mapping[TimeUse, Estimate]  # seconds of slots, by cause


METRICS: Mapping[str, Callable[[ReportStats], float | None]] = {
    "success": lambda figures: 100 * figures.succeeded_jobs / figures.jobs if figures.jobs else None,
    "useful_fraction": lambda figures: figures.useful_share,
    "compute_share": lambda figures: figures.compute_share,
    "completion_median_s": lambda figures: figures.completion_s.median if figures.completion_s else None,
    "completion_mean_s": lambda figures: figures.completion_s.mean if figures.completion_s else None,
    "completion_p95_s": lambda figures: figures.completion_s.p95 if figures.completion_s else None,
    "completion_max_s": lambda figures: figures.completion_s.maximum if figures.completion_s else None,
    "p95_over_median": lambda figures: figures.p95_over_median,
    "max_over_median": lambda figures: figures.max_over_median,
    "makespan_s": lambda figures: figures.makespan_s,
    "slot_s": lambda figures: figures.wallclock_s,
    "attempts": lambda figures: float(figures.executions),
}


def summarize_runs(scenario: Scenario, runs: Iterable[ReportStats]) -> ScenarioResult:
    """Keeps numbers only: of fifty runs of ten thousand jobs nothing else is wanted."""
    seen: dict[str, list[float]] = {name: [] for name in METRICS}
    wasted: dict[TimeUse, list[float]] = {share: [] for share in WASTED}
    seeds = 0
    for figures in runs:
        seeds += 1
        for name, value in _metric_values(figures):
            seen[name].append(value)
        for share in WASTED:
            wasted[share].append(figures.time_use_s.get(share, 0.0))
    estimates = {name: Estimate.from_samples(values) for name, values in seen.items() if values}
    waste = {share: Estimate.from_samples(values) for share, values in wasted.items() if any(values)}
    return ScenarioResult(scenario.name, seeds, estimates, waste)


def _metric_values(figures: ReportStats) -> Iterator[tuple[str, float]]:
    for name, measure in METRICS.items():
        value = measure(figures)
        if value is not None:
            yield name, value


def simulate_runs(model: PoolModel, scenario: Scenario, n_jobs: int, seeds: Iterable[int]) -> Iterator[ReportStats]:
    """One after the other."""
    for seed in seeds:
        yield compute_stats(simulate_run(model, scenario, n_jobs, seed))


def result_to_json(result: ScenarioResult) -> dict[str, Any]:
    """For --json."""
    return {
        "seeds": result.n_runs,
        **{name: _estimate_to_json(estimate) for name, estimate in result.metrics.items()},
        "waste_s": {
            share.value.replace(" ", "_"): _estimate_to_json(estimate)
            for share, estimate in result.wasted_slot_s.items()
        },
    }


def _estimate_to_json(estimate: Estimate) -> dict[str, float]:
    return {
        "mean": round(estimate.mean, 6),
        "deviation": round(estimate.std_dev, 6),
        "low": round(estimate.ci_low, 6),
        "high": round(estimate.ci_high, 6),
    }
