"""Whatever a pool is like: what is due happens in its order, nothing is lost, no slot is used twice at once, and the
same seed gives the same bytes."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.history import JobHistory, Outcome
from packtrain.simulate.empirical import EmpiricalDistribution
from packtrain.simulate.event_queue import EventQueue
from packtrain.simulate.scenarios import SCENARIOS
from packtrain.simulate.simulate_run import simulate_run
from tests.support.pool_models import pool_models

_TIMES = st.lists(st.floats(0, 1e6), max_size=30)


@given(_TIMES, st.floats(0, 1e6))
def test_what_is_due_happens_once_and_in_its_order(times: list[float], until: float) -> None:
    kernel, seen = EventQueue(), []
    for number, when in enumerate(times):
        kernel.schedule(when, lambda number=number: seen.append((kernel.now, number)))
    kernel.run_until(until)
    assert kernel.now == until
    assert seen == sorted((when, number) for number, when in enumerate(times) if when <= until)
    while kernel.run_next():
        pass
    assert seen == sorted((when, number) for number, when in enumerate(times))


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=10), st.floats(0, 1e5))
def test_what_should_have_been_long_ago_happens_now(times: list[float], now: float) -> None:
    kernel, seen = EventQueue(now), []
    for when in times:
        kernel.schedule(when, lambda: seen.append(kernel.now))
    while kernel.run_next():
        pass
    assert seen == sorted(max(when, now) for when in times)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_what_is_drawn_lies_between_what_was_seen(values: list[float], chance) -> None:
    fitted = EmpiricalDistribution.from_values(values)
    assert all(min(values) <= fitted.sample(chance) <= max(values) for _ in range(20))
    assert min(values) - 1e-6 <= fitted.mean <= max(values) + 1e-6


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(pool_models(), st.sampled_from(sorted(SCENARIOS)), st.integers(1, 12), st.integers(0, 1000))
def test_any_pool(world, policy: str, jobs: int, seed: int) -> None:
    history = simulate_run(world, SCENARIOS[policy], jobs, seed)
    assert [job.id for job in history.jobs] == [str(number) for number in range(jobs)]
    assert all(job.outcome not in (Outcome.RUNNING, Outcome.LOST) for job in history.jobs), "every job has its end"
    assert_slots_are_used_once(history, {site.name: site.n_slots for site in world.sites})
    figures = compute_stats(history)
    assert figures.wallclock_s == pytest.approx(sum(attempt.duration_s for attempt in history.executions()), abs=1e-3)
    assert pickle.dumps(simulate_run(world, SCENARIOS[policy], jobs, seed)) == pickle.dumps(history)


def assert_slots_are_used_once(history: JobHistory, slots: dict[str, int]) -> None:
    turns = [turn for a in history.executions() for turn in ((a.start, 1, a.site), (a.end, -1, a.site))]
    busy: Counter[str] = Counter()
    for _, change, site in sorted(turns):
        busy[site] += change
        assert 0 <= busy[site] <= slots[site]
    for job in history.jobs:
        came = [attempt for attempt in job.executions if attempt.outcome is Outcome.SUCCEEDED]
        assert bool(came) == (job.outcome is Outcome.SUCCEEDED)
        spans = [span for attempt in job.executions for span in attempt.spans]
        assert all(span.end >= span.start for span in spans)
