"""The index of outcomes depends only on the set of events, not on when it is read."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.events import Event
from packtrain.state import RunState
from tests.property.test_state_fold import histories
from tests.support.event_builder import RUN


def receive_time(event: Event) -> float:
    """Return a time that depends only on the event, as in the store."""
    return float(sum(map(ord, event.emitter)) % 50 + event.seq)


def build_state(events: list[Event], read_every: int = 0) -> RunState:
    state = RunState(RUN)
    for number, event in enumerate(events):
        state.apply(event, receive_time(event))
        if read_every and number % read_every == 0:
            assert state.stats is not None
    return state


def summarize_index(state: RunState) -> object:
    index = state.stats
    locations = [
        {
            name: (location.success_times, location.faults)
            for name, location in by_name.items()
            if location.success_times or location.faults
        }
        for by_name in (index.sites, index.nodes)
    ]
    user_errors = {signature: outcomes for signature, outcomes in index.user_errors.items() if outcomes}
    costs = (index.n_successes, index.n_failures, round(index.wasted_s, 3))
    return (
        locations,
        user_errors,
        costs,
        {job: step for job, step in index.furthest_steps.items() if step >= 0},
    )


@settings(max_examples=60, deadline=None)
@given(histories(), st.randoms(use_true_random=False), st.integers(1, 5))
def test_order_duplicates_and_reads_change_nothing(events: list[Event], rng: Random, read_every: int) -> None:
    expected = summarize_index(build_state(events))
    assert summarize_index(build_state(events, read_every)) == expected
    shuffled = events + rng.choices(events, k=10)
    rng.shuffle(shuffled)
    assert summarize_index(build_state(shuffled, read_every)) == expected
