"""Speed and accuracy of simulations.

    python bench/simulate.py --json [--only week,many,million] [--jobs 100000] [--seeds 50]

Prints one JSON line; progress and missed bounds on stderr:

success, useful_fraction, completion_mean_h, completion_median_h
                       the published week, calibrated from its table, scenario `plain`, means over 50 seeds
packtrain_…            what the scenario `packtrain` predicts for it: success (100), useful_fraction (≥ 0.95),
                       p95_over_median (≤ 1.5), max_over_median (≤ 2)
many_s, many_mb        100,000 jobs on 10,000 slots with `packtrain`, seconds and memory (≤ 90, ≤ 1000)
many_plain_s           the same with `plain`
million_s, million_mb  1,000,000 jobs on 10,000 slots with `plain`
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from harness import measure, results
from harness.measure import print_progress
from harness.results import Bounds

BOUNDS: Bounds = {
    "success_error": ("-", 6.0),
    "useful_fraction_error": ("-", 0.08),
    "completion_mean_error": ("-", 0.2),
    "completion_median_error": ("-", 0.2),
    "packtrain_success": ("+", 100.0),
    "packtrain_useful_fraction": ("+", 0.95),
    "packtrain_p95_over_median": ("-", 1.5),
    "packtrain_max_over_median": ("-", 2.0),
    "many_s": ("-", 90.0),
    "many_mb": ("-", 1000.0),
}
WEEK_TABLE = Path(__file__).parents[1] / "tests" / "data" / "study" / "ospool-imagenet-100-jobs.csv"
N_SLOTS, N_MILLION_JOBS = 10_000, 1_000_000
PUBLISHED_METRICS = {"success": 79.0, "useful_fraction": 0.50, "completion_mean": 8.6, "completion_median": 4.9}
_SIMULATE_SCRIPT = """
import resource, sys, time
from packtrain.report.readers.files import read_history
from packtrain.simulate.calibrate import calibrate
from packtrain.simulate.scenarios import SCENARIOS
from packtrain.simulate.simulate_run import simulate_run
from packtrain.simulate.whatif import with_slots
model = with_slots(calibrate(read_history([sys.argv[1]])), int(sys.argv[4]))
started_at = time.perf_counter()
history = simulate_run(model, SCENARIOS[sys.argv[2]], int(sys.argv[3]), 1)
duration_s = time.perf_counter() - started_at
print(duration_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, len(history.jobs))
"""


def run_week(args: argparse.Namespace) -> dict[str, float]:
    """Run `packtrain simulate` on the published week."""
    command = ["-m", "packtrain", "simulate", "--from", str(WEEK_TABLE), "--seeds", str(args.seeds), "--json"]
    started_at = time.perf_counter()
    out = subprocess.run([sys.executable, *command], check=True, stdout=subprocess.PIPE, text=True).stdout
    print_progress(f"week: {args.seeds} seeds of three scenarios in {time.perf_counter() - started_at:.0f} s")
    scenarios = json.loads(out)["scenarios"]
    plain, packtrain = scenarios["plain"], scenarios["packtrain"]
    metrics = {"success": plain["success_percent"]["mean"], "useful_fraction": plain["useful_fraction"]["mean"]}
    metrics |= {f"completion_{name}_h": plain[f"completion_{name}_s"]["mean"] / 3600 for name in ("mean", "median")}
    metrics |= {
        f"{name}_error": abs(metrics[name] - PUBLISHED_METRICS[name]) for name in ("success", "useful_fraction")
    }
    for name in ("completion_mean", "completion_median"):
        metrics[f"{name}_error"] = abs(metrics[f"{name}_h"] / PUBLISHED_METRICS[name] - 1)
    metrics["packtrain_success"] = packtrain["success_percent"]["mean"]
    names = ("useful_fraction", "p95_over_median", "max_over_median")
    return {**metrics, **{f"packtrain_{name}": packtrain[name]["mean"] for name in names}}


def run_many_jobs(args: argparse.Namespace) -> dict[str, float]:
    duration_s, memory_mb = _run_simulation("packtrain", args.jobs)
    return {"many_s": duration_s, "many_mb": memory_mb, "many_plain_s": _run_simulation("plain", args.jobs)[0]}


def run_million_jobs(args: argparse.Namespace) -> dict[str, float]:
    duration_s, memory_mb = _run_simulation("plain", N_MILLION_JOBS)
    return {"million_s": duration_s, "million_mb": memory_mb}


def _run_simulation(scenario: str, n_jobs: int) -> tuple[float, float]:
    """Run a simulation in a process of its own. Return its duration in s and memory in MB."""
    command = [sys.executable, "-c", _SIMULATE_SCRIPT, str(WEEK_TABLE), scenario, str(n_jobs), str(N_SLOTS)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    duration_s, memory_mb, n_simulated = map(float, out.split())
    if n_simulated != n_jobs:
        raise SystemExit(f"simulated {n_simulated:.0f} of {n_jobs} jobs")
    print_progress(f"{scenario}: {n_jobs:,} jobs in {duration_s:.1f} s, {memory_mb:.0f} MB")
    return duration_s, memory_mb


BENCHMARKS: Mapping[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "week": run_week,
    "many": run_many_jobs,
    "million": run_million_jobs,
}


def main() -> None:
    measure.exit_on_sigterm()
    parser = results.make_parser("speed and accuracy of simulations", BENCHMARKS)
    parser.add_argument("--jobs", type=int, default=100_000, help="number of jobs in the part many")
    parser.add_argument("--seeds", type=int, default=50, help="number of seeds in the part week")
    args = parser.parse_args()
    metrics: dict[str, float] = {}
    for part in args.only:
        metrics |= BENCHMARKS[part](args)
    results.report_results("simulate", args, metrics, BOUNDS)


if __name__ == "__main__":
    main()
