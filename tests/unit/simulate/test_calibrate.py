"""Calibration of a pool model from a history, and simulated runs of the calibrated model."""

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


def test_published_week(week):
    sites = {site.name: site for site in week.sites}
    assert set(sites) == {"CHTC-Spark-CE1", "GP-ARGO-ksu-backfill", "PDX-Coeus-CE1"}
    assert week.time_limit_s == 72024 and not week.has_shared_caches
    assert week.outages.n_transfers == EmpiricalDistribution.from_values([1, 15]), "outages with 1 and 15 transfers"
    assert sites["PDX-Coeus-CE1"].compute_s.mean == pytest.approx(14824, rel=0.01)
    assert sites["GP-ARGO-ksu-backfill"].compute_s.edges[-1] > week.time_limit_s, "two jobs reached the limit"
    assert {fault.kind for site in week.sites for fault in site.faults} == {NODE, DATA}
    assert sum(site.evictions_per_s > 0 for site in week.sites) == 2


def test_plain_reproduces_published_week(week):
    result = summarize_runs(SCENARIOS["plain"], simulate_runs(week, SCENARIOS["plain"], 100, range(50))).metrics
    assert result["success_percent"].mean == pytest.approx(79, abs=6)
    assert result["useful_fraction"].mean == pytest.approx(0.50, abs=0.08)
    assert result["completion_mean_s"].mean == pytest.approx(8.6 * HOUR_S, rel=0.2)
    assert result["completion_median_s"].mean == pytest.approx(4.9 * HOUR_S, rel=0.2)


@pytest.mark.slow
def test_packtrain_on_published_week(week):
    result = summarize_runs(SCENARIOS["packtrain"], simulate_runs(week, SCENARIOS["packtrain"], 100, range(2))).metrics
    assert result["success_percent"].mean == 100
    assert result["useful_fraction"].mean >= 0.95
    assert result["p95_over_median"].mean <= 1.5


def test_calibration_recovers_model():
    """Calibration from a simulated run recovers the parameters of its model."""
    model = make_model(
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
            slots_open_at=EmpiricalDistribution((0.0, 2 * HOUR_S)),
        ),
        outages=OutageModel(0.01, EmpiricalDistribution.from_values([4.0]), EmpiricalDistribution.from_values([90.0])),
        match_delay_s=EmpiricalDistribution.from_values([30.0]),
    )
    calibrated = calibrate(simulate_run(model, SCENARIOS["plain"], 2000, 1))
    ada, bob = calibrated.sites
    assert (ada.n_slots, bob.n_slots) == (30, 20)
    assert ada.slots_open_at.mean < 30 and bob.slots_open_at.mean == pytest.approx(HOUR_S, rel=0.1), (
        "Bob's slots open within two hours"
    )
    assert calibrated.match_delay_s.mean == pytest.approx(30, rel=0.1), (
        "time in the queue for a busy slot does not count"
    )
    assert ada.stall_probability == pytest.approx(0.3, abs=0.05) and bob.stall_probability == 0
    assert ada.evictions_per_s * HOUR_S == pytest.approx(0.02, rel=0.4)
    assert ada.compute_s.mean == pytest.approx(HOUR_S, rel=0.01)
    assert bob.compute_s.mean == pytest.approx(2.5 * HOUR_S, rel=0.05)
    assert sum(fault.probability for fault in bob.faults) == pytest.approx(0.1, abs=0.03)
    assert calibrated.transfer_timeout_s == pytest.approx(3600)
    assert calibrated.outages.n_transfers.mean == pytest.approx(4, rel=0.3)


def execution(*phases, outcome=Outcome.SUCCEEDED, site="Ada", start=0.0, **fields):
    spans = []
    for phase, duration_s in phases:
        spans.append(PhaseSpan(phase, start, start + duration_s))
        start += duration_s
    return ExecutionRecord(1, tuple(spans), outcome, site, **fields)


def history(*jobs):
    return JobHistory("a log", "log", jobs)


