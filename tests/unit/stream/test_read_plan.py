"""Tests of ReadPlan: every group is read once, within the memory limit, and a late one is requested again."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packtrain.stream.read_plan import ReadPlan, ReadStats


def make_plan(sizes, max_bytes=1 << 30):
    """Return a plan of groups with one sample each."""
    return ReadPlan(SimpleNamespace(sizes=sizes), [[number] for number in range(len(sizes))], max_bytes, ReadStats())


def request(plan, group_number, started_at=0.0):
    in_flight = SimpleNamespace(group_number=group_number, started_at=started_at)
    plan.add_request(in_flight)
    return in_flight


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 100), st.integers(0, 2**32))
def test_any_course_of_reads(sizes, max_bytes, seed):
    """Requests arrive or fail in any order, while the consumer takes the groups in theirs."""
    plan, requests, taken, rng = make_plan(sizes, max_bytes), [], 0, random.Random(seed)
    while taken < len(sizes):
        plan.needed_group = taken
        while (group_number := plan.claim()) is not None:
            requests.append(request(plan, group_number))
        held_bytes = sum(sizes[number] for number in (*plan.in_flight, *plan.ready))
        assert held_bytes <= max(max_bytes, sizes[taken] + max_bytes)
        assert taken in plan.in_flight or taken in plan.ready, "the needed group is always read"
        if requests:
            done = requests.pop(rng.randrange(len(requests)))
            if rng.random() < 0.5:
                assert plan.add_content(done.group_number, ([], None), 0.1)
            else:
                plan.remove_request(done)
        while plan.ready.pop(taken, None):
            plan.freed_bytes += sizes[taken]
            taken += 1
    assert plan.is_done and plan.claim() is None


def test_full_memory_is_remembered():
    plan = make_plan([10, 10, 10], max_bytes=15)
    assert (plan.claim(), plan.claim(), plan.is_full) == (0, None, True)
    plan.freed_bytes += 10
    assert plan.claim() == 1


@pytest.mark.parametrize(
    ("age_s", "n_overtaking", "usual_s", "is_late"),
    [(0.4, 0, 0.01, False), (0.6, 0, 0.01, True), (0.6, 0, 0.3, False), (0.3, 7, 0.01, False), (0.3, 8, 0.01, True)],
)
def test_late_group_is_requested_again(age_s, n_overtaking, usual_s, is_late):
    plan = make_plan([1] * 20)
    for _ in range(12):
        request(plan, plan.claim())
    for number in range(4, 8):
        plan.add_content(number, ([], None), usual_s)
    for number in range(8, 12):
        plan.add_content(number, ([], None), None)
    for number in list(plan.ready)[n_overtaking:]:
        plan.ready.pop(number)
    assert plan.hedge_if_late(0, now=age_s) is is_late
    assert not plan.hedge_if_late(0, now=age_s), "it waits to be requested"
    assert plan.claim() == (0 if is_late else 12)


def test_first_of_two_requests_counts():
    plan = make_plan([1])
    plan.claim()
    first, second = request(plan, 0), request(plan, 0)
    plan.remove_request(first)
    assert plan.claim() is None, "the second request may still arrive"
    assert plan.add_content(0, ([b"x"], None), 0.1)
    assert not plan.add_content(0, ([b"x"], None), 0.1)
    plan.remove_request(second)
    assert plan.is_done and plan.claim() is None
