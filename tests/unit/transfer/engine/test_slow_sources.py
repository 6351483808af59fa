"""Slow sources are abandoned if another source is faster, and sources that were slow in earlier runs come last."""

from __future__ import annotations

import hashlib
import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from packtrain.plan import Location, RemoteFile
from packtrain.transfer import registry
from packtrain.transfer.api import Replica
from packtrain.transfer.engine import concurrency, source_stats
from packtrain.transfer.engine.concurrency import StarvationDetector
from packtrain.transfer.engine.scheduler import BlockScheduler
from packtrain.transfer.engine.source_stats import SourceSelector
from packtrain.transfer.fetch import fetch
from testbed.faults import FaultProxy, RateLimiter

MIB = 1 << 20
DATA = random.Random(5).randbytes(24 * MIB)
SLOW_BYTES_PER_S = 20_000.0  # a block takes most of a minute
A, B = "a", "b"


class SlowingRateLimiter(RateLimiter):
    """A line that becomes slow after a number of bytes."""

    def __init__(self, bytes_per_s: float, slow_after_bytes: int) -> None:
        super().__init__(bytes_per_s)
        self._remaining, self._count_lock = slow_after_bytes, threading.Lock()

    def wait_for(self, n_bytes: int) -> None:
        with self._count_lock:
            self._remaining -= n_bytes
            self._bytes_per_s = SLOW_BYTES_PER_S if self._remaining < 0 else self._bytes_per_s
        super().wait_for(n_bytes)


def make_scheduler(sources: list[str]) -> BlockScheduler:
    """A scheduler that has received a block from each of these sources in 0.1 s."""
    scheduler = BlockScheduler(40, max_span_blocks=1)
    for source in sources:
        span = scheduler.assign(source, 0.0, 1)
        assert span is not None
        scheduler.complete_block(span, 0.1)
        scheduler.release(span)
    return scheduler


def start_slow_spans(scheduler: BlockScheduler, count: int) -> list:
    """Spans of source A that start at 10 s and have received one byte."""
    spans = [scheduler.assign(A, 10.0, 1) for _ in range(count)]
    for span in spans:
        span.received_bytes = 1
    return spans


@pytest.mark.parametrize(
    ("sources", "is_only_source", "expected"),
    [
        ([A, A, A, B, B, B], False, True),
        ([A, A, A, B, B, B], True, False),  # B is not usable any more
        ([A, A, A, B, B], False, False),  # B has sent too few blocks
        ([A, A, A, A, A, A], False, False),
    ],
)
def test_slow_connections_of_one_source(sources, is_only_source, expected):
    scheduler = make_scheduler(sources)
    spans = start_slow_spans(scheduler, 4)
    assert {scheduler.is_slow(span, 14.0, is_only_source) for span in spans} == {expected}
    assert not any(scheduler.is_slow(span, 12.0, is_only_source) for span in spans), "too early"


def test_all_sources_slow_together():
    scheduler = make_scheduler([A, A, A, B, B, B])
    (slow_span,) = start_slow_spans(scheduler, 1)
    other_span = scheduler.assign(B, 10.0, 1)
    other_span.received_bytes = 1
    assert not scheduler.is_slow(slow_span, 14.0, is_only_source=False)


@pytest.mark.parametrize(("bytes_per_s", "starves"), [(99e3, True), (101e3, False)])
def test_starvation_is_detected_after_30_s(bytes_per_s, starves):
    detector = StarvationDetector(5.0)
    results = {now: detector.update(int(bytes_per_s * now), now) for now in (5.0, 34.9, 35.1, 36.0)}
    assert results == {5.0: False, 34.9: False, 35.1: starves, 36.0: starves}


def test_starvation_is_permanent():
    detector = StarvationDetector(0.0)
    assert [
        detector.update(total, now) for total, now in ((0, 0.0), (1000, 31.0), (10**9, 32.0), (2 * 10**9, 90.0))
    ] == [
        False,
        True,
        True,
        True,
    ]


