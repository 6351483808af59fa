"""Whatever connections do, every block is delivered exactly once, and hedges stay within their budget."""

from __future__ import annotations

import random
import statistics

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.transfer.engine.concurrency import ConcurrencyController
from packtrain.transfer.engine.resume_log import ObjectIdentity, format_record, parse_records
from packtrain.transfer.engine.scheduler import BlockScheduler, BlockSpan

PLACES = ("a", "b", "c")


@settings(max_examples=200, deadline=None)
@given(
    count=st.integers(0, 90),
    seed=st.integers(0, 1 << 30),
    workers=st.integers(1, 9),
    failing=st.floats(0, 0.5),
    resumed=st.sets(st.integers(0, 89)),
    window=st.one_of(st.none(), st.integers(1, 20)),
    least=st.integers(1, 5),
)
def test_every_block_is_delivered_exactly_once(count, seed, workers, failing, resumed, window, least):
    chance, now = random.Random(seed), 0.0
    done = {index for index in resumed if index < count}
    schedule = BlockScheduler(count, done, window, min_span_blocks=least)
    spans: list[BlockSpan] = []
    delivered: list[int] = []
    for _ in range(200 * (count + 1)):
        if not schedule.n_missing:
            break
        now += chance.random()
        if window is not None:
            schedule.window_end = schedule.frontier + window
        if len(spans) < workers:
            span = schedule.assign(chance.choice(PLACES), now, workers, is_only_source=chance.random() < 0.5)
            if span is not None:
                assert 0 <= span.next_block < span.stop_block <= min(count, schedule.window_end)
                spans.append(span)
        if spans:
            step(schedule, chance.choice(spans), spans, delivered, chance, failing, now)
    assert sorted([*delivered, *done]) == list(range(count))
    assert schedule.n_missing == 0 and schedule.frontier == count
    assert schedule.n_hedges <= max(1, 0.05 * count)


def step(schedule, span, spans, delivered, chance, failing, now) -> None:
    """One thing that can happen to a connection."""
    schedule.skip_done(span)
    if schedule.is_obsolete(span) or chance.random() < failing:
        spans.remove(span)
        schedule.release(span)
    else:
        index = span.next_block
        if schedule.complete_block(span, now):
            delivered.append(index)


@settings(deadline=None)
@given(count=st.integers(2, 200), workers=st.integers(1, 64), taken=st.integers(1, 300))
def test_spans_never_overlap_unless_hedged(count, workers, taken):
    schedule, spans = BlockScheduler(count), []
    for number in range(taken):
        span = schedule.assign("a", float(number), workers)
        if span is not None and not span.is_hedge:
            spans.append(span)
    held = [index for span in spans for index in range(span.next_block, span.stop_block)]
    assert sorted(held) == sorted(set(held))
    assert set(held) <= set(range(count))


def late_one(got: int, *, alone: bool = True) -> BlockSpan | None:
    """What an idle connection gets while the last of five blocks is on its way for 2 s; the others took 1 s each."""
    schedule = BlockScheduler(5)
    first = schedule.assign_first("a", 0.0, 4)
    for second in range(4):
        schedule.complete_block(first, second + 1.0)
    last = schedule.assign("a", 4.0, 1)
    last.received_bytes, last.last_byte_at = got, 6.0
    return schedule.assign("a", 6.0, 1, alone)


def test_a_block_that_lags_gets_a_second_copy_before_it_is_overdue():
    assert late_one(got=400_000).is_hedge
    assert late_one(got=600_000) is None, "its rest takes less than another copy would"
    assert late_one(got=400_000, alone=False) is None, "from the same place only if there is no other"


@settings(deadline=None)
@given(
    blocks=st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), max_size=30),
    cut=st.integers(0, 600),
)
def test_a_torn_ledger_loses_only_what_was_torn(blocks, cut):
    data = b"".join(format_record(index, seal) for index, seal in blocks)
    whole = len(data[:cut]) // len(format_record(0, 0))
    assert list(parse_records(data[:cut])) == blocks[:whole]
    assert list(parse_records(data[:cut] + b"torn")) == blocks[:whole]


@settings(deadline=None)
@given(size=st.integers(0, 1 << 50), etag=st.one_of(st.none(), st.text()), block=st.integers(1, 1 << 30))
def test_the_ledger_knows_its_object_again(size, etag, block):
    known = ObjectIdentity(size, etag, None, block)
    assert ObjectIdentity.from_line(known.to_line()) == known
    assert sum(known.block_length(index) for index in {0, known.n_blocks - 1} if index >= 0 and known.n_blocks) <= max(
        size, 0
    )


