"""Simulated runs of any pool model: events are in order, no job is lost, no slot is used twice at once, and the same
seed gives the same history."""

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
def test_events_run_once_in_order(times: list[float], end: float) -> None:
    queue, calls = EventQueue(), []
    for number, at in enumerate(times):
        queue.schedule(at, lambda number=number: calls.append((queue.now, number)))
    queue.run_until(end)
    assert queue.now == end
    assert calls == sorted((at, number) for number, at in enumerate(times) if at <= end)
    while queue.run_next():
        pass
    assert calls == sorted((at, number) for number, at in enumerate(times))


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=10), st.floats(0, 1e5))
def test_overdue_events_run_now(times: list[float], now: float) -> None:
    queue, calls = EventQueue(now), []
    for at in times:
        queue.schedule(at, lambda: calls.append(queue.now))
    while queue.run_next():
        pass
    assert calls == sorted(max(at, now) for at in times)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_samples_are_within_observed_range(values: list[float], rng) -> None:
    distribution = EmpiricalDistribution.from_values(values)
    assert all(min(values) <= distribution.sample(rng) <= max(values) for _ in range(20))
    assert min(values) - 1e-6 <= distribution.mean <= max(values) + 1e-6


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(pool_models(), st.sampled_from(sorted(SCENARIOS)), st.integers(1, 12), st.integers(0, 1000))
def test_any_pool_model(model, scenario: str, n_jobs: int, seed: int) -> None:
    history = simulate_run(model, SCENARIOS[scenario], n_jobs, seed)
    assert [job.id for job in history.jobs] == [str(number) for number in range(n_jobs)]
    assert all(job.outcome not in (Outcome.RUNNING, Outcome.LOST) for job in history.jobs), "every job ends"
    assert_slots_are_used_once(history, {site.name: site.n_slots for site in model.sites})
    stats = compute_stats(history)
    assert stats.wallclock_s == pytest.approx(sum(execution.duration_s for execution in history.executions()), abs=1e-3)
    assert pickle.dumps(simulate_run(model, SCENARIOS[scenario], n_jobs, seed)) == pickle.dumps(history)


def assert_slots_are_used_once(history: JobHistory, slots: dict[str, int]) -> None:
    changes = [
        change
        for execution in history.executions()
        for change in ((execution.start, 1, execution.site), (execution.end, -1, execution.site))
    ]
    n_busy: Counter[str] = Counter()
    for _, delta, site in sorted(changes):
        n_busy[site] += delta
        assert 0 <= n_busy[site] <= slots[site]
    for job in history.jobs:
        succeeded = [execution for execution in job.executions if execution.outcome is Outcome.SUCCEEDED]
        assert bool(succeeded) == (job.outcome is Outcome.SUCCEEDED)
        spans = [span for execution in job.executions for span in execution.spans]
        assert all(span.end >= span.start for span in spans)
