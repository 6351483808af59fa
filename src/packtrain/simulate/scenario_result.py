"""Summarize many runs of a scenario: each metric with its mean, standard deviation and confidence interval."""

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

_Z_95 = 1.96  # standard errors of a 95% confidence interval


@dataclass(frozen=True)
class Estimate:
    """A mean over runs with its 95% confidence interval."""

    mean: float
    std_dev: float  # between runs
    ci_low: float
    ci_high: float

    @classmethod
    def from_samples(cls, values: Sequence[float]) -> Estimate:
        mean = math.fsum(values) / len(values)
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        error = _Z_95 * deviation / math.sqrt(len(values))
        return cls(mean, deviation, mean - error, mean + error)


@dataclass(frozen=True)
class ScenarioResult:
    """The metrics of a scenario over all its runs."""

    scenario: str
    n_runs: int
    metrics: Mapping[str, Estimate]  # by key of METRICS, without those that no run has
    wasted_slot_s: Mapping[TimeUse, Estimate]  # wasted slot time by cause


METRICS: Mapping[str, Callable[[ReportStats], float | None]] = {
    "success_percent": lambda stats: 100 * stats.succeeded_jobs / stats.jobs if stats.jobs else None,
    "useful_fraction": lambda stats: stats.useful_share,
    "compute_share": lambda stats: stats.compute_share,
    "completion_median_s": lambda stats: stats.completion_s.median if stats.completion_s else None,
    "completion_mean_s": lambda stats: stats.completion_s.mean if stats.completion_s else None,
    "completion_p95_s": lambda stats: stats.completion_s.p95 if stats.completion_s else None,
    "completion_max_s": lambda stats: stats.completion_s.maximum if stats.completion_s else None,
    "p95_over_median": lambda stats: stats.p95_over_median,
    "max_over_median": lambda stats: stats.max_over_median,
    "makespan_s": lambda stats: stats.makespan_s,
    "slot_s": lambda stats: stats.wallclock_s,
    "executions": lambda stats: float(stats.executions),
}


def summarize_runs(scenario: Scenario, runs: Iterable[ReportStats]) -> ScenarioResult:
    """Summarize the statistics of all runs, keeping only numbers to save memory."""
    samples: dict[str, list[float]] = {name: [] for name in METRICS}
    wasted: dict[TimeUse, list[float]] = {use: [] for use in WASTED}
    n_runs = 0
    for stats in runs:
        n_runs += 1
        for name, value in _metric_values(stats):
            samples[name].append(value)
        for use in WASTED:
            wasted[use].append(stats.time_use_s.get(use, 0.0))
    metrics = {name: Estimate.from_samples(values) for name, values in samples.items() if values}
    wasted_slot_s = {use: Estimate.from_samples(values) for use, values in wasted.items() if any(values)}
    return ScenarioResult(scenario.name, n_runs, metrics, wasted_slot_s)


def _metric_values(stats: ReportStats) -> Iterator[tuple[str, float]]:
    for name, metric in METRICS.items():
        value = metric(stats)
        if value is not None:
            yield name, value


def simulate_runs(model: PoolModel, scenario: Scenario, n_jobs: int, seeds: Iterable[int]) -> Iterator[ReportStats]:
    """Yield the statistics of one simulated run per seed."""
    for seed in seeds:
        yield compute_stats(simulate_run(model, scenario, n_jobs, seed))


def result_to_json(result: ScenarioResult) -> dict[str, Any]:
    """Return the result for `--json`."""
    return {
        "n_runs": result.n_runs,
        **{name: _estimate_to_json(estimate) for name, estimate in result.metrics.items()},
        "wasted_slot_s": {
            use.value.replace(" ", "_"): _estimate_to_json(estimate) for use, estimate in result.wasted_slot_s.items()
        },
    }


def _estimate_to_json(estimate: Estimate) -> dict[str, float]:
    return {
        "mean": round(estimate.mean, 6),
        "std_dev": round(estimate.std_dev, 6),
        "ci_low": round(estimate.ci_low, 6),
        "ci_high": round(estimate.ci_high, 6),
    }
