"""Tests of training on a subset of the samples."""

import pytest

from packtrain.errors import UsageError
from packtrain.stream.cursor import Cursor
from packtrain.stream.shuffle import PartitionConfig
from tests.support.stream_indexes import make_index_without_archive

N_SAMPLES = 100
INDICES = [number for number in range(N_SAMPLES) if (number + 1) % 8]


def make_config(num_workers=1):
    return PartitionConfig(num_workers=num_workers, batch_size=4, shuffle_window=3, read_bytes=1000)


def next_samples(cursor, n_batches=None):
    """Return the samples of the next batches; by default of the rest of the epoch."""
    partition, first = cursor.partition(), cursor.batches_done
    count = partition.n_batches - first if n_batches is None else n_batches
    before, after = list(partition.delivered_samples(first)), list(partition.delivered_samples(first + count))
    cursor.advance(count)
    return sorted(set(after) - set(before))


@pytest.fixture
def index(tmp_path):
    return make_index_without_archive(tmp_path, N_SAMPLES)


def test_each_sample_once_per_epoch(index):
    cursor = Cursor(index, make_config(), 1, INDICES)
    assert next_samples(cursor) == INDICES
    assert cursor.epoch == 1
    assert next_samples(cursor) == INDICES


def test_resume_with_more_workers(index):
    first = Cursor(index, make_config(), 1, INDICES)
    seen = next_samples(first, 5)
    second = Cursor(index, make_config(num_workers=3), 1, INDICES)
    second.load_state_dict(first.state_dict())
    rest = next_samples(second)
    assert not set(seen) & set(rest)
    assert sorted(seen + rest) == INDICES


@pytest.mark.parametrize("other", [None, INDICES[1:]])
def test_state_of_other_indices_is_rejected(index, other):
    state = Cursor(index, make_config(), 1, INDICES).state_dict()
    with pytest.raises(UsageError, match="it does not fit"):
        Cursor(index, make_config(), 1, other).load_state_dict(state)
