"""Whatever connections do, every block is delivered exactly once, and hedges stay within their budget."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.transfer.blocks import Schedule, Span
from packtrain.transfer.ledger import Known, record, records
from packtrain.transfer.pace import Pace

PLACES = ("a", "b", "c")


@settings(max_examples=200, deadline=None)
@given(
    count=st.integers(0, 90),
    seed=st.integers(0, 1 << 30),
    workers=st.integers(1, 9),
    failing=st.floats(0, 0.5),
    resumed=st.sets(st.integers(0, 89)),
    window=st.one_of(st.none(), st.integers(1, 20)),
)
def test_every_block_is_delivered_exactly_once(count, seed, workers, failing, resumed, window):
    chance, now = random.Random(seed), 0.0
    done = {index for index in resumed if index < count}
    schedule = Schedule(count, done, window)
    spans: list[Span] = []
    delivered: list[int] = []
    for _ in range(200 * (count + 1)):
        if not schedule.left:
            break
        now += chance.random()
        if window is not None:
            schedule.horizon = schedule.frontier + window
        if len(spans) < workers:
            span = schedule.take(chance.choice(PLACES), now, workers, alone=chance.random() < 0.5)
            if span is not None:
                assert 0 <= span.at < span.stop <= min(count, schedule.horizon)
                spans.append(span)
        if spans:
            step(schedule, chance.choice(spans), spans, delivered, chance, failing, now)
    assert sorted([*delivered, *done]) == list(range(count))
    assert schedule.left == 0 and schedule.frontier == count
    assert schedule.hedged <= max(1, 0.05 * count)


def step(schedule, span, spans, delivered, chance, failing, now) -> None:
    """One thing that can happen to a connection."""
    schedule.skip(span)
    if schedule.lost(span) or chance.random() < failing:
        spans.remove(span)
        schedule.give_back(span)
    else:
        index = span.at
        if schedule.arrived(span, now):
            delivered.append(index)


@settings(deadline=None)
@given(count=st.integers(2, 200), workers=st.integers(1, 64), taken=st.integers(1, 300))
def test_spans_never_overlap_unless_hedged(count, workers, taken):
    schedule, spans = Schedule(count), []
    for number in range(taken):
        span = schedule.take("a", float(number), workers)
        if span is not None and not span.hedge:
            spans.append(span)
    held = [index for span in spans for index in range(span.at, span.stop)]
    assert sorted(held) == sorted(set(held))
    assert set(held) <= set(range(count))


@settings(deadline=None)
@given(
    blocks=st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), max_size=30),
    cut=st.integers(0, 600),
)
def test_a_torn_ledger_loses_only_what_was_torn(blocks, cut):
    data = b"".join(record(index, seal) for index, seal in blocks)
    whole = len(data[:cut]) // len(record(0, 0))
    assert list(records(data[:cut])) == blocks[:whole]
    assert list(records(data[:cut] + b"torn")) == blocks[:whole]


@settings(deadline=None)
@given(size=st.integers(0, 1 << 50), etag=st.one_of(st.none(), st.text()), block=st.integers(1, 1 << 30))
def test_the_ledger_knows_its_object_again(size, etag, block):
    known = Known(size, etag, None, block)
    assert Known.from_line(known.line()) == known
    assert sum(known.length(index) for index in {0, known.count - 1} if index >= 0 and known.count) <= max(size, 0)


@settings(deadline=None)
@given(
    rates=st.lists(st.floats(0, 1e9), min_size=1, max_size=200),
    busy=st.lists(st.floats(0, 2), min_size=1, max_size=200),
    first=st.integers(1, 8),
)
def test_the_number_of_connections_stays_within_bounds(rates, busy, first):
    pace, total, spent, now = Pace(first, 64, 0.0), 0.0, 0.0, 0.0
    for index, rate in enumerate(rates):
        now += 0.1
        total += rate * 0.1
        spent += busy[index % len(busy)] * 0.1
        assert 1 <= pace.told(int(total), spent, now, 64) <= 64


def settled(goodput, busy=0.1, seconds=5.0) -> int:
    pace, total, now = Pace(8, 64, 0.0), 0.0, 0.0
    while now < seconds:
        now += 0.05
        total += goodput(pace.connections, now) * 0.05
        pace.told(int(total), busy * now, now, pace.connections)
    return pace.connections


def test_connections_grow_while_that_pays_and_go_back_when_not():
    assert settled(lambda n, now: 1e6 * n) == 64
    assert settled(lambda n, now: 1e6 * min(n, 16)) == 16
    assert settled(lambda n, now: 1e8) == 8


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
