"""Whatever attempts tell of places: never are all avoided, order means nothing, and all is forgotten in the end."""

from __future__ import annotations

import json
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from packtrain.engines.htcondor.run_settings import SitePreferences
from packtrain.state.site_history import MAX_AGE_S, SiteHistory, SiteObservation
from packtrain.views.site_table import build_site_rows

NOW = 1e9
seconds = st.sampled_from((0.0, 1.0, 3600.0, 1e6))
visits = st.builds(
    SiteObservation,
    run=st.sampled_from("rs"),
    key=st.text(max_size=3),
    ended_at=st.floats(NOW - MAX_AGE_S, NOW + 1e5),
    engine=st.just("htcondor"),
    site=st.sampled_from(("", "A", "B", "C")),
    node=st.sampled_from(("", "a1", "a2", "b1")),
    failure_kind=st.sampled_from(("", "evicted", "gpu_unusable")),
    is_site_fault=st.booleans(),
    steps_s=seconds,
    fetch_s=seconds,
    fetched_bytes=st.integers(0, 10**15),
    source_host=st.sampled_from(("", "cache.example.org")),
    dataset_id=st.sampled_from(("", "d")),
)


@given(st.lists(visits, max_size=30, unique_by=lambda visit: (visit.run, visit.key)), st.integers(0, 99))
def test_any_visits(told, seed):
    known = SiteHistory.from_observations(told, NOW)
    shuffled = Random(seed).sample(told, len(told))
    assert SiteHistory.from_observations(shuffled, NOW) == known
    for places, avoided in ((known.sites, known.avoided_sites), (known.nodes, known.avoided_nodes)):
        assert not avoided or set(avoided) < set(places), "who avoids every place never runs"
        assert all(row.failure_rate <= 1 for row in build_site_rows(places, avoided))
    hints = SitePreferences.from_history(known, "d")
    assert SitePreferences(**json.loads(json.dumps(vars(hints)))) == hints
    assert all(rank >= -100 for rank in hints.ranks.values())
    assert SiteHistory.from_observations(told, NOW + 2 * MAX_AGE_S).sites == {}


@given(visits)
def test_a_visit_survives_the_store(visit):
    assert SiteObservation.from_data(json.loads(json.dumps(visit.to_data()))) == visit
