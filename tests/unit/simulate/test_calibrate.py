"""What a pool is like, from what happened in it; and that what is played there is like what happened."""

from __future__ import annotations

import pytest

from packtrain.errors import UsageError
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
from packtrain.report.readers.files import read_history
from packtrain.simulate.calibrate import calibrate
from packtrain.simulate.empirical import ZERO, EmpiricalDistribution
from packtrain.simulate.pool_model import DATA, NODE, Fault, OutageModel
from packtrain.simulate.scenario_result import simulate_runs, summarize_runs
from packtrain.simulate.scenarios import SCENARIOS
from packtrain.simulate.simulate_run import simulate_run
from tests.support.pool_models import HOUR_S, WEEK_TABLE, make_model, make_site


@pytest.fixture(scope="module")
def week():
    return calibrate(read_history([str(WEEK_TABLE)]))


def test_what_the_published_week_tells(week):
    sites = {one.name: one for one in week.sites}
    assert set(sites) == {"CHTC-Spark-CE1", "GP-ARGO-ksu-backfill", "PDX-Coeus-CE1"}
    assert week.time_limit_s == 72024 and not week.has_shared_caches
    assert week.outages.n_transfers == EmpiricalDistribution.from_values([1, 15]), "one 404, and fifteen in a row"
    assert sites["PDX-Coeus-CE1"].compute_s.mean == pytest.approx(14824, rel=0.01)
    assert sites["GP-ARGO-ksu-backfill"].compute_s.edges[-1] > week.time_limit_s, "two reached the limit"
    assert {fault.kind for one in week.sites for fault in one.faults} == {NODE, DATA}
    assert sum(one.evictions > 0 for one in week.sites) == 2


def test_plain_is_like_the_published_week(week):
    result = summarize_runs(SCENARIOS["plain"], simulate_runs(week, SCENARIOS["plain"], 100, range(50))).metrics
    assert result["success_percent"].mean == pytest.approx(79, abs=6)
    assert result["useful_fraction"].mean == pytest.approx(0.50, abs=0.08)
    assert result["completion_mean_s"].mean == pytest.approx(8.6 * HOUR_S, rel=0.2)
    assert result["completion_median_s"].mean == pytest.approx(4.9 * HOUR_S, rel=0.2)


@pytest.mark.slow
def test_what_packtrain_would_have_made_of_it(week):
    result = summarize_runs(SCENARIOS["packtrain"], simulate_runs(week, SCENARIOS["packtrain"], 100, range(2))).metrics
    assert result["success_percent"].mean == 100
    assert result["useful_fraction"].mean >= 0.95
    assert result["p95_over_median"].mean <= 1.5


def test_what_is_played_is_like_what_it_is_played_from():
    """Calibrated from a simulated week, the pool is as it was."""
    made = make_model(
        make_site(
            "Ada",
            30,
            stall_probability=0.3,
            stall_s=EmpiricalDistribution.from_values([7200.0, 14400.0]),
            evictions_per_s=0.02 / HOUR_S,
        ),
        make_site(
            "Bob",
            20,
            compute_s=EmpiricalDistribution.from_values([2 * HOUR_S, 3 * HOUR_S]),
            faults=(Fault(NODE, 0.1, EmpiricalDistribution.from_values([60.0])),),
            opens=EmpiricalDistribution((0.0, 2 * HOUR_S)),
        ),
        bursts=OutageModel(0.01, EmpiricalDistribution.from_values([4.0]), EmpiricalDistribution.from_values([90.0])),
        match=EmpiricalDistribution.from_values([30.0]),
    )
    found = calibrate(simulate_run(made, SCENARIOS["plain"], 2000, 1))
    ada, bob = found.sites
    assert (ada.n_slots, bob.n_slots) == (30, 20)
    assert ada.slots_open_at.mean < 30 and bob.slots_open_at.mean == pytest.approx(HOUR_S, rel=0.1), (
        "they came within two hours"
    )
    assert found.match_delay_s.mean == pytest.approx(30, rel=0.1), "however long the queue"
    assert ada.stall_probability == pytest.approx(0.3, abs=0.05) and bob.stall_probability == 0
    assert ada.evictions_per_s * HOUR_S == pytest.approx(0.02, rel=0.4)
    assert ada.compute_s.mean == pytest.approx(HOUR_S, rel=0.01)
    assert bob.compute_s.mean == pytest.approx(2.5 * HOUR_S, rel=0.05)
    assert sum(fault.probability for fault in bob.faults) == pytest.approx(0.1, abs=0.03)
    assert found.transfer_timeout_s == pytest.approx(3600)
    assert found.outages.n_transfers.mean == pytest.approx(4, rel=0.3)


