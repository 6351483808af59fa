"""ResponseLimit: the size of requests after responses stalled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from packtrain.transfer.engine.source_stats import ResponseLimit

MIB = 1 << 20


def test_one_stall_sets_no_limit():
    limit = ResponseLimit()
    limit.record_stall(3 * MIB)
    assert limit.max_bytes is None


def test_two_stalls_set_limit():
    limit = ResponseLimit()
    limit.record_stall(3 * MIB)
    limit.record_stall(2 * MIB)
    assert limit.max_bytes == 2 * MIB


def test_longer_response_resets_first_stall():
    limit = ResponseLimit()
    limit.record_stall(3 * MIB)
    limit.record_complete(32 * MIB)
    limit.record_stall(3 * MIB)
    assert limit.max_bytes is None


def test_empty_responses_are_ignored():
    limit = ResponseLimit()
    limit.record_stall(0)
    limit.record_stall(0)
    assert limit.max_bytes is None


def test_limit_is_raised_more_slowly_after_each_stall():
    def count_until_raised() -> int:
        before, count = limit.max_bytes, 0
        while limit.max_bytes == before:
            limit.record_complete(limit.max_bytes)
            count += 1
        return count

    limit = ResponseLimit()
    limit.record_stall(3 * MIB)
    limit.record_stall(3 * MIB)
    first = count_until_raised()
    assert limit.max_bytes == 6 * MIB
    limit.record_stall(3 * MIB)
    assert limit.max_bytes == 3 * MIB
    assert count_until_raised() > 2 * first


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 64 * MIB)), max_size=300))
def test_limit_is_at_least_shortest_stall(responses):
    limit, shortest = ResponseLimit(), 64 * MIB
    for is_stall, received_bytes in responses:
        if is_stall:
            limit.record_stall(received_bytes)
            shortest = min(shortest, received_bytes or shortest)
        else:
            limit.record_complete(received_bytes)
        assert limit.max_bytes is None or limit.max_bytes >= shortest
