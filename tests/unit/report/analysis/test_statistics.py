"""Statistics of small histories with numbers that are easy to check by hand."""

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


def execution(number, start, fetched, executed, outcome=Outcome.SUCCEEDED, **fields):
    middle = start + fetched
    spans = [PhaseSpan(Phase.TRANSFER_IN, start, middle), PhaseSpan(Phase.EXECUTE, middle, middle + executed)]
    return ExecutionRecord(number, tuple(span for span in spans if span.duration_s), outcome, **fields)


def job(name, *executions, outcome=Outcome.SUCCEEDED, wait=100.0, **fields):
    submitted_at, started_at = executions[0].start - wait, executions[0].start
    wait = PhaseSpan(Phase.QUEUED, submitted_at, started_at)
    return JobRecord(name, executions, outcome, submitted_at, executions[-1].end, (wait,), **fields)


def history(*jobs, absolute=True):
    return JobHistory("example", "log", jobs, has_timestamps=absolute)


FOUR_JOBS = history(
    job("1.0", execution(1, T0, 100, 900, site="A", gpus=2.0)),
    job(
        "1.1",
        execution(1, T0, 400, 0, Outcome.FAILED, category=FailureCategory.TRANSFER, site="A"),
        execution(2, T0 + 500, 100, 1900, site="B"),
        outputs_checked=True,
    ),
    job(
        "1.2",
        execution(1, T0, 50, 300, Outcome.TIME_LIMIT, site="B", category=FailureCategory.TIME_LIMIT),
        outcome=Outcome.TIME_LIMIT,
        category=FailureCategory.TIME_LIMIT,
        reason="too long",
        held_in_phase=Phase.EXECUTE,
        wait=300.0,
    ),
    job("1.3", execution(1, T0, 10, 20, Outcome.RUNNING, site="A"), outcome=Outcome.RUNNING),
)


def test_sums():
    stats = compute_stats(FOUR_JOBS)
    assert stats.wallclock_s == 1000 + 400 + 2000 + 350 + 30
    assert stats.time_use_s == {
        TimeUse.USEFUL_COMPUTE: 2800,
        TimeUse.USEFUL_TRANSFER: 200,
        TimeUse.WASTED_TRANSFER: 450,
        TimeUse.LOST_TO_TIME_LIMIT: 300,
        TimeUse.IN_PROGRESS: 30,
    }
    assert stats.gpu_s == 2000
    assert stats.failed_jobs_s == 350
    assert stats.makespan_s == 300 + 2500, "first submission to last end"
    assert (stats.executions, stats.retries, stats.retried_jobs, stats.max_retries) == (5, 1, 1, 1)
    assert stats.failed_transfers == 1
    assert stats.unchecked_jobs == 1


def test_rates():
    stats = compute_stats(FOUR_JOBS)
    assert stats.success_rate == pytest.approx(2 / 3), "of the ended jobs"
    assert stats.compute_share == 2800 / 3780
    assert stats.useful_share == 3000 / 3780
    assert stats.transfer_overhead == 200 / 2800
    assert stats.fraction_of_wallclock(TimeUse.WASTED_TRANSFER) == 450 / 3780
    assert (stats.held_in_transfer, stats.held_in_compute, stats.held_elsewhere) == (0, 1, 0)


def test_held_jobs():
    """A job may be held before it has a slot. A wrong output or a time limit is not always a hold."""
    held = {"outcome": Outcome.HELD, "category": FailureCategory.TRANSFER}
    removed = {"outcome": Outcome.REMOVED, "held_in_phase": Phase.QUEUED}
    wrong = execution(1, T0, 10, 20, Outcome.WRONG_OUTPUT)
    jobs = (
        JobRecord("1", (), **held),
        JobRecord("2", (), **held, held_in_phase=Phase.QUEUED),
        JobRecord("3", (), **held, held_in_phase=Phase.UNPACK),
        JobRecord("4", (), **removed),
        job("5", wrong, outcome=Outcome.WRONG_OUTPUT),
    )
    stats = compute_stats(history(*jobs))
    assert (stats.held_in_transfer, stats.held_in_compute, stats.held_elsewhere) == (1, 0, 3)


def test_job_times():
    stats = compute_stats(FOUR_JOBS)
    assert stats.completion_s is not None
    assert (stats.completion_s.count, stats.completion_s.mean, stats.completion_s.maximum) == (2, 1750, 2500)
    assert stats.max_over_median == 2500 / 1750
    assert stats.queue_wait_s is not None
    assert stats.queue_wait_s.maximum == 300
    assert [row.completion_s for row in stats.job_summaries] == [1000, 2500, None, None]
    assert [row.queued_s for row in stats.job_summaries] == [100, 100, 300, 100]


