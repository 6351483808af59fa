"""Pools for simulations: small ones that a test can overlook, and any that hypothesis thinks of."""

from __future__ import annotations

from hypothesis import strategies as st

from packtrain.simulate.empirical import NOTHING, Fitted
from packtrain.simulate.pool_model import DATA, MACHINE, PROGRAM, Bursts, Fault, Site, World
from tests.support.paths import TESTS

WEEK = TESTS / "data" / "study" / "ospool-imagenet-100-jobs.csv"
HOUR = 3600.0


def site(name="Ada", slots=2, **more):
    """A job takes an hour there, its transfer ten minutes."""
    usual = {"compute": Fitted.to([HOUR]), "cold": Fitted.to([600.0]), "warm": Fitted.to([600.0])}
    return Site(name, slots, **{**usual, **more})


def world(*sites, **more):
    return World("a test", 10, sites or (site(),), **more)


_SECONDS = st.lists(st.floats(1.0, 20 * HOUR), min_size=1, max_size=3).map(Fitted.to)
_CHANCES = st.sampled_from([0.0, 0.1, 0.5])
_FAULTS = st.builds(Fault, st.sampled_from([MACHINE, DATA, PROGRAM]), st.sampled_from([0.1, 0.3]), _SECONDS)


@st.composite
def worlds(draw):
    """Stays may last for days: with evictions more often than these, a job without checkpoints would never end."""
    made = [
        Site(
            name, draw(st.integers(1, 4)), draw(_SECONDS), draw(_SECONDS), draw(_SECONDS), draw(_CHANCES),
            draw(_SECONDS), draw(st.sampled_from([0.0, 1e-6])), draw(st.just(NOTHING) | _SECONDS),
            tuple(draw(st.lists(_FAULTS, max_size=2))), streams=draw(st.integers(0, 3)),
            opens=draw(st.just(NOTHING) | _SECONDS),
        )
        for name in draw(st.sampled_from([("A",), ("A", "B"), ("A", "B", "C")]))
    ]  # fmt: skip
    bursts = draw(st.just(Bursts()) | st.builds(Bursts, st.just(0.2), st.just(Fitted((1.0, 5.0))), _SECONDS))
    limit, shares = draw(st.none() | st.floats(HOUR, 30 * HOUR)), draw(st.booleans())
    return World("any", 10, tuple(made), bursts, Fitted.to([60.0]), 3600.0, limit, shares)