@settings(deadline=None)
@given(
    rates=st.lists(st.floats(0, 1e9), min_size=1, max_size=200),
    busy=st.lists(st.floats(0, 2), min_size=1, max_size=200),
    useful=st.integers(1, 64),
    round_trip_s=st.floats(0, 2),
)
def test_the_number_of_connections_stays_within_bounds(rates, busy, useful, round_trip_s):
    pace, total, spent, now = ConcurrencyController(useful, 64, 0.0), 0.0, 0.0, 0.0
    for index, rate in enumerate(rates):
        now += 0.1
        total += rate * 0.1
        spent += busy[index % len(busy)] * 0.1
        assert 1 <= pace.update(int(total), spent, now, 64, round_trip_s) <= 64


def settled(goodput, busy=0.1, seconds=5.0, round_trip_s=0.0) -> int:
    pace, total, now = ConcurrencyController(48, 64, 0.0), 0.0, 0.0
    while now < seconds:
        now += 0.05
        total += goodput(pace.connections, now) * 0.05
        pace.update(int(total), busy * now, now, pace.connections, round_trip_s)
    return pace.connections


def test_connections_grow_while_that_pays_and_go_back_when_not():
    assert settled(lambda n, now: 1e6 * n) == 64
    usual = []
    settled(lambda n, now: usual.append(n) or 1e6 * min(n, 16), seconds=30.0)
    assert statistics.mode(usual[len(usual) // 2 :]) == 16, "but for moments in which more are tried"
    assert settled(lambda n, now: 1e8) == 8


def test_where_each_brings_next_to_nothing_more_would_take_from_others():
    assert settled(lambda n, now: 90e3 * n, seconds=120.0) == 8
    assert settled(lambda n, now: 110e3 * n, seconds=120.0) == 64


def test_to_a_far_server_there_are_many_at_once_and_fewer_if_each_brings_next_to_nothing():
    assert settled(lambda n, now: 1e6 * n, seconds=0.1, round_trip_s=0.05) == 24
    assert settled(lambda n, now: 1e6 * n, seconds=0.1, round_trip_s=0.001) == 1
    assert settled(lambda n, now: 1e6, seconds=60.0, round_trip_s=0.05) == 8


class Lossy:
    """A connection is quick until the line loses something of it; the line carries only so much."""

    def __init__(self) -> None:
        self._begun: list[float] = []

    def __call__(self, connections: int, now: float) -> float:
        self._begun = [*self._begun[:connections], *[now] * (connections - len(self._begun))]
        return min(60e6, sum(8e6 if now - begun < 0.6 else 1e6 for begun in self._begun))


def test_what_connections_bring_in_their_first_moments_is_not_held_against_more():
    assert settled(Lossy(), seconds=6.0) >= 32


def test_where_more_never_pay_they_are_tried_less_and_less_often():
    seen = []
    settled(lambda n, now: seen.append(n) or 1e8, seconds=120.0)
    tries = [seen[i] < seen[i + 1] for i in range(len(seen) - 1)]
    assert tries[: len(tries) // 2].count(True) > tries[len(tries) // 2 :].count(True)
    assert sum(seen) / len(seen) < 8.5, "most of the time there are no more than needed"


def test_one_connection_is_enough_while_it_is_quick_and_the_processor_is_the_limit():
    assert settled(lambda n, now: 5e8, busy=0.9) == 1
    assert settled(lambda n, now: 5e7, busy=0.9) == 8


def test_one_that_is_very_quick_is_enough_even_if_the_processor_rests():
    assert settled(lambda n, now: 1e9, busy=0.2) == 1


def test_after_a_hiccup_of_the_quick_one_there_is_one_again_unless_more_pay():
    hiccup = lambda now: 0.4 < now < 0.7  # noqa: E731
    assert settled(lambda n, now: 1e7 if hiccup(now) else 4e8, busy=0.9) == 1
    assert settled(lambda n, now: 1e7 if hiccup(now) else 2e8 * n, busy=0.9) == 8


def test_when_the_quick_one_stops_there_are_more_at_once():
    assert settled(lambda n, now: 5e8 if now < 0.5 else 0.0, busy=0.9, seconds=0.7) == 8
