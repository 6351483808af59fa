"""Pool models for tests: small fixed ones, and a hypothesis strategy."""

from __future__ import annotations

from hypothesis import strategies as st

from packtrain.simulate.empirical import ZERO, EmpiricalDistribution
from packtrain.simulate.pool_model import DATA, NODE, PROGRAM, Fault, OutageModel, PoolModel, SiteModel
from tests.support.paths import TESTS_DIR

WEEK_TABLE = TESTS_DIR / "data" / "study" / "ospool-imagenet-100-jobs.csv"
HOUR_S = 3600.0


def make_site(name="Ada", slots=2, **fields):
    """Return a site where a job computes for an hour and its input transfer takes ten minutes."""
    defaults = {
        "compute_s": EmpiricalDistribution.from_values([HOUR_S]),
        "cold_transfer_s": EmpiricalDistribution.from_values([600.0]),
        "warm_transfer_s": EmpiricalDistribution.from_values([600.0]),
    }
    return SiteModel(name, slots, **{**defaults, **fields})


def make_model(*sites, **fields):
    return PoolModel("a test", 10, sites or (make_site(),), **fields)


_DURATIONS = st.lists(st.floats(1.0, 20 * HOUR_S), min_size=1, max_size=3).map(EmpiricalDistribution.from_values)
_PROBABILITIES = st.sampled_from([0.0, 0.1, 0.5])
_FAULTS = st.builds(Fault, st.sampled_from([NODE, DATA, PROGRAM]), st.sampled_from([0.1, 0.3]), _DURATIONS)


@st.composite
def pool_models(draw):
    """Any pool model. Evictions are rare, because a job that takes days and saves no checkpoint would never end."""
    sites = [
        SiteModel(
            name, draw(st.integers(1, 4)), draw(_DURATIONS), draw(_DURATIONS), draw(_DURATIONS), draw(_PROBABILITIES),
            draw(_DURATIONS), draw(st.sampled_from([0.0, 1e-6])), draw(st.just(ZERO) | _DURATIONS),
            tuple(draw(st.lists(_FAULTS, max_size=2))), max_streams=draw(st.integers(0, 3)),
            slots_open_at=draw(st.just(ZERO) | _DURATIONS),
        )
        for name in draw(st.sampled_from([("A",), ("A", "B"), ("A", "B", "C")]))
    ]  # fmt: skip
    outages = draw(
        st.just(OutageModel())
        | st.builds(OutageModel, st.just(0.2), st.just(EmpiricalDistribution((1.0, 5.0))), _DURATIONS)
    )
    time_limit_s, has_shared_caches = draw(st.none() | st.floats(HOUR_S, 30 * HOUR_S)), draw(st.booleans())
    return PoolModel(
        "any",
        10,
        tuple(sites),
        outages,
        EmpiricalDistribution.from_values([60.0]),
        3600.0,
        time_limit_s,
        has_shared_caches,
    )
