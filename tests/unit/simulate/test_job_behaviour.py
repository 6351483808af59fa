"""What a stay is like: of a program under HTCondor alone, and of packtrain's agent, when the same happens to both."""

from __future__ import annotations

import pytest

from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.history import Outcome, Phase
from packtrain.simulate.empirical import EmpiricalDistribution
from packtrain.simulate.pool_model import DATA, NODE, PROGRAM, Fault, OutageModel
from packtrain.simulate.scenarios import SCENARIOS
from packtrain.simulate.simulate_run import simulate_run
from tests.support.pool_models import HOUR_S, make_model, make_site

TWO = EmpiricalDistribution.from_values([7200.0])


def played(name, made, jobs=4):
    return simulate_run(made, SCENARIOS[name], jobs, 7)


def outcomes(history):
    return [job.outcome for job in history.jobs]


def test_where_nothing_happens_both_take_the_same():
    plain, ours = (compute_stats(played(name, make_model())) for name in ("plain", "packtrain"))
    assert plain.useful_share == 1.0
    assert ours.useful_share == pytest.approx(1 - 2 / (HOUR_S + 602)), "but for the probe"


def test_a_cache_that_sends_nothing_costs_one_of_them_hours_and_the_other_seconds():
    made = make_model(make_site(stall_probability=1.0, stall_s=TWO), make_site("Bob"))
    plain = played("plain", made)
    stalled = [a for a in plain.executions() if a.site == "Ada"]
    assert stalled and all([m.complete for m in a.input_transfers] == [False, False, True] for a in stalled)
    assert all(a.seconds_in(Phase.TRANSFER_IN) == 2 * 3600 + 600 for a in stalled)
    ours = played("packtrain", made)
    assert max(a.seconds_in(Phase.TRANSFER_IN) for a in ours.executions()) == 605


def test_a_404_is_the_end_of_one_and_a_short_wait_for_the_other():
    made = make_model(
        outages=OutageModel(1.0, EmpiricalDistribution.from_values([9.0]), EmpiricalDistribution.from_values([90.0]))
    )
    assert outcomes(played("plain", made)) == [Outcome.HELD] * 4
    assert outcomes(played("packtrain", made)) == [Outcome.SUCCEEDED] * 4


def test_a_404_that_outlasts_all_patience_is_tried_again_and_given_up_with_a_reason():
    made = make_model(
        outages=OutageModel(
            1.0, EmpiricalDistribution.from_values([9.0]), EmpiricalDistribution.from_values([9 * HOUR_S])
        )
    )
    history = played("packtrain", made)
    assert outcomes(history) == [Outcome.FAILED] * 4
    assert all(len(job.executions) == 3 and "404" in job.reason for job in history.jobs)


def test_a_machine_without_network_is_seen_by_the_probe_and_left():
    made = make_model(
        make_site(
            "Ada", 2, faults=(Fault(NODE, 1.0, EmpiricalDistribution.from_values([900.0]), "network unreachable"),)
        ),
        make_site("Bob", 8),
    )
    assert Outcome.WRONG_OUTPUT in outcomes(played("plain", made))
    history = played("packtrain", made)
    assert outcomes(history) == [Outcome.SUCCEEDED] * 4
    assert all(a.duration_s < 10 for a in history.executions() if a.site == "Ada")


def test_damaged_data_are_fetched_again_in_part():
    made = make_model(
        make_site(faults=(Fault(DATA, 1.0, EmpiricalDistribution.from_values([30.0]), "not a tar file"),))
    )
    assert outcomes(played("plain", made)) == [Outcome.WRONG_OUTPUT] * 4
    history = played("packtrain", made)
    assert outcomes(history) == [Outcome.SUCCEEDED] * 4
    assert {a.seconds_in(Phase.TRANSFER_IN) for a in history.executions()} == {612.0}


def test_a_mistake_of_the_program_is_nobodys_to_mend():
    made = make_model(
        *(
            make_site(name, 2, faults=(Fault(PROGRAM, 1.0, EmpiricalDistribution.from_values([60.0]), "exit 1"),))
            for name in ("Ada", "Bob")
        )
    )
    history = played("packtrain", made, jobs=20)
    assert set(outcomes(history)) == {Outcome.FAILED}
    assert sum(len(job.executions) for job in history.jobs) < 20, "the same everywhere: the rest is not started"


def test_the_time_limit_is_the_end_of_one_and_the_other_goes_on():
    made = make_model(make_site(compute_s=EmpiricalDistribution.from_values([5 * HOUR_S])), time_limit_s=2 * HOUR_S)
    assert outcomes(played("plain", made)) == [Outcome.TIME_LIMIT] * 4
    history = played("packtrain", made)
    assert outcomes(history) == [Outcome.SUCCEEDED] * 4
    assert {len(job.executions) for job in history.jobs} == {3}
    figures = compute_stats(history)
    assert figures.time_use_s[TimeUse.USEFUL_COMPUTE] == pytest.approx(4 * 5 * HOUR_S), "nothing is computed twice"
    assert outcomes(played("converted", made)) == [Outcome.TIME_LIMIT] * 4


def test_an_eviction_costs_what_was_not_saved():
    made = make_model(make_site(compute_s=EmpiricalDistribution.from_values([10 * HOUR_S]), evictions=0.2 / HOUR_S))
    plain, ours = (compute_stats(played(name, made, jobs=10)) for name in ("plain", "packtrain"))
    assert plain.time_use_s[TimeUse.LOST_TO_EVICTION] > 10 * ours.time_use_s.get(TimeUse.LOST_TO_EVICTION, 0.0)
    assert all(row.time_use_s[TimeUse.USEFUL_COMPUTE] == pytest.approx(10 * HOUR_S) for row in ours.job_summaries)


def test_one_that_is_late_goes_on_elsewhere():
    made = make_model(
        make_site("Slow", 2, compute_s=EmpiricalDistribution.from_values([30 * HOUR_S])),
        make_site("Quick", 18, compute=EmpiricalDistribution.from_values([3 * HOUR_S])),
    )
    history = played("packtrain", made, jobs=18)
    moved = [job for job in history.jobs if len(job.executions) > 1]
    assert moved and all([a.site for a in job.executions] == ["Slow", "Quick"] for job in moved)
    assert compute_stats(history).max_over_median < 2


def test_a_full_cache_lets_transfers_wait():
    made = make_model(make_site(slots=4, max_streams=1))
    waits = sorted(a.seconds_in(Phase.TRANSFER_IN) for a in played("packtrain", made).executions())
    assert waits == pytest.approx([600, 1200, 1800, 2400], abs=1)
