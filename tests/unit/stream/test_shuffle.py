"""The order of samples: as well mixed as a full shuffle, the same everywhere, cheap to hold."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from packtrain.errors import UsageError
from packtrain.stream.cursor import Cursor
from packtrain.stream.index import write_relocated_index
from packtrain.stream.read_groups import ReadGroups
from packtrain.stream.shuffle import PartitionConfig, SamplePartition
from tests.support.stream_indexes import make_index_without_archive

CLASSES, EACH, SIZE = 200, 100, 110_000


@pytest.fixture(scope="module")
def like_imagenet(tmp_path_factory):
    return make_index_without_archive(tmp_path_factory.mktemp("index"), CLASSES * EACH, SIZE)


def _classes_per_64(index, split):
    dealt = SamplePartition(ReadGroups(index, range(len(index)), split.read_bytes), split, 1, 1, 0)
    labels = [number // EACH for number in dealt.worker_order(0, 0).sample_numbers()]
    return mean(len(set(labels[at : at + 64])) for at in range(0, len(labels) - 64, 64))


def test_batches_of_a_sorted_archive_are_as_mixed_as_of_a_full_shuffle(like_imagenet):
    """A full shuffle of 200 classes gives 55."""
    assert _classes_per_64(like_imagenet, PartitionConfig(1, 2, 64, shuffle_window=256)) > 52
    assert _classes_per_64(like_imagenet, PartitionConfig(1, 2, 64, shuffle_window=128)) > 50


def test_the_order_is_the_same_on_every_python(tmp_path):
    """Written down from Python 3.11; the same test runs on 3.9."""
    cursor = Cursor(
        make_index_without_archive(tmp_path, 12), PartitionConfig(1, 1, 4, shuffle_window=4, read_bytes=300), seed=7
    )
    assert list(cursor.partition().worker_order(0, 0).sample_numbers()) == [7, 0, 6, 9, 5, 1, 2, 8, 4, 11, 10, 3]


def test_epochs_and_seeds_have_orders_of_their_own(tmp_path):
    index = make_index_without_archive(tmp_path, 200)

    def order(seed, epoch):
        cursor = Cursor(index, PartitionConfig(batch_size=10, read_bytes=300), seed)
        for _ in range(1, epoch):
            cursor.advance(cursor.batches_left)
        assert cursor.epoch == epoch
        return tuple(cursor.partition().worker_order(0, 0).sample_numbers())

    assert len({order(1, 1), order(1, 2), order(2, 1), order(2, 2)}) == 4
    assert order(1, 2) == order(1, 2)


def test_without_shuffling_batches_come_as_they_lie(tmp_path):
    split = PartitionConfig(world_size=1, num_workers=3, batch_size=7, read_bytes=500, shuffle=False)
    dealt = Cursor(make_index_without_archive(tmp_path, 50), split).partition()
    streams = [dealt.worker_order(0, worker).sample_numbers() for worker in range(3)]
    seen = [next(streams[at // 7 % 3]) for at in range(50)]
    assert seen == list(range(50))


def test_a_position_of_other_samples_is_refused(tmp_path):
    state = Cursor(make_index_without_archive(tmp_path, 20), PartitionConfig(), 1).state_dict()
    with pytest.raises(UsageError, match="counted with index"):
        Cursor(make_index_without_archive(tmp_path, 21), PartitionConfig(), 1).load_state_dict(state)
    with pytest.raises(UsageError, match="seed 1, now 2"):
        Cursor(make_index_without_archive(tmp_path, 20), PartitionConfig(), 2).load_state_dict(state)
    with pytest.raises(UsageError, match="version 9"):
        Cursor(make_index_without_archive(tmp_path, 20), PartitionConfig(), 1).load_state_dict({**state, "version": 9})


def test_a_position_fits_wherever_the_samples_are_to_be_had(tmp_path):
    index = make_index_without_archive(tmp_path, 20)
    cursor = Cursor(index, PartitionConfig(batch_size=4), 1)
    cursor.advance(2)
    elsewhere = write_relocated_index(
        index, (replace(index.archives[0], mirrors=("http://m/none.tar",)),), tmp_path / "other"
    )
    other = Cursor(elsewhere, PartitionConfig(batch_size=4), 1)
    other.load_state_dict(cursor.state_dict())
    assert other.batches_done == 2
    as_once = {**cursor.state_dict(), "index": index.fingerprint}  # as packtrain wrote it before
    Cursor(index, PartitionConfig(batch_size=4), 1).load_state_dict(as_once)


def test_what_was_read_for_delivered_samples_alone_is_not_read_again(tmp_path):
    dealt = Cursor(
        make_index_without_archive(tmp_path, 60), PartitionConfig(1, 1, 10, shuffle_window=2, read_bytes=400)
    ).partition()
    whole = list(dealt.worker_order(0, 0).sample_numbers())
    rest = dealt.worker_order(0, 0).skip(30)
    assert list(rest.sample_numbers()) == whole[30:]
    assert sorted(sample for piece in rest.groups for sample in piece) == sorted(whole[30:])


def test_nonsense_is_refused():
    with pytest.raises(UsageError, match="at least 1"):
        PartitionConfig(num_workers=0)
    with pytest.raises(UsageError, match="'drop' or 'pad'"):
        PartitionConfig(remainder="hang")
