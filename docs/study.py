"""The tables of docs/study.md: the published week of 100 jobs, recomputed by packtrain's own report."""

from __future__ import annotations

import io
import statistics
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from packtrain.cli.ui.report_summary import show_short
from packtrain.report.analysis.statistics import Figures
from packtrain.report.analysis.time_accounting import Share
from packtrain.report.build import Report, report_on
from packtrain.report.history import Category, History, Job, Outcome, Phase
from packtrain.report.readers.files import read

STUDY = Path(__file__).parents[1] / "tests" / "data" / "study"
WEEK, TRIALS = STUDY / "ospool-imagenet-100-jobs.csv", STUDY / "ospool-imagenet-trials.csv"
WIDTH = 100
_NOT_SO = "does not follow from the table"


@dataclass(frozen=True)
class Row:
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


def week() -> Report:
    return report_on(read([str(WEEK)]))


def trials() -> Report:
    return report_on(read([str(TRIALS)]))


def long(seconds: float) -> str:
    """As the study writes it: 13 d 6 h 33 m 53 s"""
    whole = round(seconds)
    parts = ((whole // 86400, "d"), (whole % 86400 // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s"))
    told = [f"{count} {unit}" for count, unit in parts]
    first = next((place for place, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(told[first:])


# What the study counts


def done(history: History, *outcomes: Outcome) -> list[Job]:
    return [job for job in history.jobs if job.outcome in outcomes]


def last_transfers(jobs: list[Job]) -> float:
    return sum(job.attempts[-1].of(Phase.TRANSFER_IN) for job in jobs)


def before_the_last(jobs: list[Job]) -> float:
    """From the first match to the last transfer: what the study calls total − last."""
    return sum(job.attempts[-1].start - job.attempts[0].start for job in jobs)


def computed(jobs: list[Job]) -> list[float]:
    """From the first match to the end of computing, of each: transfer_total + execute."""
    ends = ([span.end for span in job.attempts[-1].spans if span.phase is Phase.EXECUTE][-1] for job in jobs)
    return [end - job.attempts[0].start for job, end in zip(jobs, ends, strict=True)]


def rows(report: Report) -> list[Row]:
    return [*_sums(report.history, report.figures), *_times(report), *_ends(report.figures)]


def _sums(history: History, figures: Figures) -> list[Row]:
    good, wrong = done(history, Outcome.SUCCEEDED), done(history, Outcome.WRONG_OUTPUT)
    held = done(history, Outcome.TIME_LIMIT, Outcome.HELD)
    return [
        Row("successful jobs", "79", f"{figures.succeeded}"),
        Row("compute of successful jobs", "13 d 6 h 33 m 53 s", long(figures.shares[Share.COMPUTE]),
            "published without job 794570.010 (49304 s), whose cell holds two numbers"),
        Row("last transfers of successful jobs", "1 d 21 h 50 m 43 s", long(figures.shares[Share.TRANSFER]),
            f"14 s less: {_NOT_SO}"),
        Row("thrown away by successful jobs (total − last)", "12 d 14 h 12 m 50 s", long(before_the_last(good)),
            "34 s more; of the four evicted jobs it contains lost compute and queueing"),
        Row("compute lost to the time limit", "16 h 1 m 29 s", long(figures.shares[Share.TIME_LIMIT]),
            "72024 s + 72065 s: the published sum drops a day"),
        Row("transfers of held jobs (last)", "47 m 35 s", long(last_transfers(held)), _NOT_SO),
        Row("compute of wrong outputs", "33 m 8 s", long(figures.shares[Share.OUTPUT])),
        Row("transfers of wrong outputs (last)", "2 h 11 m 8 s", long(last_transfers(wrong)),
            f"a minute less: {_NOT_SO}"),
    ]  # fmt: skip


def _times(report: Report) -> list[Row]:
    figures, good = report.figures, done(report.history, Outcome.SUCCEEDED)
    completion = figures.completion
    assert completion is not None
    seconds = computed(good)
    between = sum(20_000 <= one <= 60_000 for one in seconds)
    return [
        Row("execute at CHTC, mean / median", "11222 / 11237 (24 jobs)", site(figures, "CHTC-Spark-CE1")),
        Row("execute at PDX, mean / median", "14824 / 14846 (42 jobs)", site(figures, "PDX-Coeus-CE1")),
        Row("execute at GP-ARGO, mean / median", "23400 / 17608 (13 jobs)", site(figures, "GP-ARGO-ksu-backfill")),
        Row("first match to completion, mean", "8 h 36 m 46 s", long(completion.mean),
            f"until the slot was free; {long(statistics.mean(seconds))} until the program ended"),
        Row("first match to completion, median", "4 h 57 m 25 s", long(completion.median),
            f"until the slot was free; {long(statistics.median(seconds))} until the program ended"),
        Row("jobs between 20,000 and 60,000 s", "“most”", f"{between} of {len(seconds)}", _NOT_SO),
    ]  # fmt: skip


def site(figures: Figures, name: str) -> str:
    compute = next(one.compute for one in figures.sites if one.site == name)
    assert compute is not None
    return f"{compute.mean:.0f} / {compute.median:.0f} ({compute.count} jobs)"


def _ends(figures: Figures) -> list[Row]:
    kinds = {one.category: one for one in figures.failures}
    told = ", ".join(
        f"{kinds[category].count} {words} ({kinds[category].fraction:.1%})"
        for category, words in (
            (Category.TRANSFER, "transfer"),
            (Category.OUTPUT, "wrong output"),
            (Category.TIME_LIMIT, "time limit"),
        )
    )
    held = f"compute {figures.held_in_compute}, file transfer {figures.held_in_transfer}"
    return [
        Row("failures", "16 transfer (76.2%), 3 wrong output (14.3%), 2 time limit (9.5%)", told),
        Row("held during", "compute 2, file transfer 16", held),
        Row("wallclock", "about 685 h", f"{figures.wallclock_s / 3600:.0f} h", _MISSING),
        Row("useful compute, of the wallclock", "47%", _percent(figures.compute_share)),
        Row("useful transfer, of the wallclock", "7%", _percent(figures.part(Share.TRANSFER))),
        Row("useful transfer, of useful compute (overhead)", "14%", _percent(figures.transfer_overhead)),
        Row("thrown away, of the wallclock", "44%", _percent(figures.part(Share.THROWN_AWAY)),
            "of all jobs; lost compute of evicted ones apart"),
    ]  # fmt: skip


_MISSING = "with the day and the job that the sums leave out, and the stalls of jobs that failed"


def _percent(value: float | None) -> str:
    assert value is not None
    return f"{value:.0%}"


# What the page shows


def table() -> str:
    head = ["| figure | published | from the table | |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *map(str, rows(week()))])


def shares() -> str:
    figures = week().figures
    head = ["| seconds of slots | hours | part |", "| --- | --- | --- |"]
    body = [
        f"| {share.value} | {seconds / 3600:.1f} | {seconds / figures.wallclock_s:.1%} |"
        for share, seconds in figures.shares.items()
    ]
    return "\n".join([*head, *body, f"| **altogether** | **{figures.wallclock_s / 3600:.1f}** | **100%** |"])


def findings(report: Report) -> str:
    return "\n".join(f"* {finding.text}" for finding in report.findings)


def trial_table() -> str:
    """By job, as the table of the trials has it, judged."""
    head = [
        "| job | epochs | site | outcome | compute | last transfer | thrown away | stalls |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    report = trials()
    body = [
        f"| {row.job} | {job.point['epochs']} | {', '.join(row.sites) or '?'} | {row.outcome.value} "
        f"| {long(row.shares.get(Share.COMPUTE, 0))} | {long(row.shares.get(Share.TRANSFER, 0))} "
        f"| {long(row.shares.get(Share.THROWN_AWAY, 0))} | {row.stalls} |"
        for job, row in zip(report.history.jobs, report.figures.rows, strict=True)
    ]
    return "\n".join([*head, *body])


def terminal(report: Report) -> str:
    out = Console(file=io.StringIO(), width=WIDTH, highlight=False, color_system=None, legacy_windows=False)
    show_short(out, report.figures, report.findings)
    assert isinstance(out.file, io.StringIO)
    return "\n".join(line.rstrip() for line in out.file.getvalue().rstrip().splitlines())
