"""What the simulator makes of `plain`'s user log alone, beside what the `packtrain` arm then measured."""

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
    "success",
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
    """As a person asks for it: the waits and checkpoints of this replay as the policy, the log as all that is known."""
    policy = user_log.with_name("foresight.yaml")
    policy.write_text(_scenario_yaml(week))
    command = [
        sys.executable,
        "-m",
        "packtrain",
        "simulate",
        "--from",
        user_log,
        "--policy",
        policy,
        "--seeds",
        str(N_SEEDS),
    ]
    out = subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    told = json.loads(out)["policies"]["foresight"]
    return {f"foreseen_{name}": told[name]["mean"] for name in COMPARED_METRICS}


def _scenario_yaml(week: ReplayWeek) -> str:
    between = statistics.median(machine.compute_s for machine in week.nodes) / N_CHECKPOINTS
    return f"checkpoint: {between:.0f}s\nlimits: {{maxAttempts: {MAX_ATTEMPTS}}}\n{scaled_recovery(week.hour_s)}"


def prediction_errors(metrics: Mapping[str, float]) -> dict[str, float]:
    """By how much each was missed, as a part of what was measured; and the worst of all."""
    known = [name for name in COMPARED_METRICS if metrics.get(f"packtrain_{name}") and f"foreseen_{name}" in metrics]
    missed = {f"foreseen_{n}_off": abs(metrics[f"foreseen_{n}"] / metrics[f"packtrain_{n}"] - 1) for n in known}
    return missed | ({"foresight_off": max(missed.values())} if missed else {})
