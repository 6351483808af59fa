"""Every block is delivered exactly once and hedges stay within their budget; the number of connections is sensible."""

from __future__ import annotations

import random
import statistics

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.transfer.engine.concurrency import ConcurrencyController
from packtrain.transfer.engine.resume_log import ObjectIdentity, format_record, parse_records
from packtrain.transfer.engine.scheduler import BlockScheduler, BlockSpan

SOURCES = ("a", "b", "c")


@settings(max_examples=200, deadline=None)
@given(
    count=st.integers(0, 90),
    seed=st.integers(0, 1 << 30),
    workers=st.integers(1, 9),
    failure_rate=st.floats(0, 0.5),
    resumed=st.sets(st.integers(0, 89)),
    window=st.one_of(st.none(), st.integers(1, 20)),
    min_span=st.integers(1, 5),
)
def test_blocks_are_delivered_exactly_once(count, seed, workers, failure_rate, resumed, window, min_span):
    rng, now = random.Random(seed), 0.0
    done = {index for index in resumed if index < count}
    scheduler = BlockScheduler(count, done, window, min_span_blocks=min_span)
    spans: list[BlockSpan] = []
    delivered: list[int] = []
    for _ in range(200 * (count + 1)):
        if not scheduler.n_missing:
            break
        now += rng.random()
        if window is not None:
            scheduler.window_end = scheduler.frontier + window
        if len(spans) < workers:
            span = scheduler.assign(rng.choice(SOURCES), now, workers, is_only_source=rng.random() < 0.5)
            if span is not None:
                assert 0 <= span.next_block < span.stop_block <= min(count, scheduler.window_end)
                spans.append(span)
        if spans:
            step(scheduler, rng.choice(spans), spans, delivered, rng, failure_rate, now)
    assert sorted([*delivered, *done]) == list(range(count))
    assert scheduler.n_missing == 0 and scheduler.frontier == count
    assert scheduler.n_hedges <= max(1, 0.05 * count)


def step(scheduler, span, spans, delivered, rng, failure_rate, now) -> None:
    """Complete the current block of a connection, or let the connection fail."""
    scheduler.skip_done(span)
    if scheduler.is_obsolete(span) or rng.random() < failure_rate:
        spans.remove(span)
        scheduler.release(span)
    else:
        index = span.next_block
        if scheduler.complete_block(span, now):
            delivered.append(index)


@settings(deadline=None)
@given(count=st.integers(2, 200), workers=st.integers(1, 64), taken=st.integers(1, 300))
def test_spans_do_not_overlap(count, workers, taken):
    scheduler, spans = BlockScheduler(count), []
    for number in range(taken):
        span = scheduler.assign("a", float(number), workers)
        if span is not None and not span.is_hedge:
            spans.append(span)
    held = [index for span in spans for index in range(span.next_block, span.stop_block)]
    assert sorted(held) == sorted(set(held))
    assert set(held) <= set(range(count))


def assign_while_late(received_bytes: int, *, is_only_source: bool = True) -> BlockSpan | None:
    """The span for an idle connection while the last of five blocks takes 2 s; the others took 1 s each."""
    scheduler = BlockScheduler(5)
    first = scheduler.assign_first("a", 0.0, 4)
    for second in range(4):
        scheduler.complete_block(first, second + 1.0)
    last = scheduler.assign("a", 4.0, 1)
    last.received_bytes, last.last_byte_at = received_bytes, 6.0
    return scheduler.assign("a", 6.0, 1, is_only_source)


def test_lagging_block_is_hedged():
    assert assign_while_late(received_bytes=400_000).is_hedge
    assert assign_while_late(received_bytes=600_000) is None, "the rest takes less time than another copy"
    assert assign_while_late(received_bytes=400_000, is_only_source=False) is None, (
        "the same source is used only if there is no other"
    )


@settings(deadline=None)
@given(
    blocks=st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), max_size=30),
    cut=st.integers(0, 600),
)
def test_truncated_resume_log(blocks, cut):
    data = b"".join(format_record(index, checksum) for index, checksum in blocks)
    n_complete = len(data[:cut]) // len(format_record(0, 0))
    assert list(parse_records(data[:cut])) == blocks[:n_complete]
    assert list(parse_records(data[:cut] + b"torn")) == blocks[:n_complete]


