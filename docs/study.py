"""Renders the tables of docs/study.md: the published week of 100 jobs, recomputed by packtrain's own report."""

from __future__ import annotations

import io
import statistics
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from packtrain.cli.ui.report_summary import print_report_summary
from packtrain.report.analysis.statistics import JobSummary, ReportStats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.build import Report, build_report
from packtrain.report.history import FailureCategory, JobHistory, JobRecord, Outcome, Phase
from packtrain.report.readers.files import read_history

STUDY = Path(__file__).parents[1] / "tests" / "data" / "study"
WEEK, TRIALS = STUDY / "ospool-imagenet-100-jobs.csv", STUDY / "ospool-imagenet-trials.csv"
WIDTH = 100
_NOT_REPRODUCIBLE = "does not follow from the table"


@dataclass(frozen=True)
class ComparisonRow:
    """A published number and the same number recomputed from the table."""

    figure: str
    published: str
    computed: str
    remark: str = ""

    @property
    def same(self) -> bool:
        return self.computed == self.published

    def __str__(self) -> str:
        remark = self.remark or ("the same" if self.same else "")
        return f"| {self.figure} | {self.published} | {self.computed} | {remark} |"


def load_week_report() -> Report:
    return build_report(read_history([str(WEEK)]))


def load_trials_report() -> Report:
    return build_report(read_history([str(TRIALS)]))


