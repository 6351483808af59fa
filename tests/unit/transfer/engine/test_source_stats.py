"""What is remembered of a place: how many connections it may have, and when it is asked again."""

from __future__ import annotations

import pytest

from packtrain.errors import TransferError
from packtrain.plan import Location
from packtrain.transfer.api import Replica
from packtrain.transfer.backends.http import HttpBackend
from packtrain.transfer.engine.source_stats import MAX_CONNECTIONS_PER_SOURCE, SourceStats


@pytest.fixture
def standing() -> SourceStats:
    return SourceStats(Replica(HttpBackend(str), Location("http://h/x"), "h"), 0)


def fail(standing: SourceStats, retry_after_s: float | None, now: float) -> None:
    error = TransferError("service_unavailable", "h answered 503", "h", retry_after_s)
    standing.record_failure(error, now, now, is_only_source=True, retry_ends_at=now + 300)


@pytest.mark.parametrize(("connections", "left"), [(16, 8), (9, 4), (2, 1), (1, 1), (0, 1)])
def test_who_asks_to_be_left_alone_gets_half_the_connections(standing, connections, left):
    standing.connections = connections
    fail(standing, 7.0, now=100.0)
    assert standing.max_connections == left
    assert not standing.is_usable(106.9) and standing.is_usable(107.1)
    assert standing.allowed_connections == 1, "one connection shows that it is well again"
    standing.record_block(1 << 20, 1.0, now=108.0)
    assert standing.allowed_connections == left


def test_each_time_half_of_what_it_had(standing):
    for connections, left in ((32, 16), (16, 8), (8, 4)):
        standing.connections = connections
        fail(standing, 1.0, now=100.0)
        assert standing.max_connections == left


def test_another_failure_leaves_them(standing):
    standing.connections = 16
    fail(standing, None, now=100.0)
    assert standing.max_connections == MAX_CONNECTIONS_PER_SOURCE


def test_connections_that_fall_silent_together_tell_nothing_about_the_length_of_answers(standing):
    """A network that was away for a moment: without this, the rest of a download was asked for in small pieces."""
    for number in range(24):
        standing.record_stall(100.0 + number / 50, is_only_source=True, timeout_factor=1.0, received_bytes=(5 + number) << 20)
    assert standing.response_limit.max_bytes is None


def test_connections_that_fall_silent_time_and_again_do(standing):
    standing.record_stall(100.0, is_only_source=True, timeout_factor=1.0, received_bytes=5 << 20)
    standing.record_stall(103.0, is_only_source=True, timeout_factor=1.0, received_bytes=4 << 20)
    assert standing.response_limit.max_bytes == 4 << 20