@settings(deadline=None)
@given(size=st.integers(0, 1 << 50), etag=st.one_of(st.none(), st.text()), block=st.integers(1, 1 << 30))
def test_object_identity_round_trip(size, etag, block):
    identity = ObjectIdentity(size, etag, None, block)
    assert ObjectIdentity.from_line(identity.to_line()) == identity
    assert sum(identity.block_length(i) for i in {0, identity.n_blocks - 1} if i >= 0 and identity.n_blocks) <= max(
        size, 0
    )


@settings(deadline=None)
@given(
    rates=st.lists(st.floats(0, 1e9), min_size=1, max_size=200),
    busy=st.lists(st.floats(0, 2), min_size=1, max_size=200),
    max_initial=st.integers(1, 64),
    round_trip_s=st.floats(0, 2),
)
def test_connections_are_bounded(rates, busy, max_initial, round_trip_s):
    controller, total, cpu_s, now = ConcurrencyController(max_initial, 64, 0.0), 0.0, 0.0, 0.0
    for index, rate in enumerate(rates):
        now += 0.1
        total += rate * 0.1
        cpu_s += busy[index % len(busy)] * 0.1
        assert 1 <= controller.update(int(total), cpu_s, now, 64, round_trip_s) <= 64


def settle(speed, cpu_fraction=0.1, seconds=5.0, round_trip_s=0.0) -> int:
    """The number of connections after some seconds; `speed` maps connections and time to bytes per second."""
    controller, total, now = ConcurrencyController(48, 64, 0.0), 0.0, 0.0
    while now < seconds:
        now += 0.05
        total += speed(controller.connections, now) * 0.05
        controller.update(int(total), cpu_fraction * now, now, controller.connections, round_trip_s)
    return controller.connections


def test_connections_grow_while_that_pays():
    assert settle(lambda n, now: 1e6 * n) == 64
    connections = []
    settle(lambda n, now: connections.append(n) or 1e6 * min(n, 16), seconds=30.0)
    assert statistics.mode(connections[len(connections) // 2 :]) == 16, "except for moments in which more are tried"
    assert settle(lambda n, now: 1e8) == 8


def test_slow_connections_do_not_grow():
    assert settle(lambda n, now: 90e3 * n, seconds=120.0) == 8
    assert settle(lambda n, now: 110e3 * n, seconds=120.0) == 64


def test_distant_server_gets_many_connections():
    assert settle(lambda n, now: 1e6 * n, seconds=0.1, round_trip_s=0.05) == 24
    assert settle(lambda n, now: 1e6 * n, seconds=0.1, round_trip_s=0.001) == 1
    assert settle(lambda n, now: 1e6, seconds=60.0, round_trip_s=0.05) == 8


class LossyNetwork:
    """Each connection is fast until it loses a packet, and the bandwidth is limited."""

    def __init__(self) -> None:
        self._start_times: list[float] = []

    def __call__(self, connections: int, now: float) -> float:
        self._start_times = [*self._start_times[:connections], *[now] * (connections - len(self._start_times))]
        return min(60e6, sum(8e6 if now - started_at < 0.6 else 1e6 for started_at in self._start_times))


def test_fast_first_second_is_not_the_reference():
    assert settle(LossyNetwork(), seconds=6.0) >= 32


def test_useless_tries_become_rare():
    connections = []
    settle(lambda n, now: connections.append(n) or 1e8, seconds=120.0)
    tries = [connections[i] < connections[i + 1] for i in range(len(connections) - 1)]
    assert tries[: len(tries) // 2].count(True) > tries[len(tries) // 2 :].count(True)
    assert sum(connections) / len(connections) < 8.5, "most of the time there are no more than needed"


def test_one_fast_cpu_bound_connection_is_enough():
    assert settle(lambda n, now: 5e8, cpu_fraction=0.9) == 1
    assert settle(lambda n, now: 5e7, cpu_fraction=0.9) == 8


def test_one_very_fast_connection_is_enough():
    assert settle(lambda n, now: 1e9, cpu_fraction=0.2) == 1


def test_single_connection_returns_after_hiccup():
    hiccup = lambda now: 0.4 < now < 0.7  # noqa: E731
    assert settle(lambda n, now: 1e7 if hiccup(now) else 4e8, cpu_fraction=0.9) == 1
    assert settle(lambda n, now: 1e7 if hiccup(now) else 2e8 * n, cpu_fraction=0.9) == 8


def test_more_connections_when_single_one_stops():
    assert settle(lambda n, now: 5e8 if now < 0.5 else 0.0, cpu_fraction=0.9, seconds=0.7) == 8
