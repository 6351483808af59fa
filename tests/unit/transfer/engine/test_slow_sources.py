"""Servers that crawl instead of falling silent are left where another place does better, and only there; those
that were slow in earlier runs are asked last."""

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
from packtrain.transfer.engine.source_selector import SourceSelector
from packtrain.transfer.fetch import fetch
from testbed.faults import FaultProxy, RateLimiter

MIB = 1 << 20
DATA = random.Random(5).randbytes(24 * MIB)
CRAWL = 20_000.0  # bytes a second: a block takes most of a minute
A, B = "a", "b"


class TurningLine(RateLimiter):
    """One that crawls once so many bytes have passed."""

    def __init__(self, bytes_per_s: float, crawls_after: int) -> None:
        super().__init__(bytes_per_s)
        self._left, self._count = crawls_after, threading.Lock()

    def wait_for(self, count: int) -> None:
        with self._count:
            self._left -= count
            self._bytes_per_s = CRAWL if self._left < 0 else self._bytes_per_s
        super().wait_for(count)


def schedule_after(places: list[str]) -> BlockScheduler:
    """Blocks came from these places, each in a tenth of a second; then one from A is begun, at 10."""
    schedule = BlockScheduler(40, max_span_blocks=1)
    for place in places:
        span = schedule.assign(place, 0.0, 1)
        assert span is not None
        schedule.complete_block(span, 0.1)
        schedule.release(span)
    return schedule


def crawling(schedule: BlockScheduler, count: int) -> list:
    spans = [schedule.assign(A, 10.0, 1) for _ in range(count)]
    for span in spans:
        span.received_bytes = 1
    return spans


@pytest.mark.parametrize(
    ("places", "alone", "slow"),
    [
        ([A, A, A, B, B, B], False, True),
        ([A, A, A, B, B, B], True, False),  # B is of no use any more: a line that slows is not left
        ([A, A, A, B, B], False, False),  # too little is known of B
        ([A, A, A, A, A, A], False, False),
    ],
)
def test_several_connections_that_crawl_together(places, alone, slow):
    schedule = schedule_after(places)
    spans = crawling(schedule, 4)
    assert {schedule.is_slow(span, 14.0, alone) for span in spans} == {slow}
    assert not any(schedule.is_slow(span, 12.0, alone) for span in spans), "not before its time"


def test_where_the_other_place_crawls_too_it_is_the_line():
    schedule = schedule_after([A, A, A, B, B, B])
    (here,) = crawling(schedule, 1)
    there = schedule.assign(B, 10.0, 1)
    there.received_bytes = 1
    assert not schedule.is_slow(here, 14.0, is_only_source=False)


@pytest.mark.parametrize(("rate", "trickles"), [(99e3, True), (101e3, False)])
def test_a_trickle_is_seen_after_half_a_minute(rate, trickles):
    trickle = StarvationDetector(5.0)
    seen = {now: trickle.update(int(rate * now), now) for now in (5.0, 34.9, 35.1, 36.0)}
    assert seen == {5.0: False, 34.9: False, 35.1: trickles, 36.0: trickles}


def test_it_stays_seen_when_more_comes():
    trickle = StarvationDetector(0.0)
    assert [
        trickle.update(total, now) for total, now in ((0, 0.0), (1000, 31.0), (10**9, 32.0), (2 * 10**9, 90.0))
    ] == [
        False,
        True,
        True,
        True,
    ]


def test_the_last_resort_is_asked_while_the_others_trickle():
    known, ref = SourceSelector(), Location("http://example.org/x")
    known.add(0, [Replica(None, ref, "cache"), Replica(None, ref, "origin", is_fallback=True)])
    assert [standing.replica.label for standing in known.rank_usable(0.0)] == ["cache"]
    known.is_starved = True
    assert [standing.replica.label for standing in known.rank_usable(0.0)] == ["cache", "origin"]


@pytest.fixture
def expected():
    yield source_stats.set_expected_speeds
    source_stats.set_expected_speeds({})


@pytest.mark.parametrize(
    ("speeds", "order"),
    [
        ({}, ["one:80", "two:80", "new"]),
        ({"one": 10.0, "two": 90.0}, ["two:80", "new", "one:80"]),
        ({"two": 90.0}, ["one:80", "two:80", "new"]),  # nothing is known against the others
    ],
)
def test_what_was_quicker_before_is_asked_first(expected, speeds, order):
    expected(speeds)
    known, ref = SourceSelector(), Location("http://example.org/x")
    known.add(0, [Replica(None, ref, label) for label in ("one:80", "two:80", "new")])
    assert [standing.replica.label for standing in known.rank_usable(0.0)] == order


def test_what_is_seen_now_counts_more(expected):
    expected({"one": 10.0, "two": 90.0})
    known, ref = SourceSelector(), Location("http://example.org/x")
    known.add(0, [Replica(None, ref, "one"), Replica(None, ref, "two")])
    one, two = known.source_stats
    one.record_block(1000, 1.0, 0.0)
    two.record_block(10, 1.0, 0.0)
    assert known.choose(1.0) is one


@pytest.mark.slow
def test_a_server_that_begins_to_crawl_is_left(tmp_path: Path):
    """Eight connections hold a block of it each, more than may be asked for twice."""
    served, target = tmp_path / "served", tmp_path / "data.bin"
    served.mkdir()
    (served / "data.bin").write_bytes(DATA)
    turning, steady = TurningLine(20e6, 4 * MIB), RateLimiter(20e6)
    with FaultProxy(served, rate_limiter=turning) as first, FaultProxy(served, rate_limiter=steady) as second:
        refs = tuple(Location(f"{proxy.url}/data.bin") for proxy in (first, second))
        fetched = fetch(
            RemoteFile("data.bin", refs),
            target,
            str,
            retry_timeout_s=20,
            check_cancelled=lambda: None,
            on_progress=lambda *_: None,
        )
        assert first.sent_bytes + second.sent_bytes <= 1.06 * len(DATA)
    assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(DATA).digest()
    assert fetched.stalls > 0


@pytest.mark.slow
def test_all_caches_crawl_and_the_last_resort_brings_it(tmp_path: Path, monkeypatch):
    """All connections hang on the crawling one: one more is made for it."""
    usual = registry.find_replicas

    def places_for(ref, reveal):
        return [replace(place, is_fallback=ref.url == refs[1].url) for place in usual(ref, reveal)]

    served, target = tmp_path / "served", tmp_path / "data.bin"
    served.mkdir()
    (served / "data.bin").write_bytes(DATA)
    monkeypatch.setattr(registry, "find_replicas", places_for)
    monkeypatch.setattr(concurrency, "_STARVATION_WINDOW_S", 1.0)
    with FaultProxy(served, rate_limiter=RateLimiter(CRAWL)) as cache, FaultProxy(served) as origin:
        refs = tuple(Location(f"{proxy.url}/data.bin") for proxy in (cache, origin))
        fetch(
            RemoteFile("data.bin", refs),
            target,
            str,
            retry_timeout_s=20,
            check_cancelled=lambda: None,
            on_progress=lambda *_: None,
        )
        assert origin.sent_bytes > 0.9 * len(DATA)
    assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(DATA).digest()
