"""What the simulator makes of `plain`'s user log alone, beside what the `packtrain` arm then measured."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.week.arms import ATTEMPTS, SAVES, recovery_of
from harness.week.fault_schedule import Week

SEEDS = 50
COMPARED = (
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


def foreseen(log: Path, week: Week) -> dict[str, float]:
    """As a person asks for it: the waits and checkpoints of this replay as the policy, the log as all that is known."""
    policy = log.with_name("foresight.yaml")
    policy.write_text(_policy(week))
    command = [sys.executable, "-m", "packtrain", "simulate", "--from", log, "--policy", policy, "--seeds", str(SEEDS)]
    out = subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    told = json.loads(out)["policies"]["foresight"]
    return {f"foreseen_{name}": told[name]["mean"] for name in COMPARED}


def _policy(week: Week) -> str:
    between = statistics.median(machine.compute_s for machine in week.machines) / SAVES
    return f"checkpoint: {between:.0f}s\nlimits: {{attempts: {ATTEMPTS}}}\n{recovery_of(week.hour)}"


def off(figures: Mapping[str, float]) -> dict[str, float]:
    """By how much each was missed, as a part of what was measured; and the worst of all."""
    known = [name for name in COMPARED if figures.get(f"packtrain_{name}") and f"foreseen_{name}" in figures]
    missed = {f"foreseen_{n}_off": abs(figures[f"foreseen_{n}"] / figures[f"packtrain_{n}"] - 1) for n in known}
    return missed | ({"foresight_off": max(missed.values())} if missed else {})
