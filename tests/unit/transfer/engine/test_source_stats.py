"""SourceStats: allowed connections, backoff and stalls of one source."""

from __future__ import annotations

import pytest

from packtrain.errors import TransferError
from packtrain.plan import Location
from packtrain.transfer.api import Replica
from packtrain.transfer.backends.http import HttpBackend
from packtrain.transfer.engine.source_stats import MAX_CONNECTIONS_PER_SOURCE, SourceStats


@pytest.fixture
def source() -> SourceStats:
    return SourceStats(Replica(HttpBackend(str), Location("http://h/x"), "h"), 0)


def fail(source: SourceStats, retry_after_s: float | None, now: float) -> None:
    error = TransferError("service_unavailable", "h answered 503", "h", retry_after_s)
    source.record_failure(error, now, now, is_only_source=True, retry_ends_at=now + 300)


@pytest.mark.parametrize(("connections", "expected"), [(16, 8), (9, 4), (2, 1), (1, 1), (0, 1)])
def test_retry_after_halves_connections(source, connections, expected):
    source.connections = connections
    fail(source, 7.0, now=100.0)
    assert source.max_connections == expected
    assert not source.is_usable(106.9) and source.is_usable(107.1)
    assert source.allowed_connections == 1, "one connection until the source has recovered"
    source.record_block(1 << 20, 1.0, now=108.0)
    assert source.allowed_connections == expected


def test_repeated_retry_after_halves_again(source):
    for connections, expected in ((32, 16), (16, 8), (8, 4)):
        source.connections = connections
        fail(source, 1.0, now=100.0)
        assert source.max_connections == expected


def test_other_failures_keep_connections(source):
    source.connections = 16
    fail(source, None, now=100.0)
    assert source.max_connections == MAX_CONNECTIONS_PER_SOURCE


def test_simultaneous_stalls_set_no_response_limit(source):
    """An outage of the network stalls all connections; requests must not become smaller because of it."""
    for index in range(24):
        source.record_stall(
            100.0 + index / 50, is_only_source=True, timeout_factor=1.0, received_bytes=(5 + index) << 20
        )
    assert source.response_limit.max_bytes is None


def test_repeated_stalls_set_response_limit(source):
    source.record_stall(100.0, is_only_source=True, timeout_factor=1.0, received_bytes=5 << 20)
    source.record_stall(103.0, is_only_source=True, timeout_factor=1.0, received_bytes=4 << 20)
    assert source.response_limit.max_bytes == 4 << 20
