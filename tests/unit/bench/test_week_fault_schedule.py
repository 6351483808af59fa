"""What the replayed week does to its machines: drawn from the published table, the same for the same seed."""

from __future__ import annotations

import pytest
from harness.week import account, fault_schedule
from hypothesis import given
from hypothesis import strategies as st

from packtrain.report.readers.files import read_history

SITES = {"CHTC-Spark-CE1", "PDX-Coeus-CE1", "GP-ARGO-ksu-backfill"}


def in_trouble(week, machine):
    """Whether it comes up while the director is away."""
    return any(begins <= machine.opens < ends for begins, ends in week.away)


def spared(week):
    return [machine for machine in week.machines if not in_trouble(week, machine)]


def test_sixteen_machines_come_up_while_the_director_is_away():
    week = fault_schedule.draw(1)
    assert len(week.machines) == 100
    assert sum(in_trouble(week, machine) for machine in week.machines) == 16
    assert len(week.away) == 2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_published_job_is_one_machine(seed):
    rows, machines = fault_schedule.rows(), spared(fault_schedule.draw(seed, hour=3600))
    assert len(rows) == len(machines) == 84
    known = sorted(row.execute_s for row in rows if row.tells_speed)
    assert not set(known) - {machine.compute_s for machine in machines}
    stalled = sum(m.stalls_until[0] - m.opens for m in machines if m.stalls_until[0])
    assert stalled == pytest.approx(sum(row.stalls_s for row in rows))
    assert sum(len(machine.closed) for machine in machines) == 5
    assert [sum(not m.reaches_outside for m in machines), sum(m.damaged for m in machines)] == [2, 1]


def test_the_seed_decides_who_meets_what():
    assert fault_schedule.draw(7) == fault_schedule.draw(7)
    assert fault_schedule.draw(7).machines != fault_schedule.draw(8).machines


def test_an_hour_takes_as_long_as_one_says():
    short, long = fault_schedule.draw(1, hour=30), fault_schedule.draw(1, hour=60)
    assert (short.limit_s, short.timer_s) == (600, 32)
    assert [m.compute_s * 2 for m in short.machines] == pytest.approx([m.compute_s for m in long.machines])
    assert [m.opens * 2 for m in short.machines] == pytest.approx([m.opens for m in long.machines])


@given(seed=st.integers(0, 1000), jobs=st.integers(2, 250))
def test_any_week_is_one(seed, jobs):
    week = fault_schedule.draw(seed, jobs)
    assert [machine.number for machine in week.machines] == list(range(jobs))
    for machine in week.machines:
        assert machine.site in SITES and machine.compute_s > 0 and machine.transfer_s > 0
        assert len(machine.stalls_until) == fault_schedule.CACHES
        assert all(until == 0 or until > machine.opens for until in machine.stalls_until)
        assert all(machine.opens < begins < ends for begins, ends in machine.closed)


def test_machines_that_came_up_before_the_director_left_are_at_work_by_then():
    week = fault_schedule.draw(1)
    for begins, _ in week.away:
        before = [machine.opens for machine in week.machines if machine.opens < begins]
        assert begins - max(before) >= week.hour / 6


def test_the_published_table_has_the_published_figures():
    figures = account.of_arm("table", read_history([str(fault_schedule.TABLE)]))
    for name, published in account.PUBLISHED.items():
        assert figures[f"table_{name}"] == pytest.approx(published, abs=0.06)


def test_a_job_without_a_model_has_not_succeeded():
    told = read_history([str(fault_schedule.TABLE)])
    before = account.of_arm("a", told)
    after = account.of_arm("a", account.judged(told, lambda job: job != "794569.000"))
    assert after["a_success"] == before["a_success"] - 1
    assert after["a_useful_fraction"] < before["a_useful_fraction"]
    assert after["a_slot_s"] == before["a_slot_s"]


def test_arms_beside_each_other():
    figures = {"plain_success": 75.0, "plain_useful_fraction": 0.4, "plain_makespan_s": 100.0}
    found = account.beside({**figures, "packtrain_makespan_s": 25.0})
    assert found == pytest.approx(
        {"plain_success_off": 4.0, "plain_useful_fraction_off": 0.1, "packtrain_makespan_share": 0.25}
    )
    assert account.beside({}) == {}
