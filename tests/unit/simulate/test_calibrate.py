"""What a pool is like, from what happened in it; and that what is played there is like what happened."""

from __future__ import annotations

import pytest

from packtrain.errors import UsageError
from packtrain.report.history import Attempt, Category, History, Job, Move, Outcome, Phase, Span
from packtrain.report.readers.files import read
from packtrain.simulate.calibrate import calibrate
from packtrain.simulate.empirical import NOTHING, Fitted
from packtrain.simulate.pool_model import DATA, MACHINE, Bursts, Fault
from packtrain.simulate.scenario_result import results_of, runs_of
from packtrain.simulate.scenarios import POLICIES
from packtrain.simulate.simulate_run import play
from tests.support.pool_models import HOUR, WEEK, site, world


@pytest.fixture(scope="module")
def week():
    return calibrate(read([str(WEEK)]))


def test_what_the_published_week_tells(week):
    sites = {one.name: one for one in week.sites}
    assert set(sites) == {"CHTC-Spark-CE1", "GP-ARGO-ksu-backfill", "PDX-Coeus-CE1"}
    assert week.limit_s == 72024 and not week.shares_warmth
    assert week.bursts.victims == Fitted.to([1, 15]), "one 404, and fifteen in a row"
    assert sites["PDX-Coeus-CE1"].compute.mean == pytest.approx(14824, rel=0.01)
    assert sites["GP-ARGO-ksu-backfill"].compute.edges[-1] > week.limit_s, "two reached the limit"
    assert {fault.kind for one in week.sites for fault in one.faults} == {MACHINE, DATA}
    assert sum(one.evictions > 0 for one in week.sites) == 2


def test_plain_is_like_the_published_week(week):
    result = results_of(POLICIES["plain"], runs_of(week, POLICIES["plain"], 100, range(50))).figures
    assert result["success"].mean == pytest.approx(79, abs=6)
    assert result["useful_fraction"].mean == pytest.approx(0.50, abs=0.08)
    assert result["completion_mean_s"].mean == pytest.approx(8.6 * HOUR, rel=0.2)
    assert result["completion_median_s"].mean == pytest.approx(4.9 * HOUR, rel=0.2)


@pytest.mark.slow
def test_what_packtrain_would_have_made_of_it(week):
    result = results_of(POLICIES["packtrain"], runs_of(week, POLICIES["packtrain"], 100, range(2))).figures
    assert result["success"].mean == 100
    assert result["useful_fraction"].mean >= 0.95
    assert result["p95_over_median"].mean <= 1.5


def test_what_is_played_is_like_what_it_is_played_from():
    """Calibrated from a simulated week, the pool is as it was."""
    made = world(
        site("Ada", 30, stalls=0.3, episode=Fitted.to([7200.0, 14400.0]), evictions=0.02 / HOUR),
        site(
            "Bob",
            20,
            compute=Fitted.to([2 * HOUR, 3 * HOUR]),
            faults=(Fault(MACHINE, 0.1, Fitted.to([60.0])),),
            opens=Fitted((0.0, 2 * HOUR)),
        ),
        bursts=Bursts(0.01, Fitted.to([4.0]), Fitted.to([90.0])),
        match=Fitted.to([30.0]),
    )
    found = calibrate(play(made, POLICIES["plain"], 2000, 1))
    ada, bob = found.sites
    assert (ada.slots, bob.slots) == (30, 20)
    assert ada.opens.mean < 30 and bob.opens.mean == pytest.approx(HOUR, rel=0.1), "they came within two hours"
    assert found.match.mean == pytest.approx(30, rel=0.1), "however long the queue"
    assert ada.stalls == pytest.approx(0.3, abs=0.05) and bob.stalls == 0
    assert ada.evictions * HOUR == pytest.approx(0.02, rel=0.4)
    assert ada.compute.mean == pytest.approx(HOUR, rel=0.01)
    assert bob.compute.mean == pytest.approx(2.5 * HOUR, rel=0.05)
    assert sum(fault.chance for fault in bob.faults) == pytest.approx(0.1, abs=0.03)
    assert found.timer_s == pytest.approx(3600)
    assert found.bursts.victims.mean == pytest.approx(4, rel=0.3)