def test_released_stall_is_no_404():
    """Current HTCondor stops the transfer plugin after its timeout, holds the job (13/62) and releases it."""
    stalled = execution((Phase.TRANSFER_IN, 3600.0), outcome=Outcome.HELD, category=FailureCategory.TRANSFER)
    completed = execution((Phase.TRANSFER_IN, 600.0), (Phase.EXECUTE, HOUR_S), start=4000.0)
    not_found = execution(
        (Phase.TRANSFER_IN, 1.0), outcome=Outcome.HELD, category=FailureCategory.TRANSFER, start=9000.0
    )
    held = JobRecord("2", (not_found,), Outcome.HELD, category=FailureCategory.TRANSFER)
    calibrated = calibrate(history(JobRecord("1", (stalled, completed), Outcome.SUCCEEDED), held))
    (ada,) = calibrated.sites
    assert (ada.stall_probability, ada.stall_s, calibrated.transfer_timeout_s) == (
        1.0,
        EmpiricalDistribution.from_values([3600.0]),
        3600.0,
    )
    assert (
        calibrated.outages.n_transfers == EmpiricalDistribution.from_values([1])
        and calibrated.outages.start_probability == 0.5
    )


def test_warm_and_cold_transfers():
    transfers = [
        execution((Phase.TRANSFER_IN, transfer_s), (Phase.EXECUTE, HOUR_S), start=start)
        for start, transfer_s in ((0, 900), (10, 950), (2000, 100))
    ]
    jobs = [JobRecord(str(n), (run,), Outcome.SUCCEEDED) for n, run in enumerate(transfers)]
    (ada,) = calibrate(history(*jobs)).sites
    assert (ada.cold_transfer_s, ada.warm_transfer_s, ada.n_slots) == (
        EmpiricalDistribution.from_values([900, 950]),
        EmpiricalDistribution.from_values([100]),
        3,
    )


def queued_job(number, started_at, submitted_at=0.0):
    """A job that was matched to a slot at `started_at`."""
    run = execution((Phase.EXECUTE, HOUR_S), start=started_at)
    waits = (PhaseSpan(Phase.QUEUED, submitted_at, started_at),)
    return JobRecord(str(number), (run,), Outcome.SUCCEEDED, submitted_at, started_at + HOUR_S, waits)


def test_slots_that_open_over_time():
    """The first job on a slot waits until it opens; later jobs show the match delay of an open slot."""
    first = [queued_job(n, started_at) for n, started_at in enumerate((10.0, 500.0, 1000.0))]
    later = [
        queued_job(n, start + 10.0, start)
        for n, start in ((7, HOUR_S + 30.0), (8, HOUR_S + 600.0), (9, HOUR_S + 1100.0))
    ]
    calibrated = calibrate(history(*first, *later))
    (ada,) = calibrated.sites
    assert (ada.n_slots, calibrated.match_delay_s) == (3, EmpiricalDistribution.from_values([10.0, 10.0]))
    assert ada.slots_open_at == EmpiricalDistribution.from_values([0.0, 490.0, 990.0])


def test_late_first_jobs_do_not_delay_slots():
    jobs = [queued_job(n, start + 10.0, start) for n, start in enumerate((0.0, 500.0, 1000.0))]
    (ada,) = calibrate(history(*jobs)).sites
    assert (ada.n_slots, ada.slots_open_at) == (3, ZERO)


def test_restarted_transfers():
    transfers = (InputTransfer(0.0, 3600.0, complete=False), InputTransfer(3600.0, 600.0))
    run = execution((Phase.TRANSFER_IN, 4200.0), (Phase.EXECUTE, HOUR_S), input_transfers=transfers)
    (ada,) = calibrate(history(JobRecord("1", (run,), Outcome.SUCCEEDED))).sites
    assert (ada.stall_probability, ada.stall_s, ada.warm_transfer_s) == (
        1.0,
        EmpiricalDistribution.from_values([3600.0]),
        EmpiricalDistribution.from_values([600.0]),
    )


@pytest.mark.parametrize("jobs", [(), (JobRecord("1", (), Outcome.RUNNING),)], ids=["no jobs", "only a queued job"])
def test_nothing_to_calibrate_from(jobs):
    with pytest.raises(UsageError, match="nothing to calibrate from"):
        calibrate(history(*jobs))
