"""Property: one epoch delivers every sample once, for any seed, ranks, workers and kill points."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from packtrain.stream.cursor import Cursor
from packtrain.stream.shuffle import PartitionConfig, seeded_rng, shuffle_within_window
from tests.support.stream_indexes import make_index_without_archive


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("indexes")


@st.composite
def configs(draw, drop_last):
    return PartitionConfig(
        world_size=draw(st.integers(1, 4)),
        num_workers=draw(st.integers(1, 5)),
        batch_size=draw(st.integers(1, 9)),
        shuffle_window=draw(st.sampled_from([1, 3, 16, 200])),
        read_bytes=draw(st.sampled_from([1, 350, 1000, 1 << 20])),
        shuffle=draw(st.booleans()),
        drop_last=drop_last,
    )


def next_samples(cursor, n_batches):
    """Return the samples that all ranks get in their next batches. A loader takes batches from its workers in turn."""
    partition, first = cursor.partition(), cursor.batches_done
    config, by_rank = partition.config, []
    for rank in range(config.world_size):
        workers = [
            partition.worker_order(rank, worker).skip(partition.samples_done(worker, first)).sample_numbers()
            for worker in range(config.num_workers)
        ]
        batches = [
            list(islice(workers[batch % config.num_workers], config.batch_size))
            for batch in range(first, first + n_batches)
        ]
        assert all(batches)
        by_rank.append(batches)
    assert len({tuple(len(batch) for batch in batches) for batches in by_rank}) == 1  # no rank waits for another
    return [number for batches in by_rank for batch in batches for number in batch]


@settings(max_examples=150, deadline=None)
@given(st.integers(4, 120), st.integers(0, 2**40), st.booleans(), st.data())
def test_every_sample_once_after_any_kills(folder, n_samples, seed, drop_last, data):
    index = make_index_without_archive(folder, n_samples)
    state, seen, world_sizes = None, Counter(), []
    while state is None or state["epoch"] == 0:
        config = data.draw(configs(drop_last))
        assume(not drop_last or n_samples >= config.world_size * config.batch_size)
        cursor = Cursor(index, config, seed)
        if state is not None:
            cursor.load_state_dict(state)
        if cursor.epoch == 1:
            break  # too few samples were left for all ranks
        world_sizes.append(config.world_size)
        is_last = len(world_sizes) >= 5
        n_batches = cursor.batches_left if is_last else data.draw(st.integers(1, cursor.batches_left))
        seen.update(next_samples(cursor, n_batches))
        cursor.advance(n_batches)
        state = cursor.state_dict()
    n_missing = n_samples - len(seen)
    if drop_last:
        assert set(seen.values()) <= {1}
        assert n_missing < config.world_size * config.batch_size
    else:
        assert n_missing == 0
        assert sum(seen.values()) - n_samples <= sum(world_size - 1 for world_size in world_sizes)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 12), max_size=60), st.integers(1, 40), st.integers(0, 2**40))
def test_samples_stay_within_the_window(counts, window, seed):
    """Each sample comes once, and the number of groups in memory is bounded."""
    positions = list(shuffle_within_window(counts, window, seeded_rng(seed)))
    assert sorted(positions) == [(group, position) for group, count in enumerate(counts) for position in range(count)]
    last_group = -1
    for group, _ in positions:
        assert group >= last_group - window
        last_group = max(last_group, group)