def format_duration(seconds: float) -> str:
    """Format a duration like the study: 13 d 6 h 33 m 53 s."""
    total = round(seconds)
    parts = ((total // 86400, "d"), (total % 86400 // 3600, "h"), (total % 3600 // 60, "m"), (total % 60, "s"))
    first = next((index for index, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count} {unit}" for count, unit in parts[first:])


# Sums of the study


def jobs_with_outcome(history: JobHistory, *outcomes: Outcome) -> list[JobRecord]:
    return [job for job in history.jobs if job.outcome in outcomes]


def sum_last_transfers_s(jobs: list[JobRecord]) -> float:
    return sum(job.executions[-1].seconds_in(Phase.TRANSFER_IN) for job in jobs)


def sum_before_last_transfer_s(jobs: list[JobRecord]) -> float:
    """Sum the time from the first match to the last transfer, which the study calls total − last."""
    return sum(job.executions[-1].start - job.executions[0].start for job in jobs)


def completion_times_s(jobs: list[JobRecord]) -> list[float]:
    """Return the time from the first match to the end of compute of each job: transfer_total + execute."""
    ends = ([span.end for span in job.executions[-1].spans if span.phase is Phase.EXECUTE][-1] for job in jobs)
    return [end - job.executions[0].start for job, end in zip(jobs, ends, strict=True)]


def comparison_rows(report: Report) -> list[ComparisonRow]:
    return [*_time_rows(report.history, report.stats), *_completion_rows(report), *_outcome_rows(report.stats)]


def _time_rows(history: JobHistory, stats: ReportStats) -> list[ComparisonRow]:
    succeeded = jobs_with_outcome(history, Outcome.SUCCEEDED)
    wrong = jobs_with_outcome(history, Outcome.WRONG_OUTPUT)
    held = jobs_with_outcome(history, Outcome.TIME_LIMIT, Outcome.HELD)
    time_use = {use: format_duration(seconds) for use, seconds in stats.time_use_s.items()}
    return [
        ComparisonRow("successful jobs", "79", f"{stats.succeeded_jobs}"),
        ComparisonRow(
            "compute of successful jobs",
            "13 d 6 h 33 m 53 s",
            time_use[TimeUse.USEFUL_COMPUTE],
            "published without job 794570.010 (49304 s), whose cell holds two numbers",
        ),
        ComparisonRow(
            "last transfers of successful jobs",
            "1 d 21 h 50 m 43 s",
            time_use[TimeUse.USEFUL_TRANSFER],
            f"14 s less: {_NOT_REPRODUCIBLE}",
        ),
        ComparisonRow(
            "wasted by successful jobs (total − last)",
            "12 d 14 h 12 m 50 s",
            format_duration(sum_before_last_transfer_s(succeeded)),
            "34 s more; it includes lost compute and queueing of the four evicted jobs",
        ),
        ComparisonRow(
            "compute lost to the time limit",
            "16 h 1 m 29 s",
            time_use[TimeUse.LOST_TO_TIME_LIMIT],
            "72024 s + 72065 s: the published sum drops a day",
        ),
        ComparisonRow(
            "transfers of held jobs (last)",
            "47 m 35 s",
            format_duration(sum_last_transfers_s(held)),
            _NOT_REPRODUCIBLE,
        ),
        ComparisonRow("compute of wrong outputs", "33 m 8 s", time_use[TimeUse.LOST_TO_WRONG_OUTPUT]),
        ComparisonRow(
            "transfers of wrong outputs (last)",
            "2 h 11 m 8 s",
            format_duration(sum_last_transfers_s(wrong)),
            f"a minute less: {_NOT_REPRODUCIBLE}",
        ),
    ]


def _completion_rows(report: Report) -> list[ComparisonRow]:
    stats, succeeded = report.stats, jobs_with_outcome(report.history, Outcome.SUCCEEDED)
    completion = stats.completion_s
    assert completion is not None
    seconds = completion_times_s(succeeded)
    between = sum(20_000 <= value <= 60_000 for value in seconds)
    published_by_site = {
        "CHTC": ("CHTC-Spark-CE1", "11222 / 11237 (24 jobs)"),
        "PDX": ("PDX-Coeus-CE1", "14824 / 14846 (42 jobs)"),
        "GP-ARGO": ("GP-ARGO-ksu-backfill", "23400 / 17608 (13 jobs)"),
    }
    return [
        *(
            ComparisonRow(f"execute at {name}, mean / median", published, format_site_compute(stats, site))
            for name, (site, published) in published_by_site.items()
        ),
        ComparisonRow(
            "first match to completion, mean",
            "8 h 36 m 46 s",
            format_duration(completion.mean),
            f"until the slot was released; {format_duration(statistics.mean(seconds))} until the program ended",
        ),
        ComparisonRow(
            "first match to completion, median",
            "4 h 57 m 25 s",
            format_duration(completion.median),
            f"until the slot was released; {format_duration(statistics.median(seconds))} until the program ended",
        ),
        ComparisonRow("jobs between 20,000 and 60,000 s", "“most”", f"{between} of {len(seconds)}", _NOT_REPRODUCIBLE),
    ]


def format_site_compute(stats: ReportStats, name: str) -> str:
    compute = next(site.compute_time_s for site in stats.sites if site.site == name)
    assert compute is not None
    return f"{compute.mean:.0f} / {compute.median:.0f} ({compute.count} jobs)"


def _outcome_rows(stats: ReportStats) -> list[ComparisonRow]:
    failures = {failure.category: failure for failure in stats.job_failures}
    counts = ", ".join(
        f"{failures[category].count} {name} ({failures[category].fraction:.1%})"
        for category, name in (
            (FailureCategory.TRANSFER, "transfer"),
            (FailureCategory.WRONG_OUTPUT, "wrong output"),
            (FailureCategory.TIME_LIMIT, "time limit"),
        )
    )
    held = f"compute {stats.held_in_compute}, file transfer {stats.held_in_transfer}"
    useful_transfer = stats.fraction_of_wallclock(TimeUse.USEFUL_TRANSFER)
    wasted_transfer = stats.fraction_of_wallclock(TimeUse.WASTED_TRANSFER)
    return [
        ComparisonRow("failures", "16 transfer (76.2%), 3 wrong output (14.3%), 2 time limit (9.5%)", counts),
        ComparisonRow("held during", "compute 2, file transfer 16", held),
        ComparisonRow("wallclock", "about 685 h", f"{stats.wallclock_s / 3600:.0f} h", _WALLCLOCK_REMARK),
        ComparisonRow("useful compute, of the wallclock", "47%", _format_percent(stats.compute_share)),
        ComparisonRow("useful transfer, of the wallclock", "7%", _format_percent(useful_transfer)),
        ComparisonRow("useful transfer, of useful compute", "14%", _format_percent(stats.transfer_overhead)),
        ComparisonRow(
            "wasted transfer, of the wallclock",
            "44%",
            _format_percent(wasted_transfer),
            "of all jobs, without the lost compute of evicted jobs",
        ),
    ]


_WALLCLOCK_REMARK = "includes the day and the job that the sums omit, and the stalls of failed jobs"


def _format_percent(value: float | None) -> str:
    assert value is not None
    return f"{value:.0%}"


# Parts of the page


def render_comparison_table() -> str:
    head = ["| figure | published | from the table | |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *map(str, comparison_rows(load_week_report()))])


def render_time_use_table() -> str:
    stats = load_week_report().stats
    head = ["| slot time | hours | fraction |", "| --- | --- | --- |"]
    body = [
        f"| {use.value} | {seconds / 3600:.1f} | {seconds / stats.wallclock_s:.1%} |"
        for use, seconds in stats.time_use_s.items()
    ]
    return "\n".join([*head, *body, f"| **total** | **{stats.wallclock_s / 3600:.1f}** | **100%** |"])


def render_findings(report: Report) -> str:
    return "\n".join(f"* {finding.text}" for finding in report.findings)


def render_trials_table() -> str:
    """Render the trials, one row per job."""
    head = [
        "| job | epochs | site | outcome | compute | last transfer | wasted transfer | stalls |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    report = load_trials_report()
    body = [
        f"| {row.job} | {job.point['epochs']} | {', '.join(row.sites) or '?'} | {row.outcome.value} "
        f"| {_format_time_use(row, TimeUse.USEFUL_COMPUTE)} | {_format_time_use(row, TimeUse.USEFUL_TRANSFER)} "
        f"| {_format_time_use(row, TimeUse.WASTED_TRANSFER)} | {row.failed_transfers} |"
        for job, row in zip(report.history.jobs, report.stats.job_summaries, strict=True)
    ]
    return "\n".join([*head, *body])


def _format_time_use(row: JobSummary, use: TimeUse) -> str:
    return format_duration(row.time_use_s.get(use, 0))


def render_terminal_output(report: Report) -> str:
    out = Console(file=io.StringIO(), width=WIDTH, highlight=False, color_system=None, legacy_windows=False)
    print_report_summary(out, report.stats, report.findings)
    assert isinstance(out.file, io.StringIO)
    return "\n".join(line.rstrip() for line in out.file.getvalue().rstrip().splitlines())
