"""The figures of the arms, by the definitions of `packtrain report`, beside each other and beside the table's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.analysis.time_accounting import USEFUL
from packtrain.report.build import build_report, write_report
from packtrain.report.history import FailureCategory, JobHistory, JobRecord, Outcome

PUBLISHED_METRICS = {
    "success": 79.0,
    "compute_share": 0.44,
    "useful_fraction": 0.50,
    "p95_over_median": 4.3,
    "max_over_median": 8.2,
}


def arm_metrics(name: str, history: JobHistory) -> dict[str, float]:
    told = compute_stats(history)
    figures = {
        "success": 100.0 * told.outcomes.get(Outcome.SUCCEEDED, 0) / max(1, told.jobs),
        "compute_share": told.compute_share or 0.0,
        "useful_fraction": told.useful_share or 0.0,
        "p95_over_median": told.p95_over_median or 0.0,
        "max_over_median": told.max_over_median or 0.0,
        "makespan_s": told.makespan_s or 0.0,
        "slot_s": told.wallclock_s,
        "completion_median_s": told.completion_s.median if told.completion_s else 0.0,
        "completion_mean_s": told.completion_s.mean if told.completion_s else 0.0,
        "attempts": float(told.executions),
    }
    wasted = {
        f"wasted_{share.value.replace(' ', '_')}": seconds / told.wallclock_s
        for share, seconds in told.time_use_s.items()
        if share not in USEFUL and seconds
    }
    return {f"{name}_{key}": value for key, value in (figures | wasted).items()}


def mark_missing_models(history: JobHistory, has_model: Callable[[str], bool]) -> JobHistory:
    """With eyes on the outputs: a job that ended with 0 and made nothing did not succeed."""
    return replace(history, jobs=tuple(_mark_missing_model(job, has_model(job.id)) for job in history.jobs))


def _mark_missing_model(job: JobRecord, has_model: bool) -> JobRecord:
    if job.outcome is not Outcome.SUCCEEDED or has_model:
        return replace(job, outputs_checked=True)
    wrong = {"outcome": Outcome.WRONG_OUTPUT, "category": FailureCategory.WRONG_OUTPUT, "reason": "no model"}
    attempts = (*job.executions[:-1], replace(job.executions[-1], **wrong))
    return replace(job, executions=attempts, outputs_checked=True, **wrong)


def compare_arms(metrics: Mapping[str, float]) -> dict[str, float]:
    """`plain` beside the published table, `packtrain` beside `plain`."""
    found: dict[str, float] = {}
    for key in ("success", "useful_fraction"):
        if f"plain_{key}" in metrics:
            found[f"plain_{key}_off"] = abs(metrics[f"plain_{key}"] - PUBLISHED_METRICS[key])
    for arm in ("adopted", "packtrain"):
        if f"{arm}_makespan_s" in metrics and metrics.get("plain_makespan_s"):
            found[f"{arm}_makespan_share"] = metrics[f"{arm}_makespan_s"] / metrics["plain_makespan_s"]
    return found


def write_arm_report(history: JobHistory, folder: Path) -> Path:
    """The report on it; the page's path."""
    return write_report(build_report(history), folder)
