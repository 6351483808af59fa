"""For any seed, ranks, workers and kill points, one epoch delivers every sample exactly once."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.stream.cursor import Cursor
from packtrain.stream.shuffle import DROP, PAD, PartitionConfig, seeded_rng, shuffle_within_window
from tests.support.stream_indexes import make_index_without_archive


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("indexes")


@st.composite
def splits(draw, uneven):
    return PartitionConfig(
        world_size=draw(st.integers(1, 4)),
        num_workers=draw(st.integers(1, 5)),
        batch_size=draw(st.integers(1, 9)),
        shuffle_window=draw(st.sampled_from([1, 3, 16, 200])),
        read_bytes=draw(st.sampled_from([1, 350, 1000, 1 << 20])),
        shuffle=draw(st.booleans()),
        remainder=uneven,
    )


def _next_batches(cursor, count):
    """What all ranks get in the next so many batches, as their loaders give it: worker after worker in turn."""
    dealt, split, given_ = cursor.partition(), cursor.partition().split, []
    for rank in range(split.ranks):
        rest = {
            worker: dealt.stream(rank, worker).after(dealt.done(worker, cursor.batch)).numbers()
            for worker in range(split.workers)
        }
        batches = [
            list(islice(rest[number % split.workers], split.batch))
            for number in range(cursor.batch, cursor.batch + count)
        ]
        assert all(batches)
        given_.append(batches)
    assert len({tuple(len(batch) for batch in batches) for batches in given_}) == 1  # no rank waits for another
    return [number for batches in given_ for batch in batches for number in batch]


@settings(max_examples=150, deadline=None)
@given(st.integers(4, 120), st.integers(0, 2**40), st.sampled_from([DROP, PAD]), st.data())
def test_every_sample_once_wherever_it_was_killed(folder, samples, seed, uneven, data):
    index = make_index_without_archive(folder, samples)
    state, seen, ranks = None, Counter(), []
    while state is None or state["epoch"] == 1:
        split = data.draw(splits(uneven))
        cursor = Cursor(index, split, seed)
        if state is not None:
            cursor.load_state_dict(state)
        if cursor.epoch == 2:
            ranks.append(split.ranks)  # too little was left for so many
            break
        ranks.append(split.world_size)
        count = data.draw(st.integers(1, cursor.batches_left)) if len(ranks) < 5 else cursor.batches_left
        seen.update(_next_batches(cursor, count))
        cursor.advance(count)
        state = cursor.state_dict()
    missing = samples - len(seen)
    if uneven == DROP:
        assert set(seen.values()) <= {1}
        assert missing < max(ranks[-1], 2)
    else:
        assert missing == 0
        assert sum(seen.values()) - samples <= sum(rank - 1 for rank in ranks)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 12), max_size=60), st.integers(1, 40), st.integers(0, 2**40))
def test_no_sample_comes_before_its_piece_and_none_waits_for_long(counts, pool, seed):
    given_ = list(shuffle_within_window(counts, pool, seeded_rng(seed)))
    assert sorted(given_) == [(piece, place) for piece, count in enumerate(counts) for place in range(count)]
    read = -1
    for piece, _ in given_:
        assert piece >= read - pool  # what is held is bounded
        read = max(read, piece)
