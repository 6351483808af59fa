"""The tables of docs/study.md: the published load_week_report of 100 jobs, recomputed by packtrain's own report."""

from __future__ import annotations

import io
import statistics
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from packtrain.cli.ui.report_summary import print_report_summary
from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.build import Report, build_report
from packtrain.report.history import FailureCategory, JobHistory, JobRecord, Outcome, Phase
from packtrain.report.readers.files import read_history

STUDY = Path(__file__).parents[1] / "tests" / "data" / "study"
WEEK, TRIALS = STUDY / "ospool-imagenet-100-jobs.csv", STUDY / "ospool-imagenet-load_trials_report.csv"
WIDTH = 100
_NOT_REPRODUCIBLE = "does not follow from the table"


@dataclass(frozen=True)
class ComparisonRow:
    figure: str
    published: str
    found: str
    remark: str = ""

    @property
    def same(self) -> bool:
        return self.found == self.published

    def __str__(self) -> str:
        remark = self.remark or ("the same" if self.same else "")
        return f"| {self.figure} | {self.published} | {self.found} | {remark} |"


def load_week_report() -> Report:
    return build_report(read_history([str(WEEK)]))


def load_trials_report() -> Report:
    return build_report(read_history([str(TRIALS)]))


def format_long_duration(seconds: float) -> str:
    """As the study writes it: 13 d 6 h 33 m 53 s"""
    whole = round(seconds)
    parts = ((whole // 86400, "d"), (whole % 86400 // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s"))
    told = [f"{count} {unit}" for count, unit in parts]
    first = next((place for place, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(told[first:])


# What the study counts


def jobs_with_outcome(history: JobHistory, *outcomes: Outcome) -> list[JobRecord]:
    return [job for job in history.jobs if job.outcome in outcomes]


def sum_last_transfers_s(jobs: list[JobRecord]) -> float:
    return sum(job.executions[-1].seconds_in(Phase.TRANSFER_IN) for job in jobs)


def sum_before_last_transfer_s(jobs: list[JobRecord]) -> float:
    """From the first match to the last transfer: what the study calls total − last."""
    return sum(job.executions[-1].start - job.executions[0].start for job in jobs)


def completion_times_s(jobs: list[JobRecord]) -> list[float]:
    """From the first match to the end of computing, of each: transfer_total + execute."""
    ends = ([span.end for span in job.executions[-1].spans if span.phase is Phase.EXECUTE][-1] for job in jobs)
    return [end - job.executions[0].start for job, end in zip(jobs, ends, strict=True)]


def comparison_rows(report: Report) -> list[ComparisonRow]:
    return [*_time_rows(report.history, report.stats), *_completion_rows(report), *_outcome_rows(report.stats)]


def _time_rows(history: JobHistory, figures: ReportStats) -> list[ComparisonRow]:
    good, wrong = jobs_with_outcome(history, Outcome.SUCCEEDED), jobs_with_outcome(history, Outcome.WRONG_OUTPUT)
    held = jobs_with_outcome(history, Outcome.TIME_LIMIT, Outcome.HELD)
    return [
        ComparisonRow("successful jobs", "79", f"{figures.succeeded_jobs}"),
        ComparisonRow("compute of successful jobs", "13 d 6 h 33 m 53 s", format_long_duration(figures.time_use_s[TimeUse.USEFUL_COMPUTE]),
            "published without job 794570.010 (49304 s), whose cell holds two numbers"),
        ComparisonRow("last transfers of successful jobs", "1 d 21 h 50 m 43 s", format_long_duration(figures.time_use_s[TimeUse.USEFUL_TRANSFER]),
            f"14 s less: {_NOT_REPRODUCIBLE}"),
        ComparisonRow("thrown away by successful jobs (total − last)", "12 d 14 h 12 m 50 s", format_long_duration(sum_before_last_transfer_s(good)),
            "34 s more; of the four evicted jobs it contains lost compute and queueing"),
        ComparisonRow("compute lost to the time limit", "16 h 1 m 29 s", format_long_duration(figures.time_use_s[TimeUse.LOST_TO_TIME_LIMIT]),
            "72024 s + 72065 s: the published sum drops a day"),
        ComparisonRow("transfers of held jobs (last)", "47 m 35 s", format_long_duration(sum_last_transfers_s(held)), _NOT_REPRODUCIBLE),
        ComparisonRow("compute of wrong outputs", "33 m 8 s", format_long_duration(figures.time_use_s[TimeUse.LOST_TO_WRONG_OUTPUT])),
        ComparisonRow("transfers of wrong outputs (last)", "2 h 11 m 8 s", format_long_duration(sum_last_transfers_s(wrong)),
            f"a minute less: {_NOT_REPRODUCIBLE}"),
    ]  # fmt: skip


def _completion_rows(report: Report) -> list[ComparisonRow]:
    figures, good = report.stats, jobs_with_outcome(report.history, Outcome.SUCCEEDED)
    completion = figures.completion_s
    assert completion is not None
    seconds = completion_times_s(good)
    between = sum(20_000 <= one <= 60_000 for one in seconds)
    return [
        ComparisonRow("execute at CHTC, mean / median", "11222 / 11237 (24 jobs)", format_site_compute(figures, "CHTC-Spark-CE1")),
        ComparisonRow("execute at PDX, mean / median", "14824 / 14846 (42 jobs)", format_site_compute(figures, "PDX-Coeus-CE1")),
        ComparisonRow("execute at GP-ARGO, mean / median", "23400 / 17608 (13 jobs)", format_site_compute(figures, "GP-ARGO-ksu-backfill")),
        ComparisonRow("first match to completion, mean", "8 h 36 m 46 s", format_long_duration(completion.mean),
            f"until the slot was free; {format_long_duration(statistics.mean(seconds))} until the program ended"),
        ComparisonRow("first match to completion, median", "4 h 57 m 25 s", format_long_duration(completion.median),
            f"until the slot was free; {format_long_duration(statistics.median(seconds))} until the program ended"),
        ComparisonRow("jobs between 20,000 and 60,000 s", "“most”", f"{between} of {len(seconds)}", _NOT_REPRODUCIBLE),
    ]  # fmt: skip


def format_site_compute(figures: ReportStats, name: str) -> str:
    compute = next(one.compute_time_s for one in figures.sites if one.site == name)
    assert compute is not None
    return f"{compute.mean:.0f} / {compute.median:.0f} ({compute.count} jobs)"


def _outcome_rows(figures: ReportStats) -> list[ComparisonRow]:
    kinds = {one.category: one for one in figures.job_failures}
    told = ", ".join(
        f"{kinds[category].count} {words} ({kinds[category].fraction:.1%})"
        for category, words in (
            (FailureCategory.TRANSFER, "transfer"),
            (FailureCategory.WRONG_OUTPUT, "wrong output"),
            (FailureCategory.TIME_LIMIT, "time limit"),
        )
    )
    held = f"compute {figures.held_in_compute}, file transfer {figures.held_in_transfer}"
    return [
        ComparisonRow("failures", "16 transfer (76.2%), 3 wrong output (14.3%), 2 time limit (9.5%)", told),
        ComparisonRow("held during", "compute 2, file transfer 16", held),
        ComparisonRow("wallclock", "about 685 h", f"{figures.wallclock_s / 3600:.0f} h", _WALLCLOCK_REMARK),
        ComparisonRow("useful compute, of the wallclock", "47%", _format_percent(figures.compute_share)),
        ComparisonRow("useful transfer, of the wallclock", "7%", _format_percent(figures.fraction_of_wallclock(TimeUse.USEFUL_TRANSFER))),
        ComparisonRow("useful transfer, of useful compute (overhead)", "14%", _format_percent(figures.transfer_overhead)),
        ComparisonRow("thrown away, of the wallclock", "44%", _format_percent(figures.fraction_of_wallclock(TimeUse.WASTED_TRANSFER)),
            "of all jobs; lost compute of evicted ones apart"),
    ]  # fmt: skip


_WALLCLOCK_REMARK = "with the day and the job that the sums leave out, and the stalls of jobs that failed"


def _format_percent(value: float | None) -> str:
    assert value is not None
    return f"{value:.0%}"


# What the page shows


def render_comparison_table() -> str:
    head = ["| figure | published | from the render_comparison_table | |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *map(str, comparison_rows(load_week_report()))])


def render_shares_table() -> str:
    figures = load_week_report().stats
    head = ["| seconds of slots | hours | part |", "| --- | --- | --- |"]
    body = [
        f"| {share.value} | {seconds / 3600:.1f} | {seconds / figures.wallclock_s:.1%} |"
        for share, seconds in figures.time_use_s.items()
    ]
    return "\n".join([*head, *body, f"| **altogether** | **{figures.wallclock_s / 3600:.1f}** | **100%** |"])


def render_insights(report: Report) -> str:
    return "\n".join(f"* {finding.text}" for finding in report.insights)


def render_trials_table() -> str:
    """By job, as the render_comparison_table of the load_trials_report has it, judged."""
    head = [
        "| job | epochs | format_site_compute | outcome | compute | last transfer | thrown away | stalls |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    report = load_trials_report()
    body = [
        f"| {row.job} | {job.point['epochs']} | {', '.join(row.sites) or '?'} | {row.outcome.value} "
        f"| {format_long_duration(row.time_use_s.get(TimeUse.USEFUL_COMPUTE, 0))} | {format_long_duration(row.time_use_s.get(TimeUse.USEFUL_TRANSFER, 0))} "
        f"| {format_long_duration(row.time_use_s.get(TimeUse.WASTED_TRANSFER, 0))} | {row.failed_transfers} |"
        for job, row in zip(report.history.jobs, report.stats.job_summaries, strict=True)
    ]
    return "\n".join([*head, *body])


def render_terminal_output(report: Report) -> str:
    out = Console(file=io.StringIO(), width=WIDTH, highlight=False, color_system=None, legacy_windows=False)
    print_report_summary(out, report.stats, report.insights)
    assert isinstance(out.file, io.StringIO)
    return "\n".join(line.rstrip() for line in out.file.getvalue().rstrip().splitlines())
