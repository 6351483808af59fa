"""Figures of small histories whose numbers anybody can add up."""

from __future__ import annotations

import numpy
import pytest

from packtrain.report.analysis.distribution import describe, quantile
from packtrain.report.analysis.input_transfers import collect_site_transfers
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.history import (
    ExecutionRecord,
    FailureCategory,
    InputTransfer,
    JobHistory,
    JobRecord,
    Outcome,
    Phase,
    PhaseSpan,
)

T0 = 1_790_000_000.0


def stay(number, start, fetched, executed, outcome=Outcome.SUCCEEDED, **more):
    middle = start + fetched
    spans = [PhaseSpan(Phase.TRANSFER_IN, start, middle), PhaseSpan(Phase.EXECUTE, middle, middle + executed)]
    return ExecutionRecord(number, tuple(span for span in spans if span.duration_s), outcome, **more)


def job(name, *attempts, outcome=Outcome.SUCCEEDED, wait=100.0, **more):
    begin, end = attempts[0].start - wait, attempts[-1].end
    return JobRecord(name, attempts, outcome, begin, end, (PhaseSpan(Phase.QUEUED, begin, attempts[0].start),), **more)


def history(*jobs, absolute=True):
    return JobHistory("made up", "log", jobs, has_timestamps=absolute)


FOUR = history(
    job("1.0", stay(1, T0, 100, 900, site="A", gpus=2.0)),
    job(
        "1.1",
        stay(1, T0, 400, 0, Outcome.FAILED, category=FailureCategory.TRANSFER, site="A"),
        stay(2, T0 + 500, 100, 1900, site="B"),
        checked=True,
    ),
    job(
        "1.2",
        stay(1, T0, 50, 300, Outcome.TIME_LIMIT, site="B", category=FailureCategory.TIME_LIMIT),
        outcome=Outcome.TIME_LIMIT,
        category=FailureCategory.TIME_LIMIT,
        reason="too long",
        held_in=Phase.EXECUTE,
        wait=300.0,
    ),
    job("1.3", stay(1, T0, 10, 20, Outcome.RUNNING, site="A"), outcome=Outcome.RUNNING),
)


def test_sums():
    figures = compute_stats(FOUR)
    assert figures.wallclock_s == 1000 + 400 + 2000 + 350 + 30
    assert figures.time_use_s == {
        TimeUse.USEFUL_COMPUTE: 2800, TimeUse.USEFUL_TRANSFER: 200, TimeUse.WASTED_TRANSFER: 450, TimeUse.LOST_TO_TIME_LIMIT: 300, TimeUse.IN_PROGRESS: 30,
    }  # fmt: skip
    assert figures.gpu_s == 2000
    assert figures.failed_jobs_s == 350
    assert figures.makespan_s == 300 + 2500, "from the first submission to the last end"
    assert (figures.executions, figures.retries, figures.retried_jobs, figures.max_retries) == (5, 1, 1, 1)
    assert figures.failed_transfers == 1
    assert figures.unchecked_jobs == 1


def test_rates():
    figures = compute_stats(FOUR)
    assert figures.success_rate == pytest.approx(2 / 3), "of those that ended"
    assert figures.compute_share == 2800 / 3780
    assert figures.useful_share == 3000 / 3780
    assert figures.transfer_overhead == 200 / 2800
    assert figures.fraction_of_wallclock(TimeUse.WASTED_TRANSFER) == 450 / 3780
    assert (figures.held_in_transfer, figures.held_in_compute, figures.held_elsewhere) == (0, 1, 0)


def test_where_jobs_were_held():
    """One that was held before it had a slot was held, too; a wrong output or a limit need not be a hold."""
    held = {"outcome": Outcome.HELD, "category": FailureCategory.TRANSFER}
    gone = {"outcome": Outcome.REMOVED, "held_in": Phase.QUEUED}
    wrong = stay(1, T0, 10, 20, Outcome.WRONG_OUTPUT)
    jobs = (
        JobRecord("1", (), **held),
        JobRecord("2", (), **held, held_in_phase=Phase.QUEUED),
        JobRecord("3", (), **held, held_in_phase=Phase.UNPACK),
        JobRecord("4", (), **gone),
        job("5", wrong, outcome=Outcome.WRONG_OUTPUT),
    )
    figures = compute_stats(history(*jobs))
    assert (figures.held_in_transfer, figures.held_in_compute, figures.held_elsewhere) == (1, 0, 3)


def test_times_of_jobs():
    figures = compute_stats(FOUR)
    assert figures.completion_s is not None
    assert (figures.completion_s.count, figures.completion_s.mean, figures.completion_s.maximum) == (2, 1750, 2500)
    assert figures.max_over_median == 2500 / 1750
    assert figures.queue_wait_s is not None
    assert figures.queue_wait_s.maximum == 300
    assert [row.completion_s for row in figures.job_summaries] == [1000, 2500, None, None]
    assert [row.queued_s for row in figures.job_summaries] == [100, 100, 300, 100]


