"""How much an answer is asked for, after answers that fell silent in their midst."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from packtrain.transfer.engine.source_stats import ResponseLimit

MIB = 1 << 20


def test_one_silence_is_an_accident():
    reach = ResponseLimit()
    reach.record_stall(3 * MIB)
    assert reach.max_bytes is None


def test_two_in_a_row_are_a_habit():
    reach = ResponseLimit()
    reach.record_stall(3 * MIB)
    reach.record_stall(2 * MIB)
    assert reach.max_bytes == 2 * MIB


def test_an_answer_that_brought_more_forgives_the_first():
    reach = ResponseLimit()
    reach.record_stall(3 * MIB)
    reach.record_complete(32 * MIB)
    reach.record_stall(3 * MIB)
    assert reach.max_bytes is None


def test_answers_without_a_byte_tell_nothing_about_their_length():
    reach = ResponseLimit()
    reach.record_stall(0)
    reach.record_stall(0)
    assert reach.max_bytes is None


def test_it_grows_again_and_more_slowly_after_each_failure():
    def grown_after() -> int:
        before, count = reach.max_bytes, 0
        while reach.max_bytes == before:
            reach.record_complete(reach.max_bytes)
            count += 1
        return count

    reach = ResponseLimit()
    reach.record_stall(3 * MIB)
    reach.record_stall(3 * MIB)
    first = grown_after()
    assert reach.max_bytes == 6 * MIB
    reach.record_stall(3 * MIB)
    assert reach.max_bytes == 3 * MIB
    assert grown_after() > 2 * first


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 64 * MIB)), max_size=300))
def test_it_is_never_less_than_the_shortest_answer_that_fell_silent(story):
    reach, shortest = ResponseLimit(), 64 * MIB
    for silent, came in story:
        if silent:
            reach.record_stall(came)
            shortest = min(shortest, came or shortest)
        else:
            reach.record_complete(came)
        assert reach.max_bytes is None or reach.max_bytes >= shortest
