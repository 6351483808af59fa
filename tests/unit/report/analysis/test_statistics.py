"""Figures of small histories whose numbers anybody can add up."""

from __future__ import annotations

import numpy
import pytest

from packtrain.report.analysis.distribution import quantile, spread_of
from packtrain.report.analysis.input_transfers import arrivals_of
from packtrain.report.analysis.statistics import figures_of
from packtrain.report.analysis.time_accounting import Share
from packtrain.report.history import Attempt, Category, History, Job, Move, Outcome, Phase, Span

T0 = 1_790_000_000.0


def stay(number, start, fetched, executed, outcome=Outcome.SUCCEEDED, **more):
    middle = start + fetched
    spans = [Span(Phase.TRANSFER_IN, start, middle), Span(Phase.EXECUTE, middle, middle + executed)]
    return Attempt(number, tuple(span for span in spans if span.seconds), outcome, **more)


def job(name, *attempts, outcome=Outcome.SUCCEEDED, wait=100.0, **more):
    begin, end = attempts[0].start - wait, attempts[-1].end
    return Job(name, attempts, outcome, begin, end, (Span(Phase.QUEUED, begin, attempts[0].start),), **more)


def history(*jobs, absolute=True):
    return History("made up", "log", jobs, absolute=absolute)


FOUR = history(
    job("1.0", stay(1, T0, 100, 900, site="A", gpus=2.0)),
    job(
        "1.1",
        stay(1, T0, 400, 0, Outcome.FAILED, category=Category.TRANSFER, site="A"),
        stay(2, T0 + 500, 100, 1900, site="B"),
        checked=True,
    ),
    job(
        "1.2",
        stay(1, T0, 50, 300, Outcome.TIME_LIMIT, site="B", category=Category.TIME_LIMIT),
        outcome=Outcome.TIME_LIMIT,
        category=Category.TIME_LIMIT,
        reason="too long",
        held_in=Phase.EXECUTE,
        wait=300.0,
    ),
    job("1.3", stay(1, T0, 10, 20, Outcome.RUNNING, site="A"), outcome=Outcome.RUNNING),
)


def test_sums():
    figures = figures_of(FOUR)
    assert figures.wallclock_s == 1000 + 400 + 2000 + 350 + 30
    assert figures.shares == {
        Share.COMPUTE: 2800, Share.TRANSFER: 200, Share.THROWN_AWAY: 450, Share.TIME_LIMIT: 300, Share.UNDER_WAY: 30,
    }  # fmt: skip
    assert figures.gpu_s == 2000
    assert figures.lost_to_failed_s == 350
    assert figures.makespan_s == 300 + 2500, "from the first submission to the last end"
    assert (figures.attempts, figures.retries, figures.jobs_retried, figures.most_retries) == (5, 1, 1, 1)
    assert figures.stalls == 1
    assert figures.unchecked == 1


def test_rates():
    figures = figures_of(FOUR)
    assert figures.success_rate == pytest.approx(2 / 3), "of those that ended"
    assert figures.compute_share == 2800 / 3780
    assert figures.useful_share == 3000 / 3780
    assert figures.transfer_overhead == 200 / 2800
    assert figures.part(Share.THROWN_AWAY) == 450 / 3780
    assert (figures.held_in_transfer, figures.held_in_compute, figures.held_elsewhere) == (0, 1, 0)


def test_where_jobs_were_held():
    """One that was held before it had a slot was held, too; a wrong output or a limit need not be a hold."""
    held = {"outcome": Outcome.HELD, "category": Category.TRANSFER}
    gone = {"outcome": Outcome.REMOVED, "held_in": Phase.QUEUED}
    wrong = stay(1, T0, 10, 20, Outcome.WRONG_OUTPUT)
    jobs = (
        Job("1", (), **held),
        Job("2", (), **held, held_in=Phase.QUEUED),
        Job("3", (), **held, held_in=Phase.UNPACK),
        Job("4", (), **gone),
        job("5", wrong, outcome=Outcome.WRONG_OUTPUT),
    )
    figures = figures_of(history(*jobs))
    assert (figures.held_in_transfer, figures.held_in_compute, figures.held_elsewhere) == (1, 0, 3)