def test_fallback_is_used_while_starved():
    selector, location = SourceSelector(), Location("http://example.org/x")
    selector.add(0, [Replica(None, location, "cache"), Replica(None, location, "origin", is_fallback=True)])
    assert [source.replica.label for source in selector.rank_usable(0.0)] == ["cache"]
    selector.is_starved = True
    assert [source.replica.label for source in selector.rank_usable(0.0)] == ["cache", "origin"]


@pytest.fixture
def set_expected_speeds():
    yield source_stats.set_expected_speeds
    source_stats.set_expected_speeds({})


@pytest.mark.parametrize(
    ("speeds", "order"),
    [
        ({}, ["one:80", "two:80", "new"]),
        ({"one": 10.0, "two": 90.0}, ["two:80", "new", "one:80"]),
        ({"two": 90.0}, ["one:80", "two:80", "new"]),  # unknown speeds count as the best
    ],
)
def test_expected_speed_decides_order(set_expected_speeds, speeds, order):
    set_expected_speeds(speeds)
    selector, location = SourceSelector(), Location("http://example.org/x")
    selector.add(0, [Replica(None, location, label) for label in ("one:80", "two:80", "new")])
    assert [source.replica.label for source in selector.rank_usable(0.0)] == order


def test_measured_speed_overrides_expected_speed(set_expected_speeds):
    set_expected_speeds({"one": 10.0, "two": 90.0})
    selector, location = SourceSelector(), Location("http://example.org/x")
    selector.add(0, [Replica(None, location, "one"), Replica(None, location, "two")])
    one, two = selector.source_stats
    one.record_block(1000, 1.0, 0.0)
    two.record_block(10, 1.0, 0.0)
    assert selector.choose(1.0) is one


@pytest.mark.slow
def test_server_that_becomes_slow_is_abandoned(tmp_path: Path):
    """Eight connections hold a block each, more than may be hedged."""
    served, target = tmp_path / "served", tmp_path / "data.bin"
    served.mkdir()
    (served / "data.bin").write_bytes(DATA)
    slowing, steady = SlowingRateLimiter(20e6, 4 * MIB), RateLimiter(20e6)
    with FaultProxy(served, rate_limiter=slowing) as first, FaultProxy(served, rate_limiter=steady) as second:
        locations = tuple(Location(f"{proxy.url}/data.bin") for proxy in (first, second))
        result = fetch(
            RemoteFile("data.bin", locations),
            target,
            str,
            retry_timeout_s=20,
            check_cancelled=lambda: None,
            on_progress=lambda *_: None,
        )
        assert first.sent_bytes + second.sent_bytes <= 1.06 * len(DATA)
    assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(DATA).digest()
    assert result.stalls > 0


@pytest.mark.slow
def test_slow_cache_falls_back_to_origin(tmp_path: Path, monkeypatch):
    """All connections wait for the slow cache, so another one is opened to the origin."""
    real_find_replicas = registry.find_replicas

    def find_replicas(location, resolve_secret):
        is_fallback = location.url == locations[1].url
        return [replace(r, is_fallback=is_fallback) for r in real_find_replicas(location, resolve_secret)]

    served, target = tmp_path / "served", tmp_path / "data.bin"
    served.mkdir()
    (served / "data.bin").write_bytes(DATA)
    monkeypatch.setattr(registry, "find_replicas", find_replicas)
    monkeypatch.setattr(concurrency, "_STARVATION_WINDOW_S", 1.0)
    with FaultProxy(served, rate_limiter=RateLimiter(SLOW_BYTES_PER_S)) as cache, FaultProxy(served) as origin:
        locations = tuple(Location(f"{proxy.url}/data.bin") for proxy in (cache, origin))
        fetch(
            RemoteFile("data.bin", locations),
            target,
            str,
            retry_timeout_s=20,
            check_cancelled=lambda: None,
            on_progress=lambda *_: None,
        )
        assert origin.sent_bytes > 0.9 * len(DATA)
    assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(DATA).digest()
