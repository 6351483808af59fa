"""Metrics of the arms, as `packtrain report` defines them, compared with each other and with the published ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.analysis.time_accounting import USEFUL
from packtrain.report.build import build_report, write_report
from packtrain.report.history import FailureCategory, JobHistory, JobRecord, Outcome

PUBLISHED_METRICS = {
    "success_percent": 79.0,
    "compute_share": 0.44,
    "useful_fraction": 0.50,
    "p95_over_median": 4.3,
    "max_over_median": 8.2,
}


def arm_metrics(name: str, history: JobHistory) -> dict[str, float]:
    """Return the metrics of an arm; its name is their prefix."""
    stats = compute_stats(history)
    metrics = {
        "success_percent": 100.0 * stats.outcomes.get(Outcome.SUCCEEDED, 0) / max(1, stats.jobs),
        "compute_share": stats.compute_share or 0.0,
        "useful_fraction": stats.useful_share or 0.0,
        "p95_over_median": stats.p95_over_median or 0.0,
        "max_over_median": stats.max_over_median or 0.0,
        "makespan_s": stats.makespan_s or 0.0,
        "slot_s": stats.wallclock_s,
        "completion_median_s": stats.completion_s.median if stats.completion_s else 0.0,
        "completion_mean_s": stats.completion_s.mean if stats.completion_s else 0.0,
        "executions": float(stats.executions),
    }
    wasted = {
        f"wasted_{time_use.value.removeprefix('wasted ').replace(' ', '_')}": seconds / stats.wallclock_s
        for time_use, seconds in stats.time_use_s.items()
        if time_use not in USEFUL and seconds
    }
    return {f"{name}_{key}": value for key, value in (metrics | wasted).items()}


def mark_missing_models(history: JobHistory, has_model: Callable[[str], bool]) -> JobHistory:
    """Return the history with outputs checked: a job that exited with 0 but has no model did not succeed."""
    return replace(history, jobs=tuple(_mark_missing_model(job, has_model(job.id)) for job in history.jobs))


def _mark_missing_model(job: JobRecord, has_model: bool) -> JobRecord:
    if job.outcome is not Outcome.SUCCEEDED or has_model:
        return replace(job, outputs_checked=True)
    changes = {"outcome": Outcome.WRONG_OUTPUT, "category": FailureCategory.WRONG_OUTPUT, "reason": "no model"}
    executions = (*job.executions[:-1], replace(job.executions[-1], **changes))
    return replace(job, executions=executions, outputs_checked=True, **changes)


def compare_arms(metrics: Mapping[str, float]) -> dict[str, float]:
    """Compare `plain` with the published table, and the other arms with `plain`."""
    comparison: dict[str, float] = {}
    for key in ("success_percent", "useful_fraction"):
        if f"plain_{key}" in metrics:
            comparison[f"plain_{key}_error"] = abs(metrics[f"plain_{key}"] - PUBLISHED_METRICS[key])
    for arm in ("converted", "packtrain"):
        if f"{arm}_makespan_s" in metrics and metrics.get("plain_makespan_s"):
            comparison[f"{arm}_makespan_share"] = metrics[f"{arm}_makespan_s"] / metrics["plain_makespan_s"]
    return comparison


def write_arm_report(history: JobHistory, folder: Path) -> Path:
    """Write the report of an arm and return the path of its page."""
    return write_report(build_report(history), folder)
