"""For any observations, not all sites are avoided, order does not matter, and old observations are ignored."""

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
observations = st.builds(
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


@given(
    st.lists(observations, max_size=30, unique_by=lambda observation: (observation.run, observation.key)),
    st.integers(0, 99),
)
def test_any_observations(observed, seed):
    history = SiteHistory.from_observations(observed, NOW)
    shuffled = Random(seed).sample(observed, len(observed))
    assert SiteHistory.from_observations(shuffled, NOW) == history
    for locations, avoided in ((history.sites, history.avoided_sites), (history.nodes, history.avoided_nodes)):
        assert not avoided or set(avoided) < set(locations), "a run that avoids every site never runs"
    for kind in ("site", "node", "cache"):
        assert all(row.failure_rate <= 1 for row in build_site_rows(history, kind))
    preferences = SitePreferences.from_history(history, "d")
    assert SitePreferences(**json.loads(json.dumps(vars(preferences)))) == preferences
    assert all(rank >= -100 for rank in preferences.ranks.values())
    assert SiteHistory.from_observations(observed, NOW + 2 * MAX_AGE_S).sites == {}


@given(observations)
def test_observation_round_trip(observation):
    assert SiteObservation.from_data(json.loads(json.dumps(observation.to_data()))) == observation