def stay(*pieces, outcome=Outcome.SUCCEEDED, site="Ada", at=0.0, **more):
    spans = []
    for phase, seconds in pieces:
        spans.append(Span(phase, at, at + seconds))
        at += seconds
    return Attempt(1, tuple(spans), outcome, site, **more)


def history(*jobs):
    return History("a log", "log", jobs)


def test_a_stall_that_was_held_and_released_is_no_404():
    """As today's HTCondor has it: the plugin's life is over, the job is held (13/62) and let go again."""
    stalled = stay((Phase.TRANSFER_IN, 3600.0), outcome=Outcome.HELD, category=Category.TRANSFER)
    came = stay((Phase.TRANSFER_IN, 600.0), (Phase.EXECUTE, HOUR), at=4000.0)
    refused = stay((Phase.TRANSFER_IN, 1.0), outcome=Outcome.HELD, category=Category.TRANSFER, at=9000.0)
    held = Job("2", (refused,), Outcome.HELD, category=Category.TRANSFER)
    found = calibrate(history(Job("1", (stalled, came), Outcome.SUCCEEDED), held))
    (ada,) = found.sites
    assert (ada.stalls, ada.episode, found.timer_s) == (1.0, Fitted.to([3600.0]), 3600.0)
    assert found.bursts.victims == Fitted.to([1]) and found.bursts.chance == 0.5


def test_a_cache_is_warm_for_all_where_times_tell():
    moves = [
        stay((Phase.TRANSFER_IN, took), (Phase.EXECUTE, HOUR), at=at) for at, took in ((0, 900), (10, 950), (2000, 100))
    ]
    jobs = [Job(str(n), (one,), Outcome.SUCCEEDED) for n, one in enumerate(moves)]
    (ada,) = calibrate(history(*jobs)).sites
    assert (ada.cold, ada.warm, ada.slots) == (Fitted.to([900, 950]), Fitted.to([100]), 3)


def waited(number, starts, submitted=0.0):
    """A job that was submitted then and got its slot at `starts`."""
    one = stay((Phase.EXECUTE, HOUR), at=starts)
    waits = (Span(Phase.QUEUED, submitted, starts),)
    return Job(str(number), (one,), Outcome.SUCCEEDED, submitted, starts + HOUR, waits)


def test_slots_that_come_up_over_time():
    """Their first users waited for them; those that followed tell what it takes to get one that is there."""
    first = [waited(n, starts) for n, starts in enumerate((10.0, 500.0, 1000.0))]
    later = [waited(n, at + 10.0, at) for n, at in ((7, HOUR + 30.0), (8, HOUR + 600.0), (9, HOUR + 1100.0))]
    found = calibrate(history(*first, *later))
    (ada,) = found.sites
    assert (ada.slots, found.match) == (3, Fitted.to([10.0, 10.0]))
    assert ada.opens == Fitted.to([0.0, 490.0, 990.0])


def test_slots_whose_first_users_came_late_were_there_before():
    jobs = [waited(n, at + 10.0, at) for n, at in enumerate((0.0, 500.0, 1000.0))]
    (ada,) = calibrate(history(*jobs)).sites
    assert (ada.slots, ada.opens) == (3, NOTHING)


def test_transfers_that_were_begun_again_within_a_stay():
    moves = (Move(0.0, 3600.0, whole=False), Move(3600.0, 600.0))
    one = stay((Phase.TRANSFER_IN, 4200.0), (Phase.EXECUTE, HOUR), moves=moves)
    (ada,) = calibrate(history(Job("1", (one,), Outcome.SUCCEEDED))).sites
    assert (ada.stalls, ada.episode, ada.warm) == (1.0, Fitted.to([3600.0]), Fitted.to([600.0]))


@pytest.mark.parametrize("jobs", [(), (Job("1", (), Outcome.RUNNING),)], ids=["none", "only one that waits"])
def test_where_there_is_nothing_to_learn_from(jobs):
    with pytest.raises(UsageError, match="nothing to calibrate from"):
        calibrate(history(*jobs))
