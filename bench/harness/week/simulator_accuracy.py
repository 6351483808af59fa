"""What the simulator predicts from `plain`'s user log alone, compared with the `packtrain` arm."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.week.arms import MAX_ATTEMPTS, N_CHECKPOINTS, scaled_recovery
from harness.week.fault_schedule import ReplayWeek

N_SEEDS = 50
COMPARED_METRICS = (
    "success_percent",
    "useful_fraction",
    "compute_share",
    "completion_median_s",
    "completion_mean_s",
    "p95_over_median",
    "max_over_median",
    "makespan_s",
    "slot_s",
)


def predict_metrics(user_log: Path, week: ReplayWeek) -> dict[str, float]:
    """Run `packtrain simulate` on the log, with the waits and checkpoints of this replay as the scenario."""
    scenario = user_log.with_name("prediction.yaml")
    scenario.write_text(_scenario_yaml(week))
    command = [
        sys.executable,
        "-m",
        "packtrain",
        "simulate",
        "--from",
        user_log,
        "--scenario",
        scenario,
        "--seeds",
        str(N_SEEDS),
    ]
    out = subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    result = json.loads(out)["scenarios"]["prediction"]
    result["success"] = result["success_percent"]
    return {f"predicted_{name}": result[name]["mean"] for name in COMPARED_METRICS}


def _scenario_yaml(week: ReplayWeek) -> str:
    interval_s = statistics.median(node.compute_s for node in week.nodes) / N_CHECKPOINTS
    limits = f"limits: {{maxAttempts: {MAX_ATTEMPTS}}}"
    return f"checkpointInterval: {interval_s:.0f}s\n{limits}\n{scaled_recovery(week.hour_s)}"


def prediction_errors(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the relative error of each prediction, and the largest one."""
    names = [name for name in COMPARED_METRICS if metrics.get(f"packtrain_{name}") and f"predicted_{name}" in metrics]
    errors = {f"predicted_{n}_error": abs(metrics[f"predicted_{n}"] / metrics[f"packtrain_{n}"] - 1) for n in names}
    return errors | ({"max_prediction_error": max(errors.values())} if errors else {})
