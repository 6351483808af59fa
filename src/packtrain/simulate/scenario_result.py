"""Many runs of one policy, summed up: each figure with its mean, what it varies by, and how well the mean is known."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packtrain.report.analysis.statistics import Figures, figures_of
from packtrain.report.analysis.time_accounting import WASTE, Share
from packtrain.simulate.pool_model import World
from packtrain.simulate.scenarios import Policy
from packtrain.simulate.simulate_run import play

_SURE = 1.96  # standard errors on either side of a mean, for 95%


@dataclass(frozen=True)
class Estimate:
    mean: float
    deviation: float  # from run to run
    low: float  # the mean is at least this, with 95% confidence
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        mean = math.fsum(values) / len(values)
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        error = _SURE * deviation / math.sqrt(len(values))
        return cls(mean, deviation, mean - error, mean + error)


@dataclass(frozen=True)
class Result:
    policy: str
    seeds: int
    figures: Mapping[str, Estimate]  # by name, see MEASURES; those that no run had are left out
    waste: Mapping[Share, Estimate]  # seconds of slots, by cause


MEASURES: Mapping[str, Callable[[Figures], float | None]] = {
    "success": lambda figures: 100 * figures.succeeded / figures.jobs if figures.jobs else None,
    "useful_fraction": lambda figures: figures.useful_share,
    "compute_share": lambda figures: figures.compute_share,
    "completion_median_s": lambda figures: figures.completion.median if figures.completion else None,
    "completion_mean_s": lambda figures: figures.completion.mean if figures.completion else None,
    "completion_p95_s": lambda figures: figures.completion.p95 if figures.completion else None,
    "completion_max_s": lambda figures: figures.completion.high if figures.completion else None,
    "p95_over_median": lambda figures: figures.tail_p95,
    "max_over_median": lambda figures: figures.tail_max,
    "makespan_s": lambda figures: figures.makespan_s,
    "slot_s": lambda figures: figures.wallclock_s,
    "attempts": lambda figures: float(figures.attempts),
}


def results_of(policy: Policy, runs: Iterable[Figures]) -> Result:
    """Keeps numbers only: of fifty runs of ten thousand jobs nothing else is wanted."""
    seen: dict[str, list[float]] = {name: [] for name in MEASURES}
    wasted: dict[Share, list[float]] = {share: [] for share in WASTE}
    seeds = 0
    for figures in runs:
        seeds += 1
        for name, value in _measured(figures):
            seen[name].append(value)
        for share in WASTE:
            wasted[share].append(figures.shares.get(share, 0.0))
    estimates = {name: Estimate.of(values) for name, values in seen.items() if values}
    waste = {share: Estimate.of(values) for share, values in wasted.items() if any(values)}
    return Result(policy.name, seeds, estimates, waste)


def _measured(figures: Figures) -> Iterator[tuple[str, float]]:
    for name, measure in MEASURES.items():
        value = measure(figures)
        if value is not None:
            yield name, value


def runs_of(world: World, policy: Policy, jobs: int, seeds: Iterable[int]) -> Iterator[Figures]:
    """One after the other."""
    for seed in seeds:
        yield figures_of(play(world, policy, jobs, seed))


def result_data(result: Result) -> dict[str, Any]:
    """For --json."""
    return {
        "seeds": result.seeds,
        **{name: _data(estimate) for name, estimate in result.figures.items()},
        "waste_s": {share.value.replace(" ", "_"): _data(estimate) for share, estimate in result.waste.items()},
    }


def _data(estimate: Estimate) -> dict[str, float]:
    return {
        "mean": round(estimate.mean, 6),
        "deviation": round(estimate.deviation, 6),
        "low": round(estimate.low, 6),
        "high": round(estimate.high, 6),
    }
