"""Sessions of a plain program and of packtrain's agent under the same faults."""

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

TWO_HOURS = EmpiricalDistribution.from_values([7200.0])


def simulated(name, model, jobs=4):
    return simulate_run(model, SCENARIOS[name], jobs, 7)


def outcomes(history):
    return [job.outcome for job in history.jobs]


def test_without_faults():
    plain, packtrain = (compute_stats(simulated(name, make_model())) for name in ("plain", "packtrain"))
    assert plain.useful_share == 1.0
    assert packtrain.useful_share == pytest.approx(1 - 2 / (HOUR_S + 602)), "the probe takes 2 s"


def test_stalled_cache():
    """A plain program waits for two transfer timeouts; the agent switches to another cache within 5 s."""
    model = make_model(make_site(stall_probability=1.0, stall_s=TWO_HOURS), make_site("Bob"))
    plain = simulated("plain", model)
    stalled = [execution for execution in plain.executions() if execution.site == "Ada"]
    assert stalled and all(
        [transfer.complete for transfer in execution.input_transfers] == [False, False, True] for execution in stalled
    )
    assert all(execution.seconds_in(Phase.TRANSFER_IN) == 2 * 3600 + 600 for execution in stalled)
    packtrain = simulated("packtrain", model)
    assert max(execution.seconds_in(Phase.TRANSFER_IN) for execution in packtrain.executions()) == 605


def test_short_404_outage():
    """A plain program is held; the agent retries until the outage ends."""
    model = make_model(
        outages=OutageModel(1.0, EmpiricalDistribution.from_values([9.0]), EmpiricalDistribution.from_values([90.0]))
    )
    assert outcomes(simulated("plain", model)) == [Outcome.HELD] * 4
    assert outcomes(simulated("packtrain", model)) == [Outcome.SUCCEEDED] * 4


def test_long_404_outage():
    """An outage longer than the retry timeout uses up all attempts."""
    model = make_model(
        outages=OutageModel(
            1.0, EmpiricalDistribution.from_values([9.0]), EmpiricalDistribution.from_values([9 * HOUR_S])
        )
    )
    history = simulated("packtrain", model)
    assert outcomes(history) == [Outcome.FAILED] * 4
    assert all(len(job.executions) == 3 and "404" in job.reason for job in history.jobs)


def test_node_without_network():
    model = make_model(
        make_site(
            "Ada", 2, faults=(Fault(NODE, 1.0, EmpiricalDistribution.from_values([900.0]), "network unreachable"),)
        ),
        make_site("Bob", 8),
    )
    assert Outcome.WRONG_OUTPUT in outcomes(simulated("plain", model))
    history = simulated("packtrain", model)
    assert outcomes(history) == [Outcome.SUCCEEDED] * 4
    assert all(execution.duration_s < 10 for execution in history.executions() if execution.site == "Ada")


def test_damaged_data():
    model = make_model(
        make_site(faults=(Fault(DATA, 1.0, EmpiricalDistribution.from_values([30.0]), "not a tar file"),))
    )
    assert outcomes(simulated("plain", model)) == [Outcome.WRONG_OUTPUT] * 4
    history = simulated("packtrain", model)
    assert outcomes(history) == [Outcome.SUCCEEDED] * 4
    assert {execution.seconds_in(Phase.TRANSFER_IN) for execution in history.executions()} == {612.0}


def test_program_fault():
    model = make_model(
        *(
            make_site(name, 2, faults=(Fault(PROGRAM, 1.0, EmpiricalDistribution.from_values([60.0]), "exit 1"),))
            for name in ("Ada", "Bob")
        )
    )
    history = simulated("packtrain", model, jobs=20)
    assert set(outcomes(history)) == {Outcome.FAILED}
    assert sum(len(job.executions) for job in history.jobs) < 20, "the same failure at both sites stops the run"


def test_time_limit():
    """Only a job with checkpoints exceeds the time limit in total."""
    model = make_model(make_site(compute_s=EmpiricalDistribution.from_values([5 * HOUR_S])), time_limit_s=2 * HOUR_S)
    assert outcomes(simulated("plain", model)) == [Outcome.TIME_LIMIT] * 4
    history = simulated("packtrain", model)
    assert outcomes(history) == [Outcome.SUCCEEDED] * 4
    assert {len(job.executions) for job in history.jobs} == {3}
    stats = compute_stats(history)
    assert stats.time_use_s[TimeUse.USEFUL_COMPUTE] == pytest.approx(4 * 5 * HOUR_S), "nothing is computed twice"
    assert outcomes(simulated("converted", model)) == [Outcome.TIME_LIMIT] * 4


def test_eviction():
    model = make_model(
        make_site(compute_s=EmpiricalDistribution.from_values([10 * HOUR_S]), evictions_per_s=0.2 / HOUR_S)
    )
    plain, packtrain = (compute_stats(simulated(name, model, jobs=10)) for name in ("plain", "packtrain"))
    assert plain.time_use_s[TimeUse.LOST_TO_EVICTION] > 10 * packtrain.time_use_s.get(TimeUse.LOST_TO_EVICTION, 0.0)
    assert all(
        summary.time_use_s[TimeUse.USEFUL_COMPUTE] == pytest.approx(10 * HOUR_S) for summary in packtrain.job_summaries
    )


def test_straggler_resumes_elsewhere():
    model = make_model(
        make_site("Slow", 2, compute_s=EmpiricalDistribution.from_values([30 * HOUR_S])),
        make_site("Quick", 18, compute_s=EmpiricalDistribution.from_values([3 * HOUR_S])),
    )
    history = simulated("packtrain", model, jobs=18)
    moved = [job for job in history.jobs if len(job.executions) > 1]
    assert moved and all([execution.site for execution in job.executions] == ["Slow", "Quick"] for job in moved)
    assert compute_stats(history).max_over_median < 2


def test_full_cache():
    model = make_model(make_site(slots=4, max_streams=1))
    waits = sorted(execution.seconds_in(Phase.TRANSFER_IN) for execution in simulated("packtrain", model).executions())
    assert waits == pytest.approx([600, 1200, 1800, 2400], abs=1)
