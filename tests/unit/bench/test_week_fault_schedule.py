"""The fault schedule of the replayed week: derived from the published table, reproducible."""

from __future__ import annotations

import pytest
from harness.week import arm_metrics, fault_schedule
from hypothesis import given
from hypothesis import strategies as st

from packtrain.report.readers.files import read_history

SITES = {"CHTC-Spark-CE1", "PDX-Coeus-CE1", "GP-ARGO-ksu-backfill"}


def opens_in_outage(week, node):
    return any(start <= node.opens_at < end for start, end in week.director_outages)


def regular_nodes(week):
    return [node for node in week.nodes if not opens_in_outage(week, node)]


def test_outages():
    week = fault_schedule.generate_week(1)
    assert len(week.nodes) == 100
    assert sum(opens_in_outage(week, node) for node in week.nodes) == 16
    assert len(week.director_outages) == 2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_node_per_published_job(seed):
    jobs = fault_schedule.read_published_jobs()
    nodes = regular_nodes(fault_schedule.generate_week(seed, hour_s=3600))
    assert len(jobs) == len(nodes) == 84
    assert {job.execute_s for job in jobs if job.has_speed} <= {node.compute_s for node in nodes}
    stalled_s = sum(node.cache_stalls_until[0] - node.opens_at for node in nodes if node.cache_stalls_until[0])
    assert stalled_s == pytest.approx(sum(job.stalled_s for job in jobs))
    assert sum(len(node.evicted_periods) for node in nodes) == 5
    assert sum(not node.has_outbound_network for node in nodes) == 2
    assert sum(node.has_damaged_cache for node in nodes) == 1


def test_depends_on_seed():
    assert fault_schedule.generate_week(7) == fault_schedule.generate_week(7)
    assert fault_schedule.generate_week(7).nodes != fault_schedule.generate_week(8).nodes


def test_hour_seconds():
    short, long = fault_schedule.generate_week(1, hour_s=30), fault_schedule.generate_week(1, hour_s=60)
    assert (short.execute_limit_s, short.transfer_timeout_s) == (600, 32)
    assert [node.compute_s * 2 for node in short.nodes] == pytest.approx([node.compute_s for node in long.nodes])
    assert [node.opens_at * 2 for node in short.nodes] == pytest.approx([node.opens_at for node in long.nodes])


@given(seed=st.integers(0, 1000), jobs=st.integers(2, 250))
def test_any_week_is_valid(seed, jobs):
    week = fault_schedule.generate_week(seed, jobs)
    assert [node.number for node in week.nodes] == list(range(jobs))
    for node in week.nodes:
        assert node.site in SITES and node.compute_s > 0 and node.transfer_s > 0
        assert len(node.cache_stalls_until) == fault_schedule.CACHES_PER_SITE
        assert all(until == 0 or until > node.opens_at for until in node.cache_stalls_until)
        assert all(node.opens_at < start < end for start, end in node.evicted_periods)


def test_idle_before_outage():
    week = fault_schedule.generate_week(1)
    for start, _ in week.director_outages:
        before = [node.opens_at for node in week.nodes if node.opens_at < start]
        assert start - max(before) >= week.hour_s / 6


def test_published_metrics():
    metrics = arm_metrics.arm_metrics("table", read_history([str(fault_schedule.TABLE_PATH)]))
    for name, published in arm_metrics.PUBLISHED_METRICS.items():
        assert metrics[f"table_{name}"] == pytest.approx(published, abs=0.06)


def test_job_without_model_failed():
    history = read_history([str(fault_schedule.TABLE_PATH)])
    before = arm_metrics.arm_metrics("a", history)
    after = arm_metrics.arm_metrics("a", arm_metrics.mark_missing_models(history, lambda job: job != "794569.000"))
    assert after["a_success_percent"] == before["a_success_percent"] - 1
    assert after["a_useful_fraction"] < before["a_useful_fraction"]
    assert after["a_slot_s"] == before["a_slot_s"]


def test_compare_arms():
    metrics = {"plain_success_percent": 75.0, "plain_useful_fraction": 0.4, "plain_makespan_s": 100.0}
    comparison = arm_metrics.compare_arms({**metrics, "packtrain_makespan_s": 25.0})
    assert comparison == pytest.approx(
        {"plain_success_percent_error": 4.0, "plain_useful_fraction_error": 0.1, "packtrain_makespan_share": 0.25}
    )
    assert arm_metrics.compare_arms({}) == {}
