"""What a stay is like: of a program under HTCondor alone, and of packtrain's agent, when the same happens to both."""

from __future__ import annotations

import pytest

from packtrain.report.analysis.statistics import figures_of
from packtrain.report.analysis.time_accounting import Share
from packtrain.report.history import Outcome, Phase
from packtrain.simulate.empirical import Fitted
from packtrain.simulate.pool_model import DATA, MACHINE, PROGRAM, Bursts, Fault
from packtrain.simulate.scenarios import POLICIES
from packtrain.simulate.simulate_run import play
from tests.support.pool_models import HOUR, site, world

TWO = Fitted.to([7200.0])


def played(name, made, jobs=4):
    return play(made, POLICIES[name], jobs, 7)


def outcomes(history):
    return [job.outcome for job in history.jobs]


def test_where_nothing_happens_both_take_the_same():
    plain, ours = (figures_of(played(name, world())) for name in ("plain", "packtrain"))
    assert plain.useful_share == 1.0
    assert ours.useful_share == pytest.approx(1 - 2 / (HOUR + 602)), "but for the probe"


def test_a_cache_that_sends_nothing_costs_one_of_them_hours_and_the_other_seconds():
    made = world(site(stalls=1.0, episode=TWO), site("Bob"))
    plain = played("plain", made)
    stalled = [a for a in plain.attempts() if a.site == "Ada"]
    assert stalled and all([m.whole for m in a.moves] == [False, False, True] for a in stalled)
    assert all(a.of(Phase.TRANSFER_IN) == 2 * 3600 + 600 for a in stalled)
    ours = played("packtrain", made)
    assert max(a.of(Phase.TRANSFER_IN) for a in ours.attempts()) == 605


def test_a_404_is_the_end_of_one_and_a_short_wait_for_the_other():
    made = world(bursts=Bursts(1.0, Fitted.to([9.0]), Fitted.to([90.0])))
    assert outcomes(played("plain", made)) == [Outcome.HELD] * 4
    assert outcomes(played("packtrain", made)) == [Outcome.SUCCEEDED] * 4


def test_a_404_that_outlasts_all_patience_is_tried_again_and_given_up_with_a_reason():
    made = world(bursts=Bursts(1.0, Fitted.to([9.0]), Fitted.to([9 * HOUR])))
    history = played("packtrain", made)
    assert outcomes(history) == [Outcome.FAILED] * 4
    assert all(len(job.attempts) == 3 and "404" in job.reason for job in history.jobs)


def test_a_machine_without_network_is_seen_by_the_probe_and_left():
    made = world(
        site("Ada", 2, faults=(Fault(MACHINE, 1.0, Fitted.to([900.0]), "network unreachable"),)), site("Bob", 8)
    )
    assert Outcome.WRONG_OUTPUT in outcomes(played("plain", made))
    history = played("packtrain", made)
    assert outcomes(history) == [Outcome.SUCCEEDED] * 4
    assert all(a.seconds < 10 for a in history.attempts() if a.site == "Ada")


def test_damaged_data_are_fetched_again_in_part():
    made = world(site(faults=(Fault(DATA, 1.0, Fitted.to([30.0]), "not a tar file"),)))
    assert outcomes(played("plain", made)) == [Outcome.WRONG_OUTPUT] * 4
    history = played("packtrain", made)
    assert outcomes(history) == [Outcome.SUCCEEDED] * 4
    assert {a.of(Phase.TRANSFER_IN) for a in history.attempts()} == {612.0}


def test_a_mistake_of_the_program_is_nobodys_to_mend():
    made = world(
        *(site(name, 2, faults=(Fault(PROGRAM, 1.0, Fitted.to([60.0]), "exit 1"),)) for name in ("Ada", "Bob"))
    )
    history = played("packtrain", made, jobs=20)
    assert set(outcomes(history)) == {Outcome.FAILED}
    assert sum(len(job.attempts) for job in history.jobs) < 20, "the same everywhere: the rest is not started"


def test_the_time_limit_is_the_end_of_one_and_the_other_goes_on():
    made = world(site(compute=Fitted.to([5 * HOUR])), limit_s=2 * HOUR)
    assert outcomes(played("plain", made)) == [Outcome.TIME_LIMIT] * 4
    history = played("packtrain", made)
    assert outcomes(history) == [Outcome.SUCCEEDED] * 4
    assert {len(job.attempts) for job in history.jobs} == {3}
    figures = figures_of(history)
    assert figures.shares[Share.COMPUTE] == pytest.approx(4 * 5 * HOUR), "nothing is computed twice"
    assert outcomes(played("adopted", made)) == [Outcome.TIME_LIMIT] * 4


def test_an_eviction_costs_what_was_not_saved():
    made = world(site(compute=Fitted.to([10 * HOUR]), evictions=0.2 / HOUR))
    plain, ours = (figures_of(played(name, made, jobs=10)) for name in ("plain", "packtrain"))
    assert plain.shares[Share.EVICTION] > 10 * ours.shares.get(Share.EVICTION, 0.0)
    assert all(row.shares[Share.COMPUTE] == pytest.approx(10 * HOUR) for row in ours.rows)


def test_one_that_is_late_goes_on_elsewhere():
    made = world(site("Slow", 2, compute=Fitted.to([30 * HOUR])), site("Quick", 18, compute=Fitted.to([3 * HOUR])))
    history = played("packtrain", made, jobs=18)
    moved = [job for job in history.jobs if len(job.attempts) > 1]
    assert moved and all([a.site for a in job.attempts] == ["Slow", "Quick"] for job in moved)
    assert figures_of(history).tail_max < 2


def test_a_full_cache_lets_transfers_wait():
    made = world(site(slots=4, streams=1))
    waits = sorted(a.of(Phase.TRANSFER_IN) for a in played("packtrain", made).attempts())
    assert waits == pytest.approx([600, 1200, 1800, 2400], abs=1)
