"""The published study: each published number, and the number that its own table gives."""

from __future__ import annotations

import importlib.util
import statistics
import sys

import pytest

from packtrain.report.analysis.time_accounting import LOST_COMPUTE, TimeUse
from packtrain.report.history import FailureCategory, Outcome
from tests.support.paths import PROJECT_ROOT


def load_study():
    spec = importlib.util.spec_from_file_location("study", PROJECT_ROOT / "docs" / "study.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["study"] = module  # dataclasses look up their module there
    spec.loader.exec_module(module)
    return module


study = load_study()


def to_seconds(days, hours, minutes, seconds=0):
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@pytest.fixture(scope="module")
def week():
    return study.load_week_report()


@pytest.fixture(scope="module")
def succeeded(week):
    return study.jobs_with_outcome(week.history, Outcome.SUCCEEDED)


def test_jobs(week):
    assert (week.stats.jobs, week.stats.succeeded_jobs, week.stats.success_rate) == (100, 79, 0.79)


def test_compute_of_successful_jobs(week):
    computed, published = week.stats.time_use_s[TimeUse.USEFUL_COMPUTE], to_seconds(13, 6, 33, 53)
    assert computed == to_seconds(13, 20, 15, 37)
    assert computed - published == 49304, "the job whose cell holds two numbers"


def test_last_transfers_of_successful_jobs(week, succeeded):
    assert (
        week.stats.time_use_s[TimeUse.USEFUL_TRANSFER]
        == study.sum_last_transfers_s(succeeded)
        == to_seconds(1, 21, 50, 29)
    )
    assert to_seconds(1, 21, 50, 43) - to_seconds(1, 21, 50, 29) == 14, "more was published than the table has"


def test_transfers_wasted_by_successful_jobs(week, succeeded):
    """As the study counts it: including lost compute and queueing of the evicted jobs."""
    assert study.sum_before_last_transfer_s(succeeded) == pytest.approx(to_seconds(12, 14, 13, 24))
    lost = sum(row.time_use_s.get(TimeUse.LOST_TO_EVICTION, 0) for row in week.stats.job_summaries)
    wasted = sum(row.time_use_s.get(TimeUse.WASTED_TRANSFER, 0) for row in week.stats.job_summaries if row.completion_s)
    assert wasted + lost == pytest.approx(to_seconds(12, 14, 13, 24)), "the report agrees"


def test_compute_lost_to_the_time_limit(week):
    assert week.stats.time_use_s[TimeUse.LOST_TO_TIME_LIMIT] == 72024 + 72065 == to_seconds(1, 16, 1, 29)
    assert to_seconds(1, 16, 1, 29) - to_seconds(0, 16, 1, 29) == 86400, "the published sum drops a day"


def test_transfers_of_failed_jobs(week):
    held = study.jobs_with_outcome(week.history, Outcome.TIME_LIMIT, Outcome.HELD)
    wrong = study.jobs_with_outcome(week.history, Outcome.WRONG_OUTPUT)
    assert study.sum_last_transfers_s(held) == to_seconds(0, 0, 39, 9), "published: 47 m 35 s"
    assert study.sum_last_transfers_s(wrong) == to_seconds(0, 2, 10, 8), "published: 2 h 11 m 8 s"
    assert week.stats.time_use_s[TimeUse.LOST_TO_WRONG_OUTPUT] == to_seconds(0, 0, 33, 8)


@pytest.mark.parametrize(
    ("site", "mean", "median", "jobs"),
    [
        ("CHTC-Spark-CE1", 11222, 11237, 24),
        ("PDX-Coeus-CE1", 14824, 14846, 42),
        ("GP-ARGO-ksu-backfill", 23400, 17608, 13),
    ],
)
def test_compute_at_sites(week, site, mean, median, jobs):
    (compute,) = [summary.compute_time_s for summary in week.stats.sites if summary.site == site]
    assert (round(compute.mean), compute.median, compute.count) == (mean, median, jobs)


def test_fastest_sites(week):
    assert (week.stats.fastest_compute_site, week.stats.fastest_transfer_site) == (
        "CHTC-Spark-CE1",
        "GP-ARGO-ksu-backfill",
    )


def test_first_match_to_completion(week, succeeded):
    """Published: 8 h 36 m 46 s and 4 h 57 m 25 s, until the slots were released instead of the programs ended."""
    completion = week.stats.completion_s
    assert (round(completion.mean), completion.median) == (to_seconds(0, 8, 36, 47), to_seconds(0, 4, 57, 25))
    ended = study.completion_times_s(succeeded)
    assert (round(statistics.mean(ended)), statistics.median(ended)) == (
        to_seconds(0, 8, 36, 42),
        to_seconds(0, 4, 57, 20),
    )
    assert sum(20_000 <= value <= 60_000 for value in ended) == 15, "published: most of them"


def test_long_tail(week):
    assert (round(week.stats.p95_over_median, 1), round(week.stats.max_over_median, 1)) == (4.3, 8.2)


def test_failures(week):
    assert [
        (failure.category, failure.count, round(100 * failure.fraction, 1)) for failure in week.stats.job_failures
    ] == [
        (FailureCategory.TRANSFER, 16, 76.2),
        (FailureCategory.WRONG_OUTPUT, 3, 14.3),
        (FailureCategory.TIME_LIMIT, 2, 9.5),
    ]


def test_held_during(week):
    stats = week.stats
    assert (stats.held_in_compute, stats.held_in_transfer, stats.held_elsewhere) == (2, 16, 0)


def test_wallclock(week):
    stats = week.stats
    assert stats.wallclock_s == sum(stats.time_use_s.values()) == 2_740_664
    assert round(stats.wallclock_s / 3600) == 761, "published: about 685"
    percents = {
        use: round(100 * (stats.fraction_of_wallclock(use) or 0))
        for use in (TimeUse.USEFUL_COMPUTE, TimeUse.USEFUL_TRANSFER)
    }
    assert percents == {TimeUse.USEFUL_COMPUTE: 44, TimeUse.USEFUL_TRANSFER: 6}, "published: 47 and 7"
    assert round(100 * stats.fraction_of_wallclock(TimeUse.WASTED_TRANSFER)) == 43, "published: 44"
    assert round(100 * stats.transfer_overhead) == 14
    assert round(sum(stats.time_use_s.get(use, 0) for use in LOST_COMPUTE)) == 193_550


def test_omissions_explain_the_difference(week):
    """13.7 h of one job, a day of the time limit, 37.5 h of stalls of wrong outputs: 685 h become 761 h."""
    wrong = study.jobs_with_outcome(week.history, Outcome.WRONG_OUTPUT)
    missing = 49304 + 86400 + study.sum_before_last_transfer_s(wrong)
    assert (week.stats.wallclock_s - missing) / 3600 == pytest.approx(686, abs=0.5)


def test_stalls_took_longer_than_complete_transfers(week):
    transfers = [transfer for execution in week.history.executions() for transfer in execution.input_transfers]
    assert max(transfer.duration_s for transfer in transfers if transfer.complete) == to_seconds(0, 0, 57, 21)
    assert min(
        transfer.duration_s for transfer in transfers if not transfer.complete and transfer.duration_s > 60
    ) > to_seconds(0, 0, 62)
    assert any("a time limit between the two is likely" in finding.text for finding in week.findings)


def test_trials():
    report = study.load_trials_report()
    stats = report.stats
    assert (stats.jobs, stats.succeeded_jobs, stats.job_failures[0].category) == (10, 9, FailureCategory.USER)
    assert stats.time_use_s == {
        TimeUse.USEFUL_COMPUTE: 285_850,
        TimeUse.USEFUL_TRANSFER: 10_774,
        TimeUse.WASTED_TRANSFER: 59_085,
        TimeUse.OVERHEAD: 12,
    }
    assert stats.failed_transfers == 12
    by_epochs = {}
    for job, row in zip(report.history.jobs, stats.job_summaries, strict=True):
        by_epochs.setdefault(job.point["epochs"], []).append(row.time_use_s.get(TimeUse.USEFUL_COMPUTE, 0))
    assert {epochs: sum(values) for epochs, values in by_epochs.items()} == {"20": 220_014, "5": 65_836}
    last_s = {row.job: row.time_use_s.get(TimeUse.USEFUL_TRANSFER) for row in stats.job_summaries}
    assert (last_s["794421.002"], last_s["794421.003"]) == (pytest.approx(492, abs=2), pytest.approx(773, abs=5)), (
        "as noted in the table"
    )


def test_differences_are_explained(week):
    rows = {row.figure: row for row in study.comparison_rows(week)}
    differing = [row for row in rows.values() if not row.same]
    assert len(differing) == 12
    assert len(rows) == 21
    assert "drops a day" in rows["compute lost to the time limit"].remark
    assert "794570.010" in rows["compute of successful jobs"].remark