def stay(*pieces, outcome=Outcome.SUCCEEDED, site="Ada", at=0.0, **more):
    spans = []
    for phase, seconds in pieces:
        spans.append(PhaseSpan(phase, at, at + seconds))
        at += seconds
    return ExecutionRecord(1, tuple(spans), outcome, site, **more)


def history(*jobs):
    return JobHistory("a log", "log", jobs)


def test_a_stall_that_was_held_and_released_is_no_404():
    """As today's HTCondor has it: the plugin's life is over, the job is held (13/62) and let go again."""
    stalled = stay((Phase.TRANSFER_IN, 3600.0), outcome=Outcome.HELD, category=FailureCategory.TRANSFER)
    came = stay((Phase.TRANSFER_IN, 600.0), (Phase.EXECUTE, HOUR_S), at=4000.0)
    refused = stay((Phase.TRANSFER_IN, 1.0), outcome=Outcome.HELD, category=FailureCategory.TRANSFER, at=9000.0)
    held = JobRecord("2", (refused,), Outcome.HELD, category=FailureCategory.TRANSFER)
    found = calibrate(history(JobRecord("1", (stalled, came), Outcome.SUCCEEDED), held))
    (ada,) = found.sites
    assert (ada.stall_probability, ada.stall_s, found.transfer_timeout_s) == (
        1.0,
        EmpiricalDistribution.from_values([3600.0]),
        3600.0,
    )
    assert (
        found.outages.n_transfers == EmpiricalDistribution.from_values([1]) and found.outages.start_probability == 0.5
    )


def test_a_cache_is_warm_for_all_where_times_tell():
    moves = [
        stay((Phase.TRANSFER_IN, took), (Phase.EXECUTE, HOUR_S), at=at)
        for at, took in ((0, 900), (10, 950), (2000, 100))
    ]
    jobs = [JobRecord(str(n), (one,), Outcome.SUCCEEDED) for n, one in enumerate(moves)]
    (ada,) = calibrate(history(*jobs)).sites
    assert (ada.cold_transfer_s, ada.warm_transfer_s, ada.n_slots) == (
        EmpiricalDistribution.from_values([900, 950]),
        EmpiricalDistribution.from_values([100]),
        3,
    )


def waited(number, starts, submitted=0.0):
    """A job that was submitted then and got its slot at `starts`."""
    one = stay((Phase.EXECUTE, HOUR_S), at=starts)
    waits = (PhaseSpan(Phase.QUEUED, submitted, starts),)
    return JobRecord(str(number), (one,), Outcome.SUCCEEDED, submitted, starts + HOUR_S, waits)


def test_slots_that_come_up_over_time():
    """Their first users waited for them; those that followed tell what it takes to get one that is there."""
    first = [waited(n, starts) for n, starts in enumerate((10.0, 500.0, 1000.0))]
    later = [waited(n, at + 10.0, at) for n, at in ((7, HOUR_S + 30.0), (8, HOUR_S + 600.0), (9, HOUR_S + 1100.0))]
    found = calibrate(history(*first, *later))
    (ada,) = found.sites
    assert (ada.n_slots, found.match_delay_s) == (3, EmpiricalDistribution.from_values([10.0, 10.0]))
    assert ada.slots_open_at == EmpiricalDistribution.from_values([0.0, 490.0, 990.0])


def test_slots_whose_first_users_came_late_were_there_before():
    jobs = [waited(n, at + 10.0, at) for n, at in enumerate((0.0, 500.0, 1000.0))]
    (ada,) = calibrate(history(*jobs)).sites
    assert (ada.n_slots, ada.slots_open_at) == (3, ZERO)


def test_transfers_that_were_begun_again_within_a_stay():
    moves = (InputTransfer(0.0, 3600.0, complete=False), InputTransfer(3600.0, 600.0))
    one = stay((Phase.TRANSFER_IN, 4200.0), (Phase.EXECUTE, HOUR_S), input_transfers=moves)
    (ada,) = calibrate(history(JobRecord("1", (one,), Outcome.SUCCEEDED))).sites
    assert (ada.stall_probability, ada.stall_s, ada.warm_transfer_s) == (
        1.0,
        EmpiricalDistribution.from_values([3600.0]),
        EmpiricalDistribution.from_values([600.0]),
    )


@pytest.mark.parametrize("jobs", [(), (JobRecord("1", (), Outcome.RUNNING),)], ids=["none", "only one that waits"])
def test_where_there_is_nothing_to_learn_from(jobs):
    with pytest.raises(UsageError, match="nothing to calibrate from"):
        calibrate(history(*jobs))