def test_failures():
    stats = compute_stats(FOUR_JOBS)
    (failure,) = stats.job_failures
    assert (failure.category, failure.count, failure.fraction, failure.slot_s) == (
        FailureCategory.TIME_LIMIT,
        1,
        1.0,
        350,
    )
    assert (failure.reason, failure.reason_count) == ("too long", 1)
    assert {failure.category: failure.count for failure in stats.execution_failures} == {
        FailureCategory.TIME_LIMIT: 1,
        FailureCategory.TRANSFER: 1,
    }


def test_sites():
    stats = compute_stats(FOUR_JOBS)
    b, a = stats.sites
    assert (b.site, b.executions, b.jobs, b.succeeded_jobs, b.slot_s) == ("B", 2, 2, 1, 2350)
    assert (a.site, a.executions, a.jobs, a.succeeded_jobs, a.slot_s) == ("A", 3, 3, 1, 1430)
    assert (a.wasted_s, b.wasted_s) == (400, 350)
    assert (a.compute_times_s, b.compute_times_s) == ((900,), (1900,))
    assert stats.fastest_compute_site == "A"
    assert stats.fastest_transfer_site == "A", "its median is 55 s: stalled transfers do not count"


def test_partial_compute_is_ignored():
    first = execution(1, T0, 10, 900, Outcome.EVICTED, site="SLOW", retained_compute_s=900.0)
    stats = compute_stats(history(job("1.0", first, execution(2, T0 + 1000, 10, 5, site="FAST"))))
    assert [site.compute_time_s for site in stats.sites] == [None, None]


def test_no_makespan_without_timestamps():
    stats = compute_stats(
        history(job("1.0", execution(1, 0, 10, 20)), job("1.1", execution(1, 0, 10, 20)), absolute=False)
    )
    assert stats.makespan_s is None


def test_empty_history():
    stats = compute_stats(history())
    assert (stats.jobs, stats.wallclock_s, stats.time_use_s, stats.sites) == (0, 0, {}, ())
    assert (stats.success_rate, stats.useful_share, stats.completion_s, stats.gpu_s) == (None,) * 4


# Transfers


def job_with_transfer(name, start, seconds, *, complete=True):
    """A job with transfer execution and transfer transfer."""
    transfer = InputTransfer(start, seconds, 1000 if complete else None, "cache", complete)
    outcome = Outcome.SUCCEEDED if complete else Outcome.FAILED
    return job(name, execution(1, start, seconds, 10, outcome, site="A", input_transfers=(transfer,)), outcome=outcome)


def test_cold_and_warm_transfers():
    history_of_transfers = history(
        job_with_transfer("1", T0, 100),
        job_with_transfer("2", T0 + 50, 90),  # the first had not completed: the cache was still cold
        job_with_transfer("3", T0 + 100, 10),
        job_with_transfer("4", T0 + 500, 20),
        job_with_transfer("5", T0 + 10, 5, complete=False),
    )
    (summary,) = compute_stats(history_of_transfers).transfers
    assert (summary.cold_duration_s.count, summary.cold_duration_s.mean) == (2, 95)
    assert (summary.warm_duration_s.count, summary.warm_duration_s.mean) == (2, 15)
    assert summary.warm_bytes_per_s.maximum == 100.0
    assert summary.failed == 1


def test_warm_transfers_without_timestamps():
    retried = job("2", execution(1, 0, 50, 0, Outcome.FAILED, site="A"), execution(2, 50, 7, 100, site="A"))
    transfers = collect_site_transfers(history(job("1", execution(1, 0, 40, 100, site="A")), retried, absolute=False))
    assert [
        (transfer.job_id, transfer.transfer.duration_s, transfer.transfer.complete, transfer.maybe_cached)
        for transfer in transfers
    ] == [
        ("1", 40, True, False),
        ("2", 50, False, False),
        ("2", 7, True, True),
    ]


def test_running_transfer_is_not_counted():
    assert (
        collect_site_transfers(history(job("1", execution(1, T0, 50, 0, Outcome.RUNNING), outcome=Outcome.RUNNING)))
        == []
    )


# Quantiles


@pytest.mark.parametrize("values", [[3.0], [1.0, 2.0], [5.0, 1.0, 9.0, 2.0], list(map(float, range(79)))])
@pytest.mark.parametrize("q", [0.0, 0.25, 0.5, 0.95, 1.0])
def test_quantiles_match_numpy(values, q):
    assert quantile(sorted(values), q) == pytest.approx(numpy.quantile(values, q))


def test_describe():
    distribution = describe([4.0, 1.0, 7.0])
    assert distribution is not None
    assert (distribution.count, distribution.mean, distribution.median, distribution.minimum, distribution.maximum) == (
        3,
        4,
        4,
        1,
        7,
    )
    assert distribution.stdev == pytest.approx(numpy.std([4, 1, 7], ddof=1))
    assert describe([]) is None
