"""The record of places and mistakes depends on the set of events only, whenever it is asked for."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.events import Event
from packtrain.state import RunState
from tests.property.test_state_fold import histories
from tests.support.event_builder import RUN


def arrived(event: Event) -> float:
    """The store knows it for ever, too."""
    return float(sum(map(ord, event.emitter)) % 50 + event.seq)


def told(events: list[Event], ask_every: int = 0) -> RunState:
    state = RunState(RUN)
    for number, event in enumerate(events):
        state.apply(event, arrived(event))
        if ask_every and number % ask_every == 0:
            assert state.stats is not None
    return state


def picture(state: RunState) -> object:
    record = state.stats
    places = [
        {
            name: (place.success_times, place.faults)
            for name, place in found.items()
            if place.success_times or place.faults
        }
        for found in (record.sites, record.nodes)
    ]
    mistakes = {name: found for name, found in record.user_errors.items() if found}
    costs = (record.n_successes, record.n_failures, round(record.wasted_s, 3))
    return places, mistakes, costs, {job: step for job, step in record.furthest_steps.items() if step >= 0}


@settings(max_examples=60, deadline=None)
@given(histories(), st.randoms(use_true_random=False), st.integers(1, 5))
def test_order_repetition_and_questions_change_nothing(events: list[Event], chance: Random, every: int) -> None:
    expected = picture(told(events))
    assert picture(told(events, every)) == expected
    shuffled = events + chance.choices(events, k=10)
    chance.shuffle(shuffled)
    assert picture(told(shuffled, every)) == expected