def test_failures():
    figures = compute_stats(FOUR)
    (failure,) = figures.job_failures
    assert (failure.category, failure.count, failure.fraction, failure.slot_s) == (
        FailureCategory.TIME_LIMIT,
        1,
        1.0,
        350,
    )
    assert (failure.reason, failure.reason_count) == ("too long", 1)
    assert {one.category: one.count for one in figures.execution_failures} == {
        FailureCategory.TIME_LIMIT: 1,
        FailureCategory.TRANSFER: 1,
    }


def test_sites():
    figures = compute_stats(FOUR)
    b, a = figures.sites
    assert (b.site, b.executions, b.jobs, b.succeeded_jobs, b.slot_s) == ("B", 2, 2, 1, 2350)
    assert (a.site, a.executions, a.jobs, a.succeeded_jobs, a.slot_s) == ("A", 3, 3, 1, 1430)
    assert (a.wasted_s, b.wasted_s) == (400, 350)
    assert (a.compute_times_s, b.compute_times_s) == ((900,), (1900,))
    assert figures.fastest_compute_site == "A"
    assert figures.fastest_transfer_site == "A", "its median is 55 s: what stalled there does not count"


def test_a_rest_of_compute_makes_no_site_fast():
    first = stay(1, T0, 10, 900, Outcome.EVICTED, site="SLOW", kept_s=900.0)
    figures = compute_stats(history(job("1.0", first, stay(2, T0 + 1000, 10, 5, site="FAST"))))
    assert [site.compute_time_s for site in figures.sites] == [None, None]


def test_times_of_a_table_are_not_compared_across_jobs():
    figures = compute_stats(history(job("1.0", stay(1, 0, 10, 20)), job("1.1", stay(1, 0, 10, 20)), absolute=False))
    assert figures.makespan_s is None


def test_nothing_happened():
    figures = compute_stats(history())
    assert (figures.jobs, figures.wallclock_s, figures.time_use_s, figures.sites) == (0, 0, {}, ())
    assert (figures.success_rate, figures.useful_share, figures.completion_s, figures.gpu_s) == (None,) * 4


# Transfers


def moved(name, start, seconds, *, whole=True, size=1000, source="cache"):
    """A job of one attempt with one transfer."""
    move = InputTransfer(start, seconds, size if whole else None, source, whole)
    attempt = stay(1, start, seconds, 10, Outcome.SUCCEEDED if whole else Outcome.FAILED, site="A", moves=(move,))
    return job(name, attempt, outcome=attempt.outcome)


def test_first_transfers_and_later_ones_are_told_apart():
    told = history(
        moved("1", T0, 100),
        moved("2", T0 + 50, 90),  # began before the first had come: the cache was cold for it, too
        moved("3", T0 + 100, 10),
        moved("4", T0 + 500, 20),
        moved("5", T0 + 10, 5, whole=False),
    )
    (place,) = compute_stats(told).transfers
    assert place.cold_duration_s is not None
    assert place.warm_duration_s is not None
    assert (place.cold_duration_s.count, place.cold_duration_s.mean) == (2, 95)
    assert (place.warm_duration_s.count, place.warm_duration_s.mean) == (2, 15)
    assert place.warm_bytes_per_s is not None
    assert place.warm_bytes_per_s.maximum == 100.0
    assert place.failed == 1


def test_of_a_table_only_a_job_s_own_transfers_are_later_ones():
    again = job("2", stay(1, 0, 50, 0, Outcome.FAILED, site="A"), stay(2, 50, 7, 100, site="A"))
    arrivals = collect_site_transfers(history(job("1", stay(1, 0, 40, 100, site="A")), again, absolute=False))
    assert [(one.job_id, one.transfer.duration_s, one.transfer.complete, one.maybe_cached) for one in arrivals] == [
        ("1", 40, True, False),
        ("2", 50, False, False),
        ("2", 7, True, True),
    ]


def test_a_transfer_that_is_under_way_is_neither_whole_nor_broken():
    assert collect_site_transfers(history(job("1", stay(1, T0, 50, 0, Outcome.RUNNING), outcome=Outcome.RUNNING))) == []


# Quantiles


@pytest.mark.parametrize("values", [[3.0], [1.0, 2.0], [5.0, 1.0, 9.0, 2.0], list(map(float, range(79)))])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.95, 1.0])
def test_quantiles_are_those_of_numpy(values, share):
    assert quantile(sorted(values), share) == pytest.approx(numpy.quantile(values, share))


def test_a_spread():
    spread = describe([4.0, 1.0, 7.0])
    assert spread is not None
    assert (spread.count, spread.mean, spread.median, spread.minimum, spread.maximum) == (3, 4, 4, 1, 7)
    assert spread.stdev == pytest.approx(numpy.std([4, 1, 7], ddof=1))
    assert describe([]) is None
