"""Tests of the order of samples: well mixed, and the same on every machine."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from packtrain.errors import UsageError
from packtrain.stream.cursor import Cursor
from packtrain.stream.index_writer import write_relocated_index
from packtrain.stream.read_groups import ReadGroups
from packtrain.stream.shuffle import PartitionConfig, SamplePartition
from tests.support.stream_indexes import make_index_without_archive

N_CLASSES, PER_CLASS, SIZE = 200, 100, 110_000


@pytest.fixture(scope="module")
def large_index(tmp_path_factory):
    return make_index_without_archive(tmp_path_factory.mktemp("index"), N_CLASSES * PER_CLASS, SIZE)


def classes_per_64(index, config):
    partition = SamplePartition(ReadGroups(index, range(len(index)), config.read_bytes), config, 1, 1, 0)
    labels = [number // PER_CLASS for number in partition.worker_order(0, 0).sample_numbers()]
    return mean(len(set(labels[start : start + 64])) for start in range(0, len(labels) - 64, 64))


def test_sorted_archive_is_well_mixed(large_index):
    """A full shuffle of 200 classes gives 55."""
    assert classes_per_64(large_index, PartitionConfig(1, 2, 64, shuffle_window=256)) > 52
    assert classes_per_64(large_index, PartitionConfig(1, 2, 64, shuffle_window=128)) > 50


def test_same_order_in_every_python(tmp_path):
    """The expected order is from Python 3.11; the test also runs on 3.9."""
    cursor = Cursor(
        make_index_without_archive(tmp_path, 12), PartitionConfig(1, 1, 4, shuffle_window=4, read_bytes=300), seed=7
    )
    cursor.advance(cursor.batches_left)
    assert list(cursor.partition().worker_order(0, 0).sample_numbers()) == [7, 0, 6, 9, 5, 1, 2, 8, 4, 11, 10, 3]


def test_epochs_and_seeds_differ(tmp_path):
    index = make_index_without_archive(tmp_path, 200)

    def order(seed, epoch):
        cursor = Cursor(index, PartitionConfig(batch_size=10, read_bytes=300), seed)
        for _ in range(epoch):
            cursor.advance(cursor.batches_left)
        assert cursor.epoch == epoch
        return tuple(cursor.partition().worker_order(0, 0).sample_numbers())

    assert len({order(1, 0), order(1, 1), order(2, 0), order(2, 1)}) == 4
    assert order(1, 1) == order(1, 1)


def test_without_shuffling(tmp_path):
    config = PartitionConfig(world_size=1, num_workers=3, batch_size=7, read_bytes=500, shuffle=False)
    partition = Cursor(make_index_without_archive(tmp_path, 50), config).partition()
    workers = [partition.worker_order(0, worker).sample_numbers() for worker in range(3)]
    numbers = [next(workers[position // 7 % 3]) for position in range(50)]
    assert numbers == list(range(50))


def test_state_of_other_samples_is_rejected(tmp_path):
    state = Cursor(make_index_without_archive(tmp_path, 20), PartitionConfig(), 1).state_dict()
    with pytest.raises(UsageError, match="counted with samples_fingerprint"):
        Cursor(make_index_without_archive(tmp_path, 21), PartitionConfig(), 1).load_state_dict(state)
    with pytest.raises(UsageError, match="seed 1, now 2"):
        Cursor(make_index_without_archive(tmp_path, 20), PartitionConfig(), 2).load_state_dict(state)
    with pytest.raises(UsageError, match="version 9"):
        Cursor(make_index_without_archive(tmp_path, 20), PartitionConfig(), 1).load_state_dict({**state, "version": 9})


def test_state_fits_a_relocated_index(tmp_path):
    index = make_index_without_archive(tmp_path, 20)
    cursor = Cursor(index, PartitionConfig(batch_size=4), 1)
    cursor.advance(2)
    archives = (replace(index.archives[0], mirrors=("http://m/none.tar",)),)
    relocated = write_relocated_index(index, archives, tmp_path / "other")
    other = Cursor(relocated, PartitionConfig(batch_size=4), 1)
    other.load_state_dict(cursor.state_dict())
    assert other.batches_done == 2


@pytest.mark.parametrize(("drop_last", "position"), [(True, (1, 3)), (False, (0, 1))])
def test_few_samples_left_for_more_ranks(tmp_path, drop_last, position):
    """Four samples are left, and two ranks use batches of three: the epoch ends, or each rank gets two."""
    index = make_index_without_archive(tmp_path, 20)
    first = Cursor(index, PartitionConfig(batch_size=4, drop_last=drop_last))
    first.advance(4)
    second = Cursor(index, PartitionConfig(world_size=2, batch_size=3, drop_last=drop_last))
    second.load_state_dict(first.state_dict())
    assert (second.epoch, second.batches_left) == position


def test_skipped_groups_are_not_read_again(tmp_path):
    partition = Cursor(
        make_index_without_archive(tmp_path, 60), PartitionConfig(1, 1, 10, shuffle_window=2, read_bytes=400)
    ).partition()
    numbers = list(partition.worker_order(0, 0).sample_numbers())
    rest = partition.worker_order(0, 0).skip(30)
    assert list(rest.sample_numbers()) == numbers[30:]
    assert sorted(sample for group in rest.groups for sample in group) == sorted(numbers[30:])


def test_invalid_config():
    with pytest.raises(UsageError, match="at least 1"):
        PartitionConfig(num_workers=0)