def test_times_of_jobs():
    figures = figures_of(FOUR)
    assert figures.completion is not None
    assert (figures.completion.count, figures.completion.mean, figures.completion.high) == (2, 1750, 2500)
    assert figures.tail_max == 2500 / 1750
    assert figures.waiting is not None
    assert figures.waiting.high == 300
    assert [row.completion_s for row in figures.rows] == [1000, 2500, None, None]
    assert [row.queued_s for row in figures.rows] == [100, 100, 300, 100]


def test_failures():
    figures = figures_of(FOUR)
    (failure,) = figures.failures
    assert (failure.category, failure.count, failure.fraction, failure.seconds) == (Category.TIME_LIMIT, 1, 1.0, 350)
    assert (failure.reason, failure.reason_count) == ("too long", 1)
    assert {one.category: one.count for one in figures.troubles} == {Category.TIME_LIMIT: 1, Category.TRANSFER: 1}


def test_sites():
    figures = figures_of(FOUR)
    b, a = figures.sites
    assert (b.site, b.attempts, b.jobs, b.succeeded, b.seconds) == ("B", 2, 2, 1, 2350)
    assert (a.site, a.attempts, a.jobs, a.succeeded, a.seconds) == ("A", 3, 3, 1, 1430)
    assert (a.wasted, b.wasted) == (400, 350)
    assert (a.compute_s, b.compute_s) == ((900,), (1900,))
    assert figures.fastest_compute == "A"
    assert figures.fastest_transfer == "A", "its median is 55 s: what stalled there does not count"


def test_a_rest_of_compute_makes_no_site_fast():
    first = stay(1, T0, 10, 900, Outcome.EVICTED, site="SLOW", kept_s=900.0)
    figures = figures_of(history(job("1.0", first, stay(2, T0 + 1000, 10, 5, site="FAST"))))
    assert [site.compute for site in figures.sites] == [None, None]


def test_times_of_a_table_are_not_compared_across_jobs():
    figures = figures_of(history(job("1.0", stay(1, 0, 10, 20)), job("1.1", stay(1, 0, 10, 20)), absolute=False))
    assert figures.makespan_s is None


def test_nothing_happened():
    figures = figures_of(history())
    assert (figures.jobs, figures.wallclock_s, figures.shares, figures.sites) == (0, 0, {}, ())
    assert (figures.success_rate, figures.useful_share, figures.completion, figures.gpu_s) == (None,) * 4


# Transfers


def moved(name, start, seconds, *, whole=True, size=1000, source="cache"):
    """A job of one attempt with one transfer."""
    move = Move(start, seconds, size if whole else None, source, whole)
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
    (place,) = figures_of(told).speeds
    assert place.first is not None
    assert place.later is not None
    assert (place.first.count, place.first.mean) == (2, 95)
    assert (place.later.count, place.later.mean) == (2, 15)
    assert place.later_speed is not None
    assert place.later_speed.high == 100.0
    assert place.broken == 1


def test_of_a_table_only_a_job_s_own_transfers_are_later_ones():
    again = job("2", stay(1, 0, 50, 0, Outcome.FAILED, site="A"), stay(2, 50, 7, 100, site="A"))
    arrivals = arrivals_of(history(job("1", stay(1, 0, 40, 100, site="A")), again, absolute=False))
    assert [(one.job, one.move.seconds, one.move.whole, one.later) for one in arrivals] == [
        ("1", 40, True, False),
        ("2", 50, False, False),
        ("2", 7, True, True),
    ]


def test_a_transfer_that_is_under_way_is_neither_whole_nor_broken():
    assert arrivals_of(history(job("1", stay(1, T0, 50, 0, Outcome.RUNNING), outcome=Outcome.RUNNING))) == []


# Quantiles


@pytest.mark.parametrize("values", [[3.0], [1.0, 2.0], [5.0, 1.0, 9.0, 2.0], list(map(float, range(79)))])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.95, 1.0])
def test_quantiles_are_those_of_numpy(values, share):
    assert quantile(sorted(values), share) == pytest.approx(numpy.quantile(values, share))


def test_a_spread():
    spread = spread_of([4.0, 1.0, 7.0])
    assert spread is not None
    assert (spread.count, spread.mean, spread.median, spread.low, spread.high) == (3, 4, 4, 1, 7)
    assert spread.deviation == pytest.approx(numpy.std([4, 1, 7], ddof=1))
    assert spread_of([]) is None
