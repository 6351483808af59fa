"""How fast simulations are: `python bench/simulate.py --json [--only week,many,million] [--jobs 100000] [--seeds 50]`.

Prints one JSON line; progress and what falls short on stderr:

success, useful_fraction, completion_mean_h, completion_median_h
                       the published week, calibrated from its table, policy `plain`, means over 50 seeds
packtrain_…            what the policy `packtrain` would have made of it: success (100), useful_fraction (≥ 0.95),
                       p95_over_median (≤ 1.5), max_over_median (≤ 2)
many_s, many_mb        100,000 jobs on 10,000 slots under `packtrain`, seconds and memory (≤ 60, ≤ 1000)
many_plain_s           the same under `plain`
million_s, million_mb  1,000,000 jobs on 10,000 slots under `plain`
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
    "success_off": ("-", 6.0),
    "useful_fraction_off": ("-", 0.08),
    "completion_mean_off": ("-", 0.2),
    "completion_median_off": ("-", 0.2),
    "packtrain_success": ("+", 100.0),
    "packtrain_useful_fraction": ("+", 0.95),
    "packtrain_p95_over_median": ("-", 1.5),
    "packtrain_max_over_median": ("-", 2.0),
    "many_s": ("-", 60.0),
    "many_mb": ("-", 1000.0),
}
WEEK_TABLE = Path(__file__).parents[1] / "tests" / "data" / "study" / "ospool-imagenet-100-jobs.csv"
N_SLOTS, N_MILLION_JOBS = 10_000, 1_000_000
PUBLISHED_METRICS = {"success": 79.0, "useful_fraction": 0.50, "completion_mean": 8.6, "completion_median": 4.9}
_SIMULATE_SCRIPT = """
import resource, sys, time
from packtrain.report.readers.files import read
from packtrain.simulate.calibrate import calibrate
from packtrain.simulate.simulate_run import play
from packtrain.simulate.scenarios import POLICIES
from packtrain.simulate.whatif import with_slots
world = with_slots(calibrate(read([sys.argv[1]])), int(sys.argv[4]))
began = time.perf_counter()
history = play(world, POLICIES[sys.argv[2]], int(sys.argv[3]), 1)
took = time.perf_counter() - began
print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, len(history.jobs))
"""


def run_week(args: argparse.Namespace) -> dict[str, float]:
    """As a person runs it."""
    command = ["-m", "packtrain", "simulate", "--from", str(WEEK_TABLE), "--seeds", str(args.seeds), "--json"]
    began = time.perf_counter()
    out = subprocess.run([sys.executable, *command], check=True, stdout=subprocess.PIPE, text=True).stdout
    print_progress(f"week: {args.seeds} seeds of three policies in {time.perf_counter() - began:.0f} s")
    policies = json.loads(out)["policies"]
    plain, ours = policies["plain"], policies["packtrain"]
    figures = {name: plain[name]["mean"] for name in ("success", "useful_fraction")}
    figures |= {f"completion_{name}_h": plain[f"completion_{name}_s"]["mean"] / 3600 for name in ("mean", "median")}
    figures |= {f"{name}_off": abs(figures[name] - PUBLISHED_METRICS[name]) for name in ("success", "useful_fraction")}
    for name in ("completion_mean", "completion_median"):
        figures[f"{name}_off"] = abs(figures[f"{name}_h"] / PUBLISHED_METRICS[name] - 1)
    shown = ("success", "useful_fraction", "p95_over_median", "max_over_median")
    return {**figures, **{f"packtrain_{name}": ours[name]["mean"] for name in shown}}


def run_many_jobs(args: argparse.Namespace) -> dict[str, float]:
    took, memory = _run_simulation("packtrain", args.jobs)
    return {"many_s": took, "many_mb": memory, "many_plain_s": _run_simulation("plain", args.jobs)[0]}


def run_million_jobs(args: argparse.Namespace) -> dict[str, float]:
    took, memory = _run_simulation("plain", N_MILLION_JOBS)
    return {"million_s": took, "million_mb": memory}


def _run_simulation(scenario: str, n_jobs: int) -> tuple[float, float]:
    """Seconds, and memory in MB, of a process of its own."""
    command = [sys.executable, "-c", _SIMULATE_SCRIPT, str(WEEK_TABLE), scenario, str(n_jobs), str(N_SLOTS)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    took, memory, played = map(float, out.split())
    if played != n_jobs:
        raise SystemExit(f"{played:.0f} jobs came back of {n_jobs}")
    print_progress(f"{scenario}: {n_jobs:,} jobs in {took:.1f} s, {memory:.0f} MB")
    return took, memory


BENCHMARKS: Mapping[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "week": run_week,
    "many": run_many_jobs,
    "million": run_million_jobs,
}


def main() -> None:
    measure.exit_on_sigterm()
    parser = results.make_parser("how fast simulations are, and how true", BENCHMARKS)
    parser.add_argument("--jobs", type=int, default=100_000, help="of the part many")
    parser.add_argument("--seeds", type=int, default=50, help="of the part week")
    given = parser.parse_args()
    figures: dict[str, float] = {}
    for part in given.only:
        figures |= BENCHMARKS[part](given)
    results.report_results("simulate", given, figures, BOUNDS)


if __name__ == "__main__":
    main()
