"""The figures of the arms, by the definitions of `packtrain report`, beside each other and beside the table's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from packtrain.report.analysis.statistics import figures_of
from packtrain.report.analysis.time_accounting import USEFUL
from packtrain.report.build import report_on, write_report
from packtrain.report.history import Category, History, Job, Outcome

PUBLISHED = {
    "success": 79.0,
    "compute_share": 0.44,
    "useful_fraction": 0.50,
    "p95_over_median": 4.3,
    "max_over_median": 8.2,
}


def of_arm(name: str, history: History) -> dict[str, float]:
    told = figures_of(history)
    figures = {
        "success": 100.0 * told.outcomes.get(Outcome.SUCCEEDED, 0) / max(1, told.jobs),
        "compute_share": told.compute_share or 0.0,
        "useful_fraction": told.useful_share or 0.0,
        "p95_over_median": told.tail_p95 or 0.0,
        "max_over_median": told.tail_max or 0.0,
        "makespan_s": told.makespan_s or 0.0,
        "slot_s": told.wallclock_s,
        "completion_median_s": told.completion.median if told.completion else 0.0,
        "completion_mean_s": told.completion.mean if told.completion else 0.0,
        "attempts": float(told.attempts),
    }
    wasted = {
        f"wasted_{share.value.replace(' ', '_')}": seconds / told.wallclock_s
        for share, seconds in told.shares.items()
        if share not in USEFUL and seconds
    }
    return {f"{name}_{key}": value for key, value in (figures | wasted).items()}


def judged(history: History, has_model: Callable[[str], bool]) -> History:
    """With eyes on the outputs: a job that ended with 0 and made nothing did not succeed."""
    return replace(history, jobs=tuple(_looked_at(job, has_model(job.id)) for job in history.jobs))


def _looked_at(job: Job, has_model: bool) -> Job:
    if job.outcome is not Outcome.SUCCEEDED or has_model:
        return replace(job, checked=True)
    wrong = {"outcome": Outcome.WRONG_OUTPUT, "category": Category.OUTPUT, "reason": "no model"}
    attempts = (*job.attempts[:-1], replace(job.attempts[-1], **wrong))
    return replace(job, attempts=attempts, checked=True, **wrong)


def beside(figures: Mapping[str, float]) -> dict[str, float]:
    """`plain` beside the published table, `packtrain` beside `plain`."""
    found: dict[str, float] = {}
    for key in ("success", "useful_fraction"):
        if f"plain_{key}" in figures:
            found[f"plain_{key}_off"] = abs(figures[f"plain_{key}"] - PUBLISHED[key])
    for arm in ("adopted", "packtrain"):
        if f"{arm}_makespan_s" in figures and figures.get("plain_makespan_s"):
            found[f"{arm}_makespan_share"] = figures[f"{arm}_makespan_s"] / figures["plain_makespan_s"]
    return found


def write(history: History, folder: Path) -> Path:
    """The report on it; the page's path."""
    return write_report(report_on(history), folder)
