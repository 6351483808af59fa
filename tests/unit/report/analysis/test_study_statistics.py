"""The published study, figure by figure: what was published, and what its own table gives."""

from __future__ import annotations

import importlib.util
import statistics
import sys

import pytest

from packtrain.report.analysis.time_accounting import LOST_COMPUTE, TimeUse
from packtrain.report.history import FailureCategory, Outcome
from tests.support.paths import PROJECT_ROOT


def _study():
    spec = importlib.util.spec_from_file_location("study", PROJECT_ROOT / "docs" / "study.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["study"] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


study = _study()


def seconds(days=0, hours=0, minutes=0, rest=0):
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


@pytest.fixture(scope="module")
def week():
    return study.week()


@pytest.fixture(scope="module")
def good(week):
    return study.done(week.history, Outcome.SUCCEEDED)


def test_jobs(week):
    assert (week.stats.jobs, week.stats.succeeded_jobs, week.stats.success_rate) == (100, 79, 0.79)


def test_compute_of_successful_jobs(week):
    found, published = week.stats.time_use_s[TimeUse.USEFUL_COMPUTE], seconds(13, 6, 33, 53)
    assert found == seconds(13, 20, 15, 37)
    assert found - published == 49304, "the job whose cell holds two numbers"


def test_last_transfers_of_successful_jobs(week, good):
    assert week.stats.time_use_s[TimeUse.USEFUL_TRANSFER] == study.last_transfers(good) == seconds(1, 21, 50, 29)
    assert seconds(1, 21, 50, 43) - seconds(1, 21, 50, 29) == 14, "published: more than the table has"


def test_thrown_away_by_successful_jobs(week, good):
    """As the study counts it, with what the evicted jobs lost and waited for."""
    assert study.before_the_last(good) == pytest.approx(seconds(12, 14, 13, 24))
    lost = sum(row.shares.get(TimeUse.LOST_TO_EVICTION, 0) for row in week.stats.job_summaries)
    thrown = sum(row.shares.get(TimeUse.WASTED_TRANSFER, 0) for row in week.figures.rows if row.completion_s)
    assert thrown + lost == pytest.approx(seconds(12, 14, 13, 24)), "and as the report does"


def test_compute_lost_to_the_time_limit(week):
    assert week.stats.time_use_s[TimeUse.LOST_TO_TIME_LIMIT] == 72024 + 72065 == seconds(1, 16, 1, 29)
    assert seconds(1, 16, 1, 29) - seconds(0, 16, 1, 29) == 86400, "the published sum drops a day"


def test_transfers_of_jobs_that_failed(week):
    held = study.done(week.history, Outcome.TIME_LIMIT, Outcome.HELD)
    wrong = study.done(week.history, Outcome.WRONG_OUTPUT)
    assert study.last_transfers(held) == seconds(0, 0, 39, 9), "published: 47 m 35 s"
    assert study.last_transfers(wrong) == seconds(0, 2, 10, 8), "published: 2 h 11 m 8 s"
    assert week.stats.time_use_s[TimeUse.LOST_TO_WRONG_OUTPUT] == seconds(0, 0, 33, 8)


@pytest.mark.parametrize(
    ("site", "mean", "median", "jobs"),
    [
        ("CHTC-Spark-CE1", 11222, 11237, 24),
        ("PDX-Coeus-CE1", 14824, 14846, 42),
        ("GP-ARGO-ksu-backfill", 23400, 17608, 13),
    ],
)
def test_compute_at_sites(week, site, mean, median, jobs):
    (compute,) = [one.compute_time_s for one in week.stats.sites if one.site == site]
    assert (round(compute.mean), compute.median, compute.count) == (mean, median, jobs)


def test_fastest_sites(week):
    assert (week.stats.fastest_compute_site, week.stats.fastest_transfer) == ("CHTC-Spark-CE1", "GP-ARGO-ksu-backfill")


def test_first_match_to_completion(week, good):
    """Published are 8 h 36 m 46 s and 4 h 57 m 25 s: until the slots were free, rather than the programs done."""
    completion = week.stats.completion_s
    assert (round(completion.mean), completion.median) == (seconds(0, 8, 36, 47), seconds(0, 4, 57, 25))
    done = study.computed(good)
    assert (round(statistics.mean(done)), statistics.median(done)) == (seconds(0, 8, 36, 42), seconds(0, 4, 57, 20))
    assert sum(20_000 <= one <= 60_000 for one in done) == 15, "published: most of them"


def test_long_tail(week):
    assert (round(week.stats.p95_over_median, 1), round(week.stats.tail_max, 1)) == (4.3, 8.2)


def test_failures(week):
    assert [(one.category, one.count, round(100 * one.fraction, 1)) for one in week.stats.job_failures] == [
        (FailureCategory.TRANSFER, 16, 76.2),
        (FailureCategory.WRONG_OUTPUT, 3, 14.3),
        (FailureCategory.TIME_LIMIT, 2, 9.5),
    ]


def test_held_during(week):
    figures = week.stats
    assert (figures.held_in_compute, figures.held_in_transfer, figures.held_elsewhere) == (2, 16, 0)


def test_the_wallclock_is_split_exactly(week):
    figures = week.stats
    assert figures.wallclock_s == sum(figures.time_use_s.values()) == 2_740_664
    assert round(figures.wallclock_s / 3600) == 761, "published: about 685"
    parts = {
        share: round(100 * (figures.part(share) or 0)) for share in (TimeUse.USEFUL_COMPUTE, TimeUse.USEFUL_TRANSFER)
    }
    assert parts == {TimeUse.USEFUL_COMPUTE: 44, TimeUse.USEFUL_TRANSFER: 6}, "published: 47 and 7"
    assert round(100 * figures.part(TimeUse.WASTED_TRANSFER)) == 43, "published: 44"
    assert round(100 * figures.transfer_overhead) == 14
    assert round(sum(figures.shares.get(share, 0) for share in LOST_COMPUTE)) == 193_550


def test_what_the_published_sums_leave_out_is_the_difference(week):
    """13.7 h of one job, a day of the time limit, 37.5 h of stalls of wrong outputs: 685 h become 761 h."""
    wrong = study.done(week.history, Outcome.WRONG_OUTPUT)
    missing = 49304 + 86400 + study.before_the_last(wrong)
    assert (week.stats.wallclock_s - missing) / 3600 == pytest.approx(686, abs=0.5)


def test_stalls_were_longer_than_any_transfer_that_came(week):
    moves = [move for attempt in week.history.executions() for move in attempt.input_transfers]
    assert max(move.seconds for move in moves if move.whole) == seconds(0, 0, 57, 21)
    assert min(move.seconds for move in moves if not move.whole and move.seconds > 60) > seconds(0, 0, 62)
    assert any("a time limit between the two is likely" in finding.text for finding in week.findings)


def test_the_trials():
    report = study.trials()
    figures = report.stats
    assert (figures.jobs, figures.succeeded_jobs, figures.failures[0].category) == (10, 9, FailureCategory.USER)
    assert figures.shares == {
        TimeUse.USEFUL_COMPUTE: 285_850, TimeUse.USEFUL_TRANSFER: 10_774, TimeUse.WASTED_TRANSFER: 59_085, TimeUse.OVERHEAD: 12,
    }  # fmt: skip
    assert figures.stalls == 12
    by_epochs = {}
    for job, row in zip(report.history.jobs, figures.rows, strict=True):
        by_epochs.setdefault(job.point["epochs"], []).append(row.shares.get(TimeUse.USEFUL_COMPUTE, 0))
    assert {epochs: sum(found) for epochs, found in by_epochs.items()} == {"20": 220_014, "5": 65_836}
    last = {row.job: row.shares.get(TimeUse.USEFUL_TRANSFER) for row in figures.rows}
    assert (last["794421.002"], last["794421.003"]) == (pytest.approx(492, abs=2), pytest.approx(773, abs=5)), "as told"


def test_the_page_tells_where_published_sums_do_not_follow(week):
    rows = {row.figure: row for row in study.rows(week)}
    differing = [row for row in rows.values() if not row.same]
    assert len(differing) == 12
    assert len(rows) == 21
    assert "drops a day" in rows["compute lost to the time limit"].remark
    assert "794570.010" in rows["compute of successful jobs"].remark
